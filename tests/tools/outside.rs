//! What images and registries that mean harm, kills and other users do, seen from outside: commands go in,
//! files and messages come out, and nothing is known of what lies in a store or beside a directory. So these
//! tests judge any version of the program.

use serde_json::json;
use stackforge_types::Digest;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::Sandbox;
use support::kill::{self, End};
use support::layers::Member::{self, File, Program, SetUid};
use support::layers::image;
use support::proxy::{Act, Proxy};
use support::server::{Kind, Server};

fn well(sandbox: &Sandbox, args: &[&str]) {
    let run = sandbox.run(args);
    assert_eq!(run.code, 0, "{args:?}: {}{}", run.stdout, run.stderr);
}

/// Pushes images of one file, `version`, and says where they are.
fn pushed<const N: usize>(
    sandbox: &Sandbox,
    server: &Server,
    names: [&'static str; N],
) -> [String; N] {
    names.map(|name| {
        let layer: &[Member] = &[File("version", name)];
        image(&sandbox.path(&format!("images/{name}")), &[layer]);
        let place = format!("{}/app:{name}", server.host);
        well(sandbox, &["push", &format!("oci:images/{name}:v1"), &place]);
        place
    })
}

fn pull(place: &str) -> [&str; 6] {
    [
        "pull",
        place,
        "--platform",
        "linux/amd64",
        "-o",
        "rootfs:root",
    ]
}

/// Runs a command up to a system call, or to its end.
fn run(sandbox: &Sandbox, args: &[&str], at: Option<usize>) -> End {
    let mut command = sandbox.command();
    command.args(args);
    kill::run(command.stdout(Stdio::null()).stderr(Stdio::null()), at)
}

fn pulled(sandbox: &Sandbox, place: &str, at: Option<usize>) -> End {
    run(sandbox, &pull(place), at)
}

fn version(sandbox: &Sandbox, root: &str) -> Option<String> {
    std::fs::read_to_string(sandbox.path(root).join("version")).ok()
}

#[test]
fn a_rollback_after_a_kill_goes_back() {
    let server = Server::start(Kind::Open);
    let base = Sandbox::new();
    let [before, after] = pushed(&base, &server, ["before", "after"]);
    well(&base, &pull(&before));
    let killed = |at: Option<usize>| {
        let copy = Sandbox::new();
        let status = Command::new("cp")
            .arg("-a")
            .arg(base.path("."))
            .arg(copy.path("."))
            .status();
        assert!(status.unwrap().success());
        let end = pulled(&copy, &after, at);
        (copy, end)
    };
    let (_, end) = killed(None);
    let End::Ended(0, calls) = end else {
        panic!("{end:?}");
    };
    // The calls about the exchange of both directories, and those after it.
    let first = calls.iter().position(|call| *call == "renameat2").unwrap();
    let points: Vec<usize> = (first..=calls.len()).take(16).collect();
    for at in points {
        let (copy, end) = killed(Some(at));
        assert!(matches!(end, End::Killed(_)), "call {at}: {end:?}");
        for (place, wanted) in [(&before, "before"), (&after, "after"), (&before, "before")] {
            well(&copy, &pull(place));
            let current = version(&copy, "root");
            assert_eq!(
                current.as_deref(),
                Some(wanted),
                "killed at call {at}, {end:?}"
            );
        }
    }
}

#[test]
fn a_first_pull_that_was_killed_is_not_in_the_way() {
    let server = Server::start(Kind::Open);
    let base = Sandbox::new();
    let [one] = pushed(&base, &server, ["one"]);
    let killed = |at: Option<usize>| {
        let sandbox = Sandbox::new();
        let end = pulled(&sandbox, &one, at);
        (sandbox, end)
    };
    let (_, end) = killed(None);
    let End::Ended(0, calls) = end else {
        panic!("{end:?}");
    };
    let last = calls.len();
    for at in last.saturating_sub(12)..=last {
        let (sandbox, _) = killed(Some(at));
        well(&sandbox, &pull(&one));
        assert_eq!(
            version(&sandbox, "root").as_deref(),
            Some("one"),
            "call {at}"
        );
        let mut names: Vec<String> = std::fs::read_dir(sandbox.path("."))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name.contains("new-") || name.contains("tmp"))
            .collect();
        names.sort();
        assert_eq!(names, [""; 0], "left beside it, killed at call {at}");
    }
}

#[test]
fn directories_of_a_user_beside_it_stay() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let [one, two] = pushed(&sandbox, &server, ["one", "two"]);
    let own = ["root~1/file", "root~2/file", ".root.new-project/src/main"];
    for name in own {
        sandbox.write(name, "precious");
    }
    // Whether they are refused is not the question here.
    for place in [&one, &two, &one] {
        sandbox.run(&pull(place));
    }
    for name in own {
        let content = std::fs::read_to_string(sandbox.path(name));
        assert_eq!(content.ok().as_deref(), Some("precious"), "{name}");
    }
}

/// Sizes whose sum is small for a counter of 64 bits.
#[test]
fn sizes_that_no_layer_has_are_refused_before_a_byte_is_fetched() {
    let config = json!({ "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers",
        "diff_ids": [Digest::of(b"one"), Digest::of(b"two")] } });
    let config = config.to_string();
    let layer = |name: &[u8]| {
        json!({ "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": Digest::of(name), "size": u64::MAX - (1 << 20) + 1 })
    };
    let manifest = json!({ "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": Digest::of(config.as_bytes()), "size": config.len() },
        "layers": [layer(b"one"), layer(b"two")] });
    let manifest = manifest.to_string();
    let (config_path, digest) = (
        format!("/v2/app/blobs/{}", Digest::of(config.as_bytes())),
        Digest::of(manifest.as_bytes()),
    );
    let registry = Proxy::start("127.0.0.1:9", move |request| {
        let (kind, body) = match request.path.as_str() {
            "/v2/" => ("application/json", "{}".to_owned()),
            path if path.starts_with("/v2/app/manifests/") => (
                "application/vnd.oci.image.manifest.v1+json",
                manifest.clone(),
            ),
            path if path == config_path => ("application/octet-stream", config.clone()),
            // More than any test wants on its disk is not sent: it is seen that it was asked for.
            _ => ("application/octet-stream", "x".repeat(1 << 20)),
        };
        Act::Answer(
            format!("200 OK\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {digest}"),
            body,
        )
    });
    let sandbox = Sandbox::new();
    let place = format!("{}/app:v1", registry.host);
    let run = sandbox.run(&["pull", &place, "--platform", "linux/amd64", "-o", "oci:out"]);
    assert_ne!(run.code, 0, "{}{}", run.stdout, run.stderr);
    for name in [b"one", b"two"] {
        let blob = format!("blobs/{}", Digest::of(name));
        let asked = registry.requests();
        let asked = asked.iter().filter(|line| line.contains(&blob)).count();
        assert_eq!(asked, 0, "{}", run.stderr);
    }
    assert!(!sandbox.path("out").exists());
}

/// Files below `dir` with a set-uid bit that other users can come to: each folder on the way lets them through.
fn reachable(dir: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    if dir.metadata().unwrap().permissions().mode() & 0o001 == 0 {
        return;
    }
    for entry in entries {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_dir() {
            reachable(&path, out);
        } else if metadata.is_file() && metadata.permissions().mode() & 0o4001 == 0o4001 {
            out.push(path);
        }
    }
}

#[test]
fn a_set_uid_program_of_an_image_lies_where_no_other_user_comes() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let layer: &[Member] = &[SetUid("usr/bin/su", b"#!/bin/sh\n"), File("version", "1")];
    image(&sandbox.path("image"), &[layer]);
    // It has no Python: what is of interest is where it was unpacked to.
    let run = sandbox.run(&["validate", "oci:image:v1"]);
    assert_ne!(run.code, 0, "{}", run.stdout);
    let mut found = Vec::new();
    reachable(&sandbox.path("store"), &mut found);
    assert!(found.is_empty(), "{found:?}");

    // Until the directory has its name, too.
    let place = format!("{}/app:v1", server.host);
    well(&sandbox, &["push", "oci:image:v1", &place]);
    // With the layers in the store already, as in the pull that is killed.
    well(&sandbox, &pull(&place));
    std::fs::remove_dir_all(sandbox.path("root")).unwrap();
    let End::Ended(0, calls) = pulled(&sandbox, &place, None) else {
        panic!("the pull fails");
    };
    std::fs::remove_dir_all(sandbox.path("root")).unwrap();
    // All files are written when they are synced. The record is written beside that, so the calls
    // about it come before or after; none of them gives the directory its name.
    let synced = calls.iter().position(|call| *call == "syncfs").unwrap();
    let end = pulled(&sandbox, &place, Some(synced + 1));
    assert!(matches!(end, End::Killed(_)), "{end:?}");
    let entries = std::fs::read_dir(sandbox.path(".")).unwrap();
    let hidden: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().contains(".new-"))
        .map(|entry| entry.path())
        .collect();
    assert_eq!(hidden.len(), 1, "{hidden:?}");
    reachable(&hidden[0], &mut found);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn unpacked_layers_are_on_disk_before_they_have_a_name() {
    let sandbox = Sandbox::new();
    let layer: &[Member] = &[File("version", "1"), File("etc/more", "2")];
    image(&sandbox.path("image"), &[layer]);
    let End::Ended(_, calls) = run(&sandbox, &["validate", "oci:image:v1"], None) else {
        panic!("it was killed");
    };
    assert!(calls.contains(&"syncfs"), "{calls:?}");
}

const ASKS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
static int asked(long answer) { return answer < 0 ? errno : 0; }
int main(void) {
    char space[64] = "";
    readlink("/proc/self/ns/user", space, 63);
    int uring = asked(syscall(SYS_io_uring_setup, 1, 0)), perf = asked(syscall(SYS_perf_event_open, 0, 0, 0, 0, 0));
    int vsock = asked(socket(AF_VSOCK, SOCK_STREAM, 0)), user = asked(unshare(CLONE_NEWUSER));
    fprintf(stderr, "%s io_uring %d perf %d vsock %d user %d\n", space, uring, perf, vsock, user);
    return 3;
}
"#;

/// What the kernel answers a program of an image: EPERM, as below Docker's profile.
#[test]
fn a_program_of_an_image_may_ask_no_more_than_below_dockers_profile() {
    let sandbox = Sandbox::new();
    sandbox.write("asks.c", ASKS);
    let made = Command::new("cc")
        .args(["-static", "-o"])
        .args([sandbox.path("asks"), sandbox.path("asks.c")])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let bytes: &'static [u8] = std::fs::read(sandbox.path("asks")).unwrap().leak();
    let layer: &[Member] = &[Program("usr/bin/python3", bytes), Member::Folder("proc")];
    image(&sandbox.path("image"), &[layer]);
    let run = sandbox.run(&["validate", "oci:image:v1"]);
    let refused = "io_uring 1 perf 1 vsock 1 user 1";
    assert!(run.stderr.contains(refused), "{}{}", run.stdout, run.stderr);
    let here = std::fs::read_link("/proc/self/ns/user").unwrap();
    assert!(run.stderr.contains("user:["), "{}", run.stderr);
    assert!(
        !run.stderr.contains(&here.display().to_string()),
        "{}",
        run.stderr
    );
}

#[test]
fn a_refresh_token_stays_with_its_server() {
    let elsewhere = Proxy::start("127.0.0.1:9", |_| {
        Act::Answer(
            "200 OK".to_owned(),
            r#"{"token":"t","access_token":"t"}"#.to_owned(),
        )
    });
    let to = elsewhere.host.clone();
    let front = Proxy::start("127.0.0.1:9", move |request| {
        let host = request.header("host").unwrap();
        let head = match request.path.as_str() {
            "/token" => format!("307 Elsewhere\r\nLocation: http://{to}/token"),
            _ => format!(
                "401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"test\""
            ),
        };
        Act::Answer(head, "{}".to_owned())
    });
    let sandbox = Sandbox::new();
    let login = json!({ "auths": { front.host.as_str(): { "identitytoken": "refresh" } } });
    sandbox.write("docker/config.json", &login.to_string());
    let config = sandbox.path("docker").display().to_string();
    let place = format!("{}/app:v1", front.host);
    let args = ["pull", &place, "--platform", "linux/amd64", "-o", "oci:out"];
    let run = sandbox.run_with(&args, &[("DOCKER_CONFIG", &config)]);
    assert_ne!(run.code, 0, "{}", run.stdout);
    assert!(
        front.requests().iter().any(|line| line == "POST /token"),
        "{:?}",
        front.requests()
    );
    assert_eq!(elsewhere.requests(), [""; 0], "{}", run.stderr);
}

#[test]
fn a_repair_throws_no_names_away() {
    let sandbox = Sandbox::new();
    image(&sandbox.path("image"), &[&[File("version", "1")]]);
    well(&sandbox, &["cache", "import", "image"]);
    let index = sandbox.path("store/index.json");
    let names = std::fs::read_to_string(&index).unwrap();
    let torn = &names[..names.len() - 2];
    std::fs::write(&index, torn).unwrap();
    sandbox.run(&["cache", "verify", "--repair"]);
    let files = std::fs::read_dir(sandbox.path("store")).unwrap();
    let kept = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file());
    let kept = kept.filter_map(|path| std::fs::read_to_string(path).ok());
    assert!(
        kept.into_iter().any(|text| text == torn),
        "the torn index is gone"
    );
}

#[test]
fn a_good_copy_heals_a_damaged_blob() {
    let sandbox = Sandbox::new();
    let digest = image(&sandbox.path("image"), &[&[File("version", "1")]]);
    well(&sandbox, &["cache", "import", "image"]);
    let blob = sandbox.path("store/blobs/sha256").join(digest[0].hex());
    let good = std::fs::read(&blob).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 0xff;
    std::fs::set_permissions(&blob, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(&blob, bad).unwrap();
    well(&sandbox, &["cache", "import", "image"]);
    assert!(std::fs::read(&blob).unwrap() == good);
}
