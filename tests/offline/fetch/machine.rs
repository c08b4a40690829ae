//! What the machine sets: proxies, the size of its disk. Each is tried in a process of its own, whose
//! environment it is.

use super::bytes;
use super::server::{Reply, Server};
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use support::fetching::{self, proxy};
use support::process::is_again;

/// The test that runs again in a process of its own.
const HOOK: &str =
    "fetch::machine::a_proxy_of_the_environment_is_taken_unless_the_host_is_excepted";

/// What became of a fetch in a process with that environment.
fn ask(url: &str, body: &[u8], directory: &Path, env: &[(&str, &str)]) -> String {
    fetching::ask(HOOK, url, body, directory, env)
}

#[test]
fn a_proxy_of_the_environment_is_taken_unless_the_host_is_excepted() {
    if is_again() {
        return fetching::fetches_with_its_environment();
    }
    let body = bytes(31, 300_000);
    let served = body.clone();
    let server = Server::start(move |request, _| Reply::honest(&served, "\"a\"", request));
    let url = format!("{}/thing", server.url);
    let (address, log) = proxy();
    let (knows, guesses) = (
        format!("http://user:secret@{address}"),
        format!("http://user:sesame@{address}"),
    );
    let fetch = |env: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        ask(&url, &body, dir.path(), env)
    };
    assert_eq!(fetch(&[("HTTP_PROXY", &knows)]), "well, 300000 bytes came");
    assert_eq!(
        log.lock().unwrap().as_slice(),
        [format!("GET {url} HTTP/1.1")]
    );
    let wrong = fetch(&[("HTTP_PROXY", &guesses)]);
    assert!(
        wrong.contains("answers 407") && !wrong.contains("sesame"),
        "{wrong}"
    );
    assert_eq!(log.lock().unwrap().len(), 2);
    let past = fetch(&[("HTTP_PROXY", &guesses), ("NO_PROXY", "127.0.0.1")]);
    assert_eq!(past, "well, 300000 bytes came");
    assert_eq!(log.lock().unwrap().len(), 2);
}

/// A small file system for root, else a limit on the size of files, which the kernel reports
/// otherwise and which means the same.
#[test]
fn a_full_disk_is_named_and_what_came_is_gone_on_with() {
    let body = bytes(33, 6 << 20);
    let served = body.clone();
    let server = Server::start(move |request, _| Reply::honest(&served, "\"a\"", request));
    let url = format!("{}/thing", server.url);
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().to_str().unwrap();
    let mount = |options: &str| {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none", disk]);
        rustix::process::geteuid().is_root() && mount.status().is_ok_and(|s| s.success())
    };
    let small = mount("size=3m");
    let limit = (3 << 20).to_string();
    let limits: &[(&str, &str)] = if small {
        &[]
    } else {
        &[("FETCH_LIMIT", &limit)]
    };
    let full = ask(&url, &body, dir.path(), limits);
    if small {
        assert!(mount("remount,size=20m"));
    }
    let then = ask(&url, &body, dir.path(), &[]);
    let mut content = Vec::new();
    if let Ok(mut file) = std::fs::File::open(dir.path().join("thing")) {
        file.read_to_end(&mut content).unwrap();
    }
    if small {
        assert!(Command::new("umount").arg(disk).status().unwrap().success());
    }
    let kept: u64 = full
        .strip_prefix("full, ")
        .and_then(|rest| rest.strip_suffix(" kept"))
        .unwrap_or_else(|| panic!("{full}"))
        .parse()
        .unwrap();
    assert!(kept > 2 << 20 && kept <= 3 << 20, "{kept}");
    assert_eq!(
        then,
        format!("well, {} bytes came", body.len() as u64 - kept)
    );
    assert!(content == body);
    let asked: Vec<_> = server.log().iter().map(|s| s.range).collect();
    assert_eq!(asked, [None, Some(usize::try_from(kept).unwrap())]);
}
