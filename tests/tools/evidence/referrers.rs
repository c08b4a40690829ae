//! A registry with the API for referrers: Debian's has none, so one in front of it lists what lies in
//! its store, as the specification has it.

use super::proxy::{Act, Proxy};
use super::server::{Kind, Server, skopeo};
use super::{REPORTS, document, labels, made, tiny};
use serde_json::{Value, json};
use std::path::Path;

/// Manifests of the repository with that subject.
fn referrers(store: &Path, subject: &str) -> Value {
    let root = store.join("docker/registry/v2");
    let revisions = root.join("repositories/team/app/_manifests/revisions/sha256");
    let mut found = Vec::new();
    for revision in std::fs::read_dir(revisions).unwrap() {
        let hex = revision.unwrap().file_name().into_string().unwrap();
        let blob = root.join(format!("blobs/sha256/{}/{hex}/data", &hex[..2]));
        let bytes = std::fs::read(blob).unwrap();
        let manifest: Value = serde_json::from_slice(&bytes).unwrap();
        if manifest["subject"]["digest"] == subject {
            found.push(json!({
                "mediaType": manifest["mediaType"], "artifactType": manifest["artifactType"],
                "digest": format!("sha256:{hex}"), "size": bytes.len(),
                "annotations": manifest.get("annotations").unwrap_or(&json!({})),
            }));
        }
    }
    json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": found,
    })
}

#[test]
fn a_registry_that_lists_referrers_needs_no_tag_for_them() {
    let server = Server::start(Kind::Open);
    let sandbox = tiny();
    let direct = format!("{}/team/app:v1", server.host);
    let image = made::push(server.dir.path(), &direct, &labels(&sandbox), &REPORTS);
    let (store, subject) = (server.dir.path().join("store"), image.to_string());
    let front = Proxy::start(&server.host, move |request| {
        let list = request.path.split_once("/referrers/");
        match (request.method.as_str(), list) {
            ("GET", Some((_, of))) => Act::Answer(
                "200 OK\r\nContent-Type: application/vnd.oci.image.index.v1+json".to_owned(),
                referrers(&store, of.split('?').next().unwrap()).to_string(),
            ),
            ("PUT", _) if request.path.contains("/manifests/sha256:") => {
                Act::Adding(format!("OCI-Subject: {subject}"))
            }
            _ => Act::Pass,
        }
    });
    let name = format!("{}/team/app:v1", front.host);
    for _ in 0..2 {
        let run = sandbox.run(&["attach", &name, "--stack", "tiny.yaml"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let listed = document(&sandbox.run(&["inspect", &name, "--json"]));
        let one = &listed["inspection"]["images"][0];
        assert_eq!(one["digest"], image.to_string());
        assert_eq!(one["evidence"].as_array().unwrap().len(), 5, "{one:#}");
    }
    let printed = sandbox.run(&["inspect", &name, "--print", "validation"]);
    assert_eq!(printed.stdout, REPORTS[1].1, "{}", printed.stderr);
    let place = format!("docker://{}/team/app", server.host);
    let tags = skopeo(&["list-tags", "--tls-verify=false", &place]);
    let tags: Value = serde_json::from_str(&tags).unwrap();
    assert_eq!(tags["Tags"], json!(["v1"]));
}
