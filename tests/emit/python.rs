//! Judges from PyPI, installed once below the target directory.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The schemas of GitHub, GitLab and Kubernetes come inside these packages.
const PACKAGES: [&str; 2] = ["check-jsonschema==0.39.0", "kubernetes-validate==1.37.0"];

/// Runs a module of the judges; the output where it refuses.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let out = Command::new("python3")
        .args(arguments)
        .env("PYTHONPATH", packages())
        .output()
        .unwrap();
    match out.status.success() {
        true => Ok(()),
        false => Err([out.stdout, out.stderr]
            .map(|b| String::from_utf8_lossy(&b).into_owned())
            .concat()),
    }
}

fn packages() -> &'static PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(PACKAGES.join("-"));
        if place.is_dir() {
            return place;
        }
        let new = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let out = Command::new("python3")
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .arg("--target")
            .arg(new.path())
            .args(PACKAGES)
            .output();
        let out = out.expect("python3 is not on PATH: run `sh scripts/setup.sh`");
        assert!(
            out.status.success(),
            "pip could not install {PACKAGES:?}, which judge pipelines: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        // Another run of the tests may have been first.
        if std::fs::rename(new.path(), &place).is_ok() {
            let _ = new.keep();
        }
        place
    })
}
