//! Evidence about images: kept in Debian's docker-registry, signed and verified against openssl.

mod referrers;
mod signatures;

use bytes::Bytes;
use serde_json::{Value, json};
use server::{Kind, Server, skopeo};
use stackforge_transfer::registry::{Artifact, Keychain, Options, Registry, Repository, Target};
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::sync::Arc;
use support::made::{REPORTS, labels};
use support::{self, document, made, proxy, server, tiny};

fn digest(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}

/// Text without what is another one in each run.
fn plain(text: &str, server: &Server) -> String {
    let text = text.replace(&server.host, "[HOST]");
    let is_hex = |part: &str| part.len() >= 12 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let mut out = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        if is_hex(word) {
            out.push_str(&part.replace(word, "[HEX]"))
        } else {
            out.push_str(part)
        }
    }
    out
}

#[test]
fn what_is_attached_is_listed_and_comes_back() {
    let server = Server::start(Kind::Open);
    let sandbox = tiny();
    let name = format!("{}/team/app:v1", server.host);
    let image = made::push(server.dir.path(), &name, &labels(&sandbox), &REPORTS);

    let before = sandbox.run(&["inspect", &name]);
    assert_eq!(before.code, 0, "{}", before.stderr);
    assert!(before.stdout.contains("nothing is attached"));
    let run = sandbox.run(&["attach", &name, "--stack", "tiny.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    insta::assert_snapshot!("attached", plain(&run.stdout, &server));
    let run = sandbox.run(&["inspect", &name]);
    insta::assert_snapshot!("inspected", plain(&run.stdout, &server));

    // Once more is the same.
    let again = sandbox.run(&["attach", &name, "--stack", "tiny.yaml", "--json"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let listed = document(&sandbox.run(&["inspect", &name, "--json"]));
    let one = &listed["inspection"]["images"][0];
    assert_eq!(one["digest"], image.to_string());
    assert_eq!(one["evidence"].as_array().unwrap().len(), 5, "{one:#}");
    // The list is where programs without us look for it.
    let tags = skopeo(&[
        "list-tags",
        "--tls-verify=false",
        &format!("docker://{}/team/app", server.host),
    ]);
    assert!(
        tags.contains(&format!("\"sha256-{}\"", image.hex())),
        "{tags}"
    );

    for (path, text) in REPORTS {
        let kind = path.rsplit('/').next().unwrap().trim_end_matches(".json");
        let printed = sandbox.run(&["inspect", &name, "--print", kind]);
        assert_eq!(printed.stdout, text, "{}", printed.stderr);
    }
    let printed = sandbox.run(&["inspect", &name, "--print", "provenance"]);
    let statement = document(&printed);
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(statement["subject"][0]["digest"]["sha256"], image.hex());
    let definition = &statement["predicate"]["buildDefinition"];
    let lock = std::fs::read(sandbox.path("tiny.lock")).unwrap();
    let of_lock = &definition["externalParameters"]["lock"]["digest"]["sha256"];
    assert_eq!(of_lock, digest(&lock).hex());
    let used = definition["resolvedDependencies"].as_array().unwrap();
    let six = used
        .iter()
        .find(|d| d["name"].as_str().unwrap().starts_with("six-"));
    assert!(six.unwrap()["digest"]["sha256"].is_string());
    let printed = sandbox.run(&["inspect", &name, "--print", "spdx"]);
    let checksum = &document(&printed)["packages"][0]["checksums"][0];
    assert_eq!(checksum["checksumValue"], image.hex());
}

#[test]
fn a_report_of_another_machine_takes_the_place_of_the_builds() {
    let server = Server::start(Kind::Open);
    let sandbox = tiny();
    let name = format!("{}/app:v1", server.host);
    made::push(server.dir.path(), &name, &labels(&sandbox), &REPORTS[..1]);
    let attach = |more: &[&str]| {
        let run =
            sandbox.run(&[&["attach", &name, "--stack", "tiny.yaml", "--json"], more].concat());
        let kinds = document(&run)["attached"].clone();
        let kinds = kinds.as_array().cloned().unwrap_or_default();
        let kinds: Vec<String> = (kinds.iter())
            .map(|a| a["kind"].as_str().unwrap().to_owned())
            .collect();
        (run, kinds)
    };
    let (_, kinds) = attach(&[]);
    assert_eq!(kinds, ["spdx", "cyclonedx", "provenance", "audit"]);
    let report = "{\"schema\":1,\"ok\":true,\"device\":{\"gpu\":\"Thor\"},\"checks\":[]}";
    sandbox.write("report.json", report);
    let (_, kinds) = attach(&[
        "--report",
        "report.json",
        "--builder",
        "https://ci.example/1",
    ]);
    assert_eq!(kinds.last().unwrap(), "validation");
    let printed = sandbox.run(&["inspect", &name, "--print", "validation"]);
    assert_eq!(printed.stdout, report);
    let printed = sandbox.run(&["inspect", &name, "--print", "provenance"]);
    let builder = &document(&printed)["predicate"]["runDetails"]["builder"]["id"];
    assert_eq!(builder, "https://ci.example/1", "the newest one");
    // Whoever may push may attach; what counts is whose key signed it.
    sandbox.run(&["sign", "--generate-key", "own"]);
    let print = [
        "inspect",
        &name,
        "--print",
        "validation",
        "--key",
        "own.pub",
    ];
    let unsigned = sandbox.run(&print);
    assert_eq!(unsigned.code, 1);
    assert!(unsigned.stderr.contains("SF1104"), "{}", unsigned.stderr);
    attach(&["--report", "report.json", "--key", "own.key"]);
    let signed = sandbox.run(&print);
    assert_eq!(signed.stdout, report, "{}", signed.stderr);
    sandbox.write("report.json", "{}");
    let (run, _) = attach(&["--report", "report.json"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("SF0502"), "{}", run.stderr);
}

#[test]
fn evidence_is_only_for_what_the_stack_made() {
    let server = Server::start(Kind::Open);
    let sandbox = tiny();
    let name = format!("{}/app:v1", server.host);
    let other = json!({ "io.stackforge.key": digest(b"other").to_string() });
    let mut stderr = String::new();
    for labels in [json!({}), other] {
        made::push(server.dir.path(), &name, &labels, &REPORTS);
        let run = sandbox.run(&["attach", &name, "--stack", "tiny.yaml"]);
        assert_eq!(run.code, 1);
        stderr += &run.stderr;
    }
    let missing = sandbox.run(&["inspect", &name, "--print", "spdx"]);
    assert_eq!(missing.code, 1);
    stderr += &missing.stderr;
    let gone = sandbox.run(&["inspect", &format!("{}/app:gone", server.host)]);
    assert_eq!(gone.code, 2);
    stderr += &gone.stderr;
    let offline = sandbox.run(&["inspect", &name, "--offline"]);
    assert_eq!(offline.code, 3);
    stderr += &offline.stderr;
    insta::assert_snapshot!("refused", plain(&stderr, &server));
}

#[test]
fn an_image_at_rest_is_inspected_too() {
    let server = Server::start(Kind::Open);
    let sandbox = tiny();
    let name = format!("{}/app:v1", server.host);
    let image = made::push(server.dir.path(), &name, &labels(&sandbox), &REPORTS);
    let layout = sandbox.path("layout").display().to_string();
    skopeo(&[
        "copy",
        "--quiet",
        "--src-tls-verify=false",
        &format!("docker://{name}"),
        &format!("oci:{layout}:v1"),
    ]);
    let run = sandbox.run(&["inspect", &format!("oci:{layout}:v1"), "--json"]);
    let inspection = document(&run)["inspection"].clone();
    assert_eq!(inspection["digest"], image.to_string(), "{}", run.stderr);
    let one = &inspection["images"][0];
    assert_eq!(one["labels"]["io.stackforge.stack"], "tiny");
    assert_eq!(one["evidence"], Value::Null, "no registry was asked");
}

/// Each attaches its own; whoever writes the list last must not forget the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_at_once_lose_nothing() {
    let server = Server::start(Kind::Open);
    let name = format!("{}/team/app:v1", server.host);
    let image = made::push(server.dir.path(), &name, &json!({}), &REPORTS);
    let repository: Repository = "team/app".parse().unwrap();
    let attachers = (0..16).map(|n| {
        let (host, repository) = (server.host.clone(), repository.clone());
        let image = Target::Digest(image.clone());
        tokio::spawn(async move {
            // Connections of its own, as another machine has.
            let keychain = Arc::new(Keychain::of_files([]));
            let registry = Registry::connect(&host, keychain, &Options::default()).unwrap();
            let subject = registry.head(&repository, &image).await.unwrap();
            let artifact = Artifact {
                artifact_type: "application/vnd.test+json".into(),
                media_type: "application/json".into(),
                title: format!("{n}.json"),
                bytes: Bytes::from(format!("{{\"n\":{n}}}")),
                annotations: BTreeMap::new(),
            };
            let attached = registry.attach(&repository, &subject, &artifact).await;
            attached.unwrap().digest
        })
    });
    let mut attached = Vec::new();
    for attacher in attachers.collect::<Vec<_>>() {
        attached.push(attacher.await.unwrap());
    }
    let keychain = Arc::new(Keychain::of_files([]));
    let registry = Registry::connect(&server.host, keychain, &Options::default()).unwrap();
    let listed = registry.referrers(&repository, &image, None).await.unwrap();
    let listed: Vec<Digest> = listed.into_iter().map(|d| d.digest).collect();
    assert_eq!(listed.len(), 16);
    assert!(attached.iter().all(|a| listed.contains(a)));
}
