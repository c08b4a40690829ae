//! The store and its exports before other programs.

use stackforge_types::Digest;
use std::path::Path;
use std::process::Command;
use support::stored::{image, open};

fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?}: {error}");
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn other_programs_read_the_images_of_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store_dir = dir.path().join("store");
    image(&open(&store_dir), "demo:latest", "etc/motd", b"hello");
    for (layout, name) in [("oci-archive", "cache.tar"), ("oci", "cache")] {
        let to = dir.path().join(name);
        let slash = if layout == "oci" { "/" } else { "" };
        let shown = format!("{}{slash}", to.display());
        let sign = |bytes: &[u8]| Digest::of(bytes).to_string().into_bytes();
        let exported = open(&store_dir).export(None, Some(&sign), Path::new(&shown), &|_, _| true);
        assert_eq!(exported.unwrap().images, 1);
        run(
            "skopeo",
            &["inspect", &format!("{layout}:{}:demo:latest", to.display())],
        );
    }

    let path = store_dir.to_str().unwrap();
    let inspected = run("skopeo", &["inspect", &format!("oci:{path}:demo:latest")]);
    assert!(
        inspected.contains("\"Architecture\": \"amd64\""),
        "{inspected}"
    );
    let copy = dir.path().join("copy");
    let to = format!("oci:{}:c", copy.display());
    run(
        "skopeo",
        &["copy", "-q", &format!("oci:{path}:demo:latest"), &to],
    );
    let bundle = dir.path().join("bundle");
    let unpacked = bundle.to_str().unwrap();
    // umoci takes no colon in a tag, and copies of the tag are how it names one.
    open(&store_dir)
        .tag("demo", &open(&store_dir).refs().unwrap()[0].digest)
        .unwrap();
    run(
        "umoci",
        &[
            "unpack",
            "--rootless",
            "--image",
            &format!("{path}:demo"),
            unpacked,
        ],
    );
    assert_eq!(
        std::fs::read(bundle.join("rootfs/etc/motd")).unwrap(),
        b"hello"
    );

    // And what they write there is an image of the store.
    run(
        "umoci",
        &["tag", "--image", &format!("{path}:demo"), "theirs"],
    );
    let refs = open(&store_dir).refs().unwrap();
    assert!(refs.iter().any(|r| r.name.as_deref() == Some("theirs")));
}
