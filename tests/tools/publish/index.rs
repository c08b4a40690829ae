//! Indexes of variants: many writers, and what ordinary clients take.

use super::{Kind, Sandbox, Server, answer, enter, image_spec, layout, refusal, skopeo};
use serde_json::Value;
use std::process::Stdio;

fn names(index: &Value) -> Vec<&str> {
    let entries = index["manifests"].as_array().unwrap();
    let named = entries
        .iter()
        .map(|e| &e["annotations"]["io.stackforge.variant"]);
    named.map(|name| name.as_str().unwrap()).collect()
}

/// The judges refuse what is wrong, and a layout that is pulled passes.
#[test]
fn what_is_pulled_follows_the_specification() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let place = format!("{}/app:1", server.host);
    enter(&sandbox, &server, &place, (71, "one", "sm=90"));
    let args = ["pull", &place, "--variant", "one", "-o", "oci:pulled"];
    answer(&sandbox, &args);
    assert_eq!(image_spec::wrong_in(&sandbox.path("pulled")), [""; 0]);
    let mut index = index(&place);
    index["manifests"][0]["digest"] = "short".into();
    index["schemaVersion"] = 1.into();
    assert_eq!(image_spec::wrong("image-index", &index).len(), 2);
}

fn index(place: &str) -> Value {
    let from = format!("docker://{place}");
    let raw = skopeo(&["inspect", "--tls-verify=false", "--raw", &from]);
    serde_json::from_str(&raw).unwrap()
}

#[test]
fn of_sixteen_publishers_at_once_no_variant_is_lost() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let image = layout(server.dir.path(), 31);
    let source = format!("oci:{}:v1", image.display());
    let place = format!("{}/app:1", server.host);
    let publish = |n: usize| {
        sandbox
            .command()
            .args(["push", &source, &place, "--index", "--fact", "sm=90"])
            .args(["--variant", &format!("v{n:02}")])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let all: Vec<_> = (0..16).map(publish).collect();
    for child in all {
        let out = child.wait_with_output().unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
    let index = index(&place);
    assert_eq!(image_spec::wrong("image-index", &index), [""; 0]);
    let expected: Vec<String> = (0..16).map(|n| format!("v{n:02}")).collect();
    assert_eq!(names(&index), expected);
}

#[test]
fn a_variant_replaces_itself_and_leaves_what_others_wrote() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let place = format!("{}/app:1", server.host);
    let push = |seed, variant, fact| enter(&sandbox, &server, &place, (seed, variant, fact));
    push(32, "one", "sm=90");
    push(33, "two", "sm=80,90");
    let third = push(34, "one", "sm=100");
    let index = index(&place);
    assert_eq!(names(&index), ["two", "one"]);
    assert_eq!(index["manifests"][1]["digest"], third["digest"]);
    assert_eq!(
        index["manifests"][1]["annotations"]["io.stackforge.sm"],
        "sm_100"
    );
    // Its own tag leads to the variant alone.
    let alone = super::index::index(&format!("{place}-one"));
    assert_eq!(names(&alone), ["one"]);

    // What is an image stays one.
    let image = layout(server.dir.path(), 35);
    let source = format!("oci:{}:v1", image.display());
    let single = format!("{}/app:single", server.host);
    answer(&sandbox, &["push", &source, &single]);
    let run = sandbox.run(&[
        "--json",
        "push",
        &source,
        &single,
        "--index",
        "--variant",
        "x",
    ]);
    refusal(&run, 1, "SF1001");
    let run = sandbox.run(&[
        "--json",
        "push",
        &source,
        &place,
        "--index",
        "--variant",
        "a/b",
    ]);
    refusal(&run, 2, "SF0017");
}

#[test]
fn skopeo_takes_the_first_of_its_platform() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let place = format!("{}/app:1", server.host);
    let mut digests = Vec::new();
    for (seed, variant, fact) in [
        (36, "cpu", "stack=app"),
        (37, "hopper", "sm=90"),
        (38, "many", "sm=80,90,100"),
    ] {
        let entered = enter(&sandbox, &server, &place, (seed, variant, fact));
        digests.push(entered["digest"].as_str().unwrap().to_owned());
    }
    let copy = server.dir.path().join("copy");
    skopeo(&[
        "copy",
        "--src-tls-verify=false",
        "--preserve-digests",
        &format!("docker://{place}"),
        &format!("oci:{}:v1", copy.display()),
    ]);
    let index = std::fs::read(copy.join("index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    assert_eq!(index["manifests"][0]["digest"], digests[2].as_str());
}
