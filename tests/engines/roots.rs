//! Root file systems of Debian's suites with their engines, made by mmdebstrap and kept below the user's
//! cache directory. They are only read; a list of packages that changed makes them anew.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Engines and what they need without root.
const PACKAGES: &str = "ca-certificates,conmon,containerd,docker.io,fuse-overlayfs,iproute2,netavark,\
    passt,podman,procps,rootlesskit,runc,slirp4netns,uidmap,util-linux";

/// The root file system of a suite, or why it cannot be had.
pub fn root(suite: &str) -> Result<PathBuf, String> {
    let mirror = mirror()?;
    let place = cache()?.join(suite);
    let problem = |what: &str, e: &dyn std::fmt::Display| format!("{what}: {e}");
    let parent = place.parent().unwrap_or(&place);
    std::fs::create_dir_all(parent).map_err(|e| problem("the cache", &e))?;
    let lock = File::create(place.with_extension("lock")).map_err(|e| problem("its lock", &e))?;
    lock.lock().map_err(|e| problem("its lock", &e))?;
    let list = place.with_extension("packages");
    let recipe = format!("{PACKAGES}\n");
    if place.is_dir() && std::fs::read_to_string(&list).is_ok_and(|made| made == recipe) {
        return Ok(place);
    }
    let _ = std::fs::remove_file(&list);
    let new = place.with_extension("new");
    for old in [&new, &place] {
        if old.exists() {
            std::fs::remove_dir_all(old).map_err(|e| problem("what was there before", &e))?;
        }
    }
    // A mirror may have no answer for a moment.
    let mut made = make(suite, &mirror, &new);
    for _ in 0..2 {
        if made.is_ok() {
            break;
        }
        let _ = std::fs::remove_dir_all(&new);
        made = make(suite, &mirror, &new);
    }
    made?;
    std::fs::rename(&new, &place).map_err(|e| problem("the cache", &e))?;
    std::fs::write(&list, recipe).map_err(|e| problem("the cache", &e))?;
    Ok(place)
}

fn make(suite: &str, mirror: &str, to: &Path) -> Result<(), String> {
    let mut command = Command::new("mmdebstrap");
    command.args(["--mode=root", "--format=directory", "--variant=essential"]);
    // A mirror that stands still is good enough here; its signature is verified all the same.
    command.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
    command.arg("--dpkgopt=force-unsafe-io");
    for folder in ["man", "doc", "locale"] {
        command.arg(format!("--dpkgopt=path-exclude=/usr/share/{folder}/*"));
    }
    let out = command
        .arg(format!("--include={PACKAGES}"))
        .args([suite.as_ref(), to.as_os_str()])
        .arg(format!("deb {mirror} {suite} main"))
        .output()
        .map_err(|e| format!("mmdebstrap: {e}; `scripts/setup.sh tests` installs it"))?;
    if out.status.success() {
        return Ok(());
    }
    let log = String::from_utf8_lossy(&out.stderr);
    let error = log.lines().find(|line| line.starts_with("E:"));
    let error = error.or(log.lines().last()).unwrap_or_default();
    Err(format!("mmdebstrap made no {suite}: {error}"))
}

/// Where root file systems stay, and what stackforge fetched.
pub fn cache() -> Result<PathBuf, String> {
    let of = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let cache = of("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(of("HOME")?).join(".cache")));
    let cache = cache.ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(cache.join("stackforge-tests/engines"))
}

/// Debian's mirror as this machine's apt has it.
fn mirror() -> Result<String, String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let parts = std::fs::read_dir("/etc/apt/sources.list.d");
    files.extend(parts.into_iter().flatten().flatten().map(|e| e.path()));
    files.sort();
    let known = |name: &PathBuf| {
        let kind = name.extension().and_then(|e| e.to_str());
        matches!(kind, Some("list" | "sources"))
    };
    let texts = files.iter().filter(|name| known(name));
    let texts = texts.filter_map(|name| std::fs::read_to_string(name).ok());
    let found = texts.flat_map(|text| mirrors(&text)).next();
    found.ok_or_else(|| "apt has no Debian mirror on this machine".to_owned())
}

/// Addresses of whole Debian archives in a file of apt's, in either format.
fn mirrors(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"));
    let words = lines.flat_map(|line| line.split_whitespace());
    let whole = |word: &&str| word.trim_end_matches('/').ends_with("/debian");
    words.filter(whole).map(str::to_owned).collect()
}
