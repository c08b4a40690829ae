//! Judges from PyPI, installed once below the target directory.

use std::path::PathBuf;
use std::process::Command;

/// Runs Python with packages; what it prints, or what it says where it fails.
pub fn run(packages: &[&str], arguments: &[&str]) -> Result<String, String> {
    let out = Command::new("python3")
        .args(arguments)
        .env("PYTHONPATH", installed(packages))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if out.status.success() {
        Ok(text(&out.stdout))
    } else {
        Err(text(&out.stdout) + &text(&out.stderr))
    }
}

fn installed(packages: &[&str]) -> PathBuf {
    let _alone = super::shared::alone("judges");
    let place = super::target_tmp().join(packages.join("-"));
    if place.is_dir() {
        return place;
    }
    let new = tempfile::tempdir_in(super::target_tmp()).unwrap();
    let out = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet"])
        .args(["--disable-pip-version-check", "--target"])
        .arg(new.path())
        .args(packages)
        .output();
    let out = out.expect("python3 is not on PATH: run `sh scripts/setup.sh`");
    assert!(
        out.status.success(),
        "pip could not install {packages:?}, which judge: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    // Another run of the tests may have been first.
    if std::fs::rename(new.path(), &place).is_ok() {
        let _ = new.keep();
    }
    place
}
