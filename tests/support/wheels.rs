//! Wheels from the index that pip is set up for, kept below the target directory, so that a second run is quick.

use stackforge_binary::source::{FileSource, Source};
use stackforge_binary::zip::Archive;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A wheel for a platform, of this machine without one.
pub fn download(requirement: &str, platform: Option<&str>) -> PathBuf {
    let name = format!("{requirement}-{}", platform.unwrap_or("here"));
    let dir = super::target_tmp().join("wheels").join(&name);
    // A killed pip leaves a part of a wheel under its name.
    let part = dir.join("part");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps"])
        .args(["--no-cache-dir", "--only-binary=:all:", "--dest"])
        .arg(&part)
        .env("LC_ALL", "C");
    if let Some(platform) = platform {
        pip.args(["--python-version", "3.12", "--platform", platform]);
    }
    let wheel = |dir: &Path| {
        let files = std::fs::read_dir(dir).ok()?;
        let mut wheels = files.map(|f| f.unwrap().path());
        wheels.find(|f| f.extension().is_some_and(|e| e == "whl"))
    };
    let _alone = super::shared::alone(&format!("wheels/{name}"));
    wheel(&dir).unwrap_or_else(|| {
        let _ = std::fs::remove_dir_all(&part);
        let output = pip.arg(requirement).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{requirement}: {stderr}");
        let made = wheel(&part).unwrap();
        let to = dir.join(made.file_name().unwrap());
        std::fs::rename(made, &to).unwrap();
        to
    })
}

/// Writes a wheel's shared objects and metadata where pip would put them.
pub fn install(wheel: &Path, site_packages: &Path) {
    let source = FileSource::open(wheel).unwrap();
    let archive = Archive::read("wheel", &mut source.clone()).unwrap();
    for member in &archive.members {
        let kept = member.name.contains(".so") || member.name.contains(".dist-info/");
        if member.is_folder() || !kept {
            continue;
        }
        let to = site_packages.join(&member.name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        unpack(&mut archive.open(member, source.clone()).unwrap(), &to);
    }
}

/// Writes a member out for programs that read files.
pub fn unpack(content: &mut impl Source, to: &Path) {
    let mut file = std::fs::File::create(to).unwrap();
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    while at < content.size() {
        let n = (content.size() - at).min(1 << 20);
        content.read_at(at, &mut piece[..n as usize]).unwrap();
        file.write_all(&piece[..n as usize]).unwrap();
        at += n;
    }
}
