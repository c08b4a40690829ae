//! Root file systems of Debian's suites with their engines, made by mmdebstrap and kept below the user's
//! cache directory. They are only read; a list of packages that changed makes them anew.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

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
    remove_leftovers(parent, suite);
    let temp = |what: &str| {
        let mut dir = tempfile::Builder::new();
        // Not for root alone: engines without root are started in it.
        dir.permissions(std::fs::Permissions::from_mode(0o755));
        let name = format!("{suite}.{what}-");
        dir.prefix(&name);
        dir.tempdir_in(parent).map_err(|e| problem("the cache", &e))
    };
    // A mirror may have no answer for a moment.
    let new = match make(suite, &mirror, temp("new")?) {
        Ok(new) => new,
        Err(_) => make(suite, &mirror, temp("new")?)?,
    };
    if place.exists() {
        let old = temp("old")?.keep();
        std::fs::rename(&place, &old).map_err(|e| problem("the cache", &e))?;
        let _ = std::fs::remove_dir_all(&old);
    }
    std::fs::rename(new.keep(), &place).map_err(|e| problem("the cache", &e))?;
    std::fs::write(&list, recipe).map_err(|e| problem("the cache", &e))?;
    Ok(place)
}

/// Removes what killed runs left of a suite, as far as that is possible: something may still be mounted there.
fn remove_leftovers(parent: &Path, suite: &str) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let left = ["new", "old"].map(|what| format!("{suite}.{what}"));
        if left.iter().any(|start| name.starts_with(start)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes a root file system in an empty directory, which is removed where that fails.
fn make(suite: &str, mirror: &str, to: TempDir) -> Result<TempDir, String> {
    // What it mounts below its directory ends with it, also where this test is killed.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid"]);
    command.args(["--fork", "--kill-child", "--mount-proc", "mmdebstrap"]);
    command.args(["--mode=root", "--format=directory", "--variant=essential"]);
    // A mirror that stands still is good enough here; its signature is verified all the same.
    command.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
    command.arg("--dpkgopt=force-unsafe-io");
    for folder in ["man", "doc", "locale"] {
        command.arg(format!("--dpkgopt=path-exclude=/usr/share/{folder}/*"));
    }
    let out = command
        .arg(format!("--include={PACKAGES}"))
        .args([suite.as_ref(), to.path().as_os_str()])
        .arg(format!("deb {mirror} {suite} main"))
        .output()
        .map_err(|e| format!("mmdebstrap: {e}; `scripts/setup.sh tests` installs it"))?;
    if out.status.success() {
        return Ok(to);
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
