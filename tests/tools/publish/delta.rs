//! Changed layers, of which only what changed is fetched.

use super::proxy::{Act, Fault, Proxy};
use super::{Kind, Sandbox, Server, answer, digest};
use serde_json::json;
use std::io::Write as _;
use std::path::Path;

/// A layer with eStargz's table of contents, one gzip member for each content and what is between.
fn layer(files: &[(&str, Vec<u8>)]) -> (Vec<u8>, Vec<u8>) {
    packed(files, None)
}

/// The same with another table's text.
fn packed(files: &[(&str, Vec<u8>)], other: Option<&str>) -> (Vec<u8>, Vec<u8>) {
    let mut out = Vec::new();
    let mut plain = Vec::new();
    let mut member = |out: &mut Vec<u8>, bytes: &[u8]| {
        let mut gzip = flate2::GzBuilder::new()
            .operating_system(255)
            .write(Vec::new(), flate2::Compression::new(6));
        gzip.write_all(bytes).unwrap();
        out.extend(gzip.finish().unwrap());
        plain.extend_from_slice(bytes);
    };
    let header = |name: &str, size: usize| {
        let mut header = tar::Header::new_ustar();
        header.set_path(name).unwrap();
        header.set_size(size as u64);
        header.set_mode(0o644);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let padding = |size: usize| vec![0; (512 - size % 512) % 512];
    let (mut entries, mut before) = (Vec::new(), 0);
    for (name, content) in files {
        let head = [padding(before), header(name, content.len())].concat();
        member(&mut out, &head);
        let own = digest(content);
        entries.push(json!({ "name": name, "type": "reg", "size": content.len(),
            "mode": 420, "offset": out.len(), "digest": own, "chunkDigest": own }));
        member(&mut out, content);
        before = content.len();
    }
    member(&mut out, &padding(before));
    let at = out.len();
    let own = json!({ "version": 1, "entries": entries }).to_string();
    let table = other.map_or(own, str::to_owned);
    let last = [
        header("stargz.index.json", table.len()),
        table.clone().into_bytes(),
        padding(table.len()),
        vec![0; 1024],
    ];
    member(&mut out, &last.concat());
    let mut footer = [0; 51];
    footer[..10].copy_from_slice(&[0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff]);
    footer[10..16].copy_from_slice(&[26, 0, b'S', b'G', 22, 0]);
    footer[16..38].copy_from_slice(format!("{at:016x}STARGZ").as_bytes());
    footer[38..43].copy_from_slice(&[1, 0, 0, 0xff, 0xff]);
    out.extend(footer);
    (out, plain)
}

fn image(dir: &Path, files: &[(&str, Vec<u8>)]) {
    image_of(dir, layer(files));
}

fn image_of(dir: &Path, (gzip, plain): (Vec<u8>, Vec<u8>)) {
    let blobs = dir.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let put = |kind: &str, bytes: &[u8]| {
        let digest = digest(bytes);
        std::fs::write(blobs.join(digest.hex()), bytes).unwrap();
        let media_type = format!("application/vnd.oci.image.{kind}");
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    };
    let layer = put("layer.v1.tar+gzip", &gzip);
    let config = json!({ "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [digest(&plain)] } });
    let config = put("config.v1+json", config.to_string().as_bytes());
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [layer],
        "mediaType": "application/vnd.oci.image.manifest.v1+json" });
    let mut entry = put("manifest.v1+json", manifest.to_string().as_bytes());
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": "v1" });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });
    std::fs::write(dir.join("index.json"), index.to_string()).unwrap();
    std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// Two versions of an image in the registry, and the first one in the sandbox's store.
fn updated(server: &Server, sandbox: &Sandbox) -> (String, String) {
    let (a, b) = (noise(1, 1_500_000), noise(2, 1_500_000));
    let old = [
        ("lib/a.so", a.clone()),
        ("lib/b.so", b.clone()),
        ("v", noise(3, 90_000)),
    ];
    let new = [("lib/a.so", a), ("lib/b.so", b), ("v", noise(4, 100_000))];
    let place = |tag: &str| format!("{}/app:{tag}", server.host);
    image(&sandbox.path("old"), &old);
    image(&sandbox.path("new"), &new);
    answer(sandbox, &["push", "oci:old:v1", &place("1")]);
    answer(sandbox, &["push", "oci:new:v1", &place("2")]);
    answer(sandbox, &["pull", &place("1"), "--platform", "linux/amd64"]);
    (place("1"), place("2"))
}

fn verified(sandbox: &Sandbox) {
    let run = sandbox.run(&["cache", "verify"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}

#[test]
fn of_a_changed_layer_only_the_changed_files_are_fetched() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let (_, new) = updated(&server, &sandbox);
    let pulled = answer(
        &sandbox,
        &[
            "pull",
            &new,
            "--platform",
            "linux/amd64",
            "-o",
            "rootfs:root",
        ],
    );
    let fetched = pulled["bytes"]["fetched"].as_u64().unwrap();
    let size = pulled["size"].as_u64().unwrap();
    assert!((100_000..110_000).contains(&fetched), "{fetched} of {size}");
    assert_eq!(fetched + pulled["bytes"]["kept"].as_u64().unwrap(), size);
    verified(&sandbox);
    assert_eq!(
        std::fs::read(sandbox.path("root/v")).unwrap(),
        noise(4, 100_000)
    );
}

#[test]
fn without_ranges_or_with_a_damaged_older_layer_all_of_it_is_fetched() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let (_, new) = updated(&server, &sandbox);
    let proxy = Proxy::start(&server.host, |request| {
        if request.header("range").is_some() {
            Act::Harm(Fault::IgnoreRange)
        } else {
            Act::Pass
        }
    });
    let other = new.replace(&server.host, &proxy.host);
    let pulled = answer(&sandbox, &["pull", &other, "--platform", "linux/amd64"]);
    assert_eq!(pulled["bytes"]["fetched"], pulled["size"]);
    verified(&sandbox);

    let sandbox = Sandbox::new();
    let (_, new) = updated(&server, &sandbox);
    let blobs = std::fs::read_dir(sandbox.path("store/blobs/sha256")).unwrap();
    for blob in blobs {
        let path = blob.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.len() > 1_000_000 {
            bytes[600_000] ^= 1;
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let args = [
        "pull",
        &new,
        "--platform",
        "linux/amd64",
        "-o",
        "rootfs:root",
    ];
    answer(&sandbox, &args);
    let read = |name: &str| std::fs::read(sandbox.path("root").join(name)).unwrap();
    assert!(read("lib/a.so") == noise(1, 1_500_000));
    assert!(read("v") == noise(4, 100_000));
}

/// A layer of some hundred kilobytes whose table would take gigabytes as entries in memory.
#[test]
fn a_table_of_two_million_entries_takes_little_memory() {
    let server = Server::start(Kind::Open);
    let sandbox = Sandbox::new();
    let (_, new) = updated(&server, &sandbox);
    let entry = r#"{"name":"a","type":"reg","size":1,"offset":2,"digest":"x","a":{"b":[0]}}"#;
    let entries = vec![entry; 2_000_000].join(",");
    let table = format!(r#"{{"version":1,"entries":[{entries}]}}"#);
    let files = [("v", noise(5, 100_000))];
    image_of(&sandbox.path("many"), packed(&files, Some(&table)));
    let many = format!("{}/app:many", server.host);
    answer(&sandbox, &["push", "oci:many:v1", &many]);
    // Each in a store that has older layers; the second pull finds the first one's among them.
    for place in [&many, &new] {
        let own = sandbox.command();
        let out = sandbox
            .command_of("prlimit")
            .arg(format!("--data={}", 512 << 20))
            .arg(own.get_program())
            .args(["pull", place, "--platform", "linux/amd64"])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{stderr}");
    }
    verified(&sandbox);
}
