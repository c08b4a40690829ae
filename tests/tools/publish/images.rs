//! Single images: what is sent, what other programs read of it, what is resumed.

use super::proxy::{Act, Proxy};
use super::{Kind, Sandbox, Server, answer, layout, refusal, skopeo};
use std::process::{Command, Stdio};

#[test]
fn what_is_pushed_is_read_by_skopeo_and_sent_once() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let image = layout(server.dir.path(), 1);
    let source = format!("oci:{}:v1", image.display());
    let place = format!("{}/team/app:v1", server.host);
    let first = answer(&sandbox, &["push", &source, &place]);
    assert_eq!(first["blobs"]["sent"], 3);
    let again = answer(&sandbox, &["push", &source, &place]);
    assert_eq!(again["blobs"]["existing"], 3);
    assert_eq!(again["blobs"]["bytes"], 0);
    // Another repository of the registry lends what was pushed before.
    let other = format!("{}/team/other:v1", server.host);
    let lent = answer(&sandbox, &["push", &source, &other]);
    assert_eq!(lent["blobs"]["mounted"], 3, "{lent}");

    let copy = server.dir.path().join("copy");
    for place in [&place, &other] {
        let target = format!("oci:{}:v1", copy.display());
        let from = format!("docker://{place}");
        skopeo(&[
            "copy",
            "--src-tls-verify=false",
            "--preserve-digests",
            &from,
            &target,
        ]);
        let own = first["digest"].as_str().unwrap().replace("sha256:", "");
        assert!(copy.join("blobs/sha256").join(own).is_file());
        std::fs::remove_dir_all(&copy).unwrap();
    }
}

#[test]
fn a_blob_that_a_registry_misses_for_a_moment_is_no_error() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let image = layout(server.dir.path(), 5);
    // As docker-registry answers while another client pushes the same blob.
    let left = std::sync::Mutex::new(2);
    let proxy = Proxy::start(&server.host, move |request| {
        let mut left = left.lock().unwrap();
        if request.method != "PUT" || !request.path.contains("/manifests/") || *left == 0 {
            return Act::Pass;
        }
        *left -= 1;
        let body = r#"{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown"}]}"#;
        Act::Answer("400 Bad Request".to_owned(), body.to_owned())
    });
    let source = format!("oci:{}:v1", image.display());
    let place = format!("{}/app:v1", proxy.host);
    answer(&sandbox, &["push", &source, &place]);
    assert_eq!(
        answer(&sandbox, &["push", &source, &place])["blobs"]["existing"],
        3
    );
}

#[test]
fn an_archive_and_an_image_of_the_store_are_pushed_as_they_are() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let image = layout(server.dir.path(), 2);
    let tar = Command::new("tar")
        .args(["-cf", "archive.tar", "-C"])
        .arg(&image)
        .arg(".")
        .current_dir(sandbox.path(""))
        .status();
    assert!(tar.unwrap().success());
    let place = |name: &str| format!("{}/{name}:v1", server.host);
    let one = answer(
        &sandbox,
        &["push", "oci-archive:archive.tar", &place("one")],
    );
    assert_eq!(one["blobs"]["sent"], 3);
    answer(
        &sandbox,
        &["pull", &place("one"), "--platform", "linux/amd64"],
    );
    let two = answer(&sandbox, &["push", &place("one"), &place("two")]);
    assert_eq!(two["digest"], one["digest"]);
    let run = sandbox.run(&["--json", "push", "nothing:1", &place("three")]);
    refusal(&run, 2, "SF0921");
}

#[test]
fn what_skopeo_pushes_is_pulled_once_into_a_layout_that_umoci_unpacks() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let image = layout(server.dir.path(), 3);
    let place = format!("{}/app:v1", server.host);
    skopeo(&[
        "copy",
        "--dest-tls-verify=false",
        &format!("oci:{}:v1", image.display()),
        &format!("docker://{place}"),
    ]);
    let args = ["pull", &place, "-o", "oci:out", "--platform", "linux/amd64"];
    let first = answer(&sandbox, &args);
    assert_eq!(first["bytes"]["fetched"], first["size"]);
    let again = answer(&sandbox, &args);
    assert_eq!(again["bytes"]["fetched"], 0);
    assert_eq!(again["bytes"]["kept"], first["size"]);
    let unpacked = Command::new("umoci")
        .args(["unpack", "--rootless", "--image", "out:v1", "bundle"])
        .current_dir(sandbox.path(""))
        .output()
        .unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
    assert!(sandbox.path("bundle/rootfs/large").is_file());
}

#[test]
fn a_pull_that_is_killed_goes_on_where_it_ended() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let image = layout(server.dir.path(), 4);
    let source = format!("oci:{}:v1", image.display());
    let place = format!("{}/app:v1", server.host);
    let size = answer(&sandbox, &["push", &source, &place])["size"]
        .as_u64()
        .unwrap();
    let mut killed = sandbox
        .command()
        .args([
            "pull",
            &place,
            "--platform",
            "linux/amd64",
            "--limit-rate",
            "300kB",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let parts = sandbox.path("store/parts");
    let arrived = || -> u64 {
        let files = std::fs::read_dir(&parts).into_iter().flatten().flatten();
        files.map(|f| f.metadata().map_or(0, |m| m.len())).sum()
    };
    while arrived() < size / 2 {
        assert!(killed.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let kept = arrived();
    let rest = answer(&sandbox, &["pull", &place, "--platform", "linux/amd64"]);
    let fetched = rest["bytes"]["fetched"].as_u64().unwrap();
    assert!(
        fetched <= size - kept,
        "{fetched} of {size}, {kept} were there"
    );
    assert_eq!(std::fs::read_dir(&parts).unwrap().count(), 0);
    let verified = sandbox.run(&["cache", "verify"]);
    assert_eq!(verified.code, 0, "{}", verified.stderr);
}

#[test]
fn the_image_before_stays_under_a_name_of_its_own() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let place = format!("{}/app:v1", server.host);
    let mut digests = Vec::new();
    for seed in 6..10 {
        let image = layout(server.dir.path(), seed);
        let source = format!("oci:{}:v1", image.display());
        digests.push(answer(&sandbox, &["push", &source, &place])["digest"].clone());
        answer(
            &sandbox,
            &["pull", &place, "--platform", "linux/amd64", "--keep", "2"],
        );
    }
    let index = std::fs::read(sandbox.path("store/index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    let named = |name: &str| {
        let entries = index["manifests"].as_array().unwrap();
        let own = entries
            .iter()
            .find(|e| e["annotations"]["org.opencontainers.image.ref.name"] == name);
        own.map(|e| e["digest"].clone())
    };
    assert_eq!(named(&place).as_ref(), digests.get(3));
    assert_eq!(named(&format!("{place}~1")).as_ref(), digests.get(2));
    assert_eq!(named(&format!("{place}~2")).as_ref(), digests.get(1));
    assert_eq!(named(&format!("{place}~3")), None);
}
