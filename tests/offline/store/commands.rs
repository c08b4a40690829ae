//! What `stackforge cache` says and does.

use super::{bytes, damage, image, open};
use stackforge_image::store::{Action, Store};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, SystemTime};
use support::{Sandbox, left_out};

fn show(sandbox: &Sandbox, args: &[&str]) -> String {
    let run = sandbox.run(args);
    let mut text = format!("$ stackforge {}\n{}", args.join(" "), run.stdout);
    if !run.stderr.is_empty() {
        text.push_str(&format!("--- stderr\n{}", run.stderr));
    }
    text.push_str(&format!("--- exit {}\n", run.code));
    text
}

fn used_days_ago(store: &Store, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 86_400 + 60);
    for entry in store.list().unwrap().entries {
        let file = std::fs::File::open(&entry.path).unwrap();
        file.set_modified(then).unwrap();
    }
}

fn filled(sandbox: &Sandbox) -> stackforge_types::Digest {
    let store = open(&sandbox.path("store"));
    let output = store.put(&bytes(3, 250_000)[..], None).unwrap();
    let wheel = store.put(&bytes(1, 1_700_000)[..], None).unwrap();
    store
        .named(&wheel.digest, "thing-1.0-py3-none-any.whl")
        .unwrap();
    let action = Action {
        step: "layer:thing".into(),
        outputs: [("layer".to_owned(), output.digest)].into(),
        seconds: 1.0,
        ..Action::default()
    };
    let key = stackforge_types::Digest::of(b"key");
    store.record(&key, &action).unwrap();
    used_days_ago(&store, 9);
    image(&store, "demo:latest", "etc/motd", b"hello");
    let deb = store.put(&bytes(2, 90_000)[..], None).unwrap();
    store.named(&deb.digest, "libgomp1_14_amd64.deb").unwrap();
    wheel.digest
}

#[test]
fn what_is_kept_is_listed_and_collected() {
    let sandbox = Sandbox::new();
    let mut text = show(&sandbox, &["cache", "ls"]);
    filled(&sandbox);
    for args in [
        &["cache", "ls"][..],
        &["cache", "ls", "--all"],
        &["cache", "verify"],
        &["cache", "gc", "--keep-days", "5", "--dry-run"],
        &["cache", "gc", "--max-size", "1MB"],
        &["cache", "gc", "--max-size", "1kB"],
        &["cache", "gc", "--max-size", "0", "--all"],
        &["cache", "gc", "--max-size", "much"],
        &["cache", "ls"],
    ] {
        text.push('\n');
        text.push_str(&show(&sandbox, args));
    }
    insta::assert_snapshot!("cache", text);
}

#[test]
fn what_is_damaged_is_named_and_repaired() {
    let sandbox = Sandbox::new();
    let wheel = filled(&sandbox);
    let store = open(&sandbox.path("store"));
    damage(&store, &wheel);
    let manifest = store.refs().unwrap()[0].digest.clone();
    damage(&store, &manifest);
    let mut text = String::new();
    for args in [
        &["cache", "verify"][..],
        &["cache", "verify", "--repair"],
        &["cache", "verify"],
    ] {
        text.push_str(&show(&sandbox, args));
        text.push('\n');
    }
    insta::assert_snapshot!("damaged", text);
    assert!(store.blob(&wheel).is_none());
    // And can be had again.
    store.put(&bytes(1, 1_700_000)[..], Some(&wheel)).unwrap();
    assert_eq!(sandbox.run(&["cache", "verify"]).code, 0);
}

#[test]
fn documents_for_programs() {
    let sandbox = Sandbox::new();
    let wheel = filled(&sandbox);
    let document = |args: &[&str]| -> serde_json::Value {
        let run = sandbox.run(args);
        assert_eq!(run.code, 0, "{}", run.stderr);
        serde_json::from_str(&run.stdout).unwrap()
    };
    let listed = document(&["cache", "ls", "--json"]);
    assert_eq!(listed["images"][0]["name"], "demo:latest");
    let entries = listed["entries"].as_array().unwrap();
    let entry = entries.iter().find(|e| e["kind"] == "wheel").unwrap();
    assert_eq!(entry["digest"], wheel.to_string());
    assert_eq!(entry["size"], 1_700_000);
    assert_eq!(
        document(&["cache", "verify", "--json"])["blobs"],
        entries.len()
    );
    let exported = document(&["cache", "export", "cache.tar", "--json"]);
    assert_eq!(exported["images"], 1);
    let imported = document(&["cache", "import", "cache.tar", "--store", "other", "--json"]);
    assert_eq!(imported["blobs"], exported["blobs"]);
    assert_eq!(
        (&imported["actions"], &imported["untrusted"]),
        (&0.into(), &1.into())
    );

    // The steps come with a signature alone, and only with the right one.
    for key in ["team", "other"] {
        let run = sandbox.run(&["sign", "--generate-key", key]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    document(&[
        "cache",
        "export",
        "signed.tar",
        "--key",
        "team.key",
        "--json",
    ]);
    let import = ["cache", "import", "signed.tar", "--store", "third"];
    let run = sandbox.run(&[&import[..], &["--verify", "other.pub"]].concat());
    assert!(
        run.code == 1 && run.stderr.contains("SF0334"),
        "{}",
        run.stderr
    );
    let signed = document(&[&import[..], &["--verify", "team.pub", "--json"]].concat());
    assert_eq!(
        (&signed["actions"], &signed["untrusted"]),
        (&1.into(), &0.into())
    );

    let collected = document(&["cache", "gc", "--max-size", "1MB", "--json"]);
    assert_eq!(collected["removed"][0]["digest"], wheel.to_string());
}

#[test]
fn what_cannot_be_used_is_told_with_what_to_do() {
    let sandbox = Sandbox::new();
    sandbox.write("newer/store.json", "{\"version\": 99}");
    sandbox.write("other/file", "x");
    sandbox.write("compressed.tar", "\u{1f}\u{8b}");
    let mut text = String::new();
    for args in [
        &["cache", "ls", "--store", "newer"][..],
        &["cache", "import", "other"],
        &["cache", "import", "compressed.tar"],
        &["cache", "import", "missing"],
    ] {
        text.push_str(&show(&sandbox, args));
        text.push('\n');
    }
    insta::assert_snapshot!("unusable", text);
}

/// As root nothing is denied, so the store is on a file system that is mounted read-only; as
/// another user its mode will do.
#[test]
fn a_store_that_may_not_be_written_is_still_read() {
    let sandbox = Sandbox::new();
    filled(&sandbox);
    let path = sandbox.path("store");
    let root = rustix::process::geteuid().is_root();
    let mounted = root && {
        let mount = |args: &[&str]| {
            let done = Command::new("mount").args(args).arg(&path).status();
            done.is_ok_and(|s| s.success())
        };
        mount(&["--bind", path.to_str().unwrap()]) && mount(&["-o", "remount,bind,ro"])
    };
    if !root {
        for folder in ["tmp", "blobs/sha256", "locks"] {
            let mode = std::fs::Permissions::from_mode(0o555);
            std::fs::set_permissions(path.join(folder), mode).unwrap();
        }
    }
    let ls = sandbox.run(&["cache", "ls"]);
    let gc = sandbox.run(&["cache", "gc"]);
    if mounted {
        assert!(
            Command::new("umount")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
    }
    if root && !mounted {
        return left_out("a store that is read-only: this root may not mount");
    }
    assert_eq!(ls.code, 0, "{}", ls.stderr);
    assert_eq!(gc.code, 3);
    assert!(gc.stderr.contains("SF0320"), "{}", gc.stderr);
}
