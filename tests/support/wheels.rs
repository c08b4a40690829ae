//! Wheels from the index that pip is set up for; kept, so that a second run is quick.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A wheel for a platform, of this machine without one.
pub fn download(requirement: &str, platform: Option<&str>) -> PathBuf {
    let name = format!("{requirement}-{}", platform.unwrap_or("here"));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("oracle")
        .join(name);
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps"])
        .args(["--only-binary=:all:", "--dest"])
        .arg(&dir)
        .env("LC_ALL", "C");
    if let Some(platform) = platform {
        pip.args(["--python-version", "3.12", "--platform", platform]);
    }
    let wheel = || {
        let files = std::fs::read_dir(&dir).ok()?;
        let mut wheels = files.map(|f| f.unwrap().path());
        wheels.find(|f| f.extension().is_some_and(|e| e == "whl"))
    };
    wheel().unwrap_or_else(|| {
        let output = pip.arg(requirement).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{requirement}: {said}");
        wheel().unwrap()
    })
}
