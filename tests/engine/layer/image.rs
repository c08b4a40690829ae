//! A layer in an image, in the hands of those who take images.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::*;
use stackforge_image::Layer;

const NAME: &str = "stackforge-test-layer:latest";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Removes the image from the engine.
struct Loaded;

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rmi", "-f", NAME]).output();
    }
}

/// Writes a blob; its descriptor.
fn blob(dir: &Path, media_type: &str, bytes: &[u8]) -> serde_json::Value {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    std::fs::write(dir.join("blobs/sha256").join(&hex), bytes).unwrap();
    let digest = format!("sha256:{hex}");
    json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
}

/// An OCI layout with one image of one layer, which Docker loads too.
fn layout(dir: &Path, layer: &Layer, bytes: &[u8]) {
    std::fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
    });
    let config = config.to_string();
    let config = blob(
        dir,
        "application/vnd.oci.image.config.v1+json",
        config.as_bytes(),
    );
    let mut content = blob(dir, LAYER, bytes);
    assert_eq!(content["digest"], layer.digest.to_string());
    content["annotations"] = json!(layer.annotations);
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2, "mediaType": media_type, "config": config, "layers": [content],
    });
    let mut manifest = blob(dir, media_type, manifest.to_string().as_bytes());
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": "latest"});
    let write = |name: &str, value: serde_json::Value| {
        std::fs::write(dir.join(name), value.to_string()).unwrap();
    };
    write(
        "index.json",
        json!({"schemaVersion": 2, "manifests": [manifest]}),
    );
    write("oci-layout", json!({"imageLayoutVersion": "1.0.0"}));
    let path = |d: &serde_json::Value| {
        format!("blobs/{}", d["digest"].as_str().unwrap().replace(':', "/"))
    };
    let docker = json!([{"Config": path(&config), "RepoTags": [NAME], "Layers": [path(&content)]}]);
    write("manifest.json", docker);
}

/// The files of a layer stand below `root`.
fn stand_below(root: &Path, layer: &[u8]) {
    for (path, (_, content)) in files(layer) {
        if path.ends_with('/') {
            assert!(root.join(path).is_dir());
        } else {
            assert!(
                std::fs::read(root.join(&path)).unwrap() == content,
                "{path}"
            );
        }
    }
}

pub fn check(wheels: &[PathBuf]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("layer.tgz");
    let layer = layer(&plain_spec(), wheels, &path).layer;
    let bytes = std::fs::read(&path).unwrap();
    let image = dir.path().join("image");
    layout(&image, &layer, &bytes);
    let reference =
        |kind: &str, name: &str| format!("{kind}{}:latest", dir.path().join(name).display());

    // skopeo checks digests as it copies, and keeps the layer as it is.
    let (from, to) = (reference("oci:", "image"), reference("oci:", "copy"));
    run(Command::new("skopeo").args(["copy", "--quiet", &from, &to]));
    let blob = layer.digest.to_string().replace(':', "/");
    assert!(std::fs::read(dir.path().join("copy/blobs").join(blob)).unwrap() == bytes);
    let seen = run(Command::new("skopeo").args(["inspect", &to]));
    let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(seen["Layers"], json!([layer.digest]));

    // umoci checks the diff ID as it unpacks.
    let bundle = dir.path().join("bundle");
    let mut umoci = Command::new("umoci");
    umoci
        .args(["unpack", "--rootless", "--image", &reference("", "image")])
        .arg(&bundle);
    run(&mut umoci);
    stand_below(&bundle.join("rootfs"), &bytes);

    // Docker does as it loads.
    let _loaded = Loaded;
    let archive = dir.path().join("image.tar");
    run(Command::new("tar")
        .arg("-C")
        .arg(&image)
        .arg("-cf")
        .arg(&archive)
        .arg("."));
    run(Command::new("docker")
        .args(["load", "--quiet", "--input"])
        .arg(&archive));
    let container = run(Command::new("docker").args(["create", NAME, "nothing"]));
    let container = container.trim();
    let export = dir.path().join("export.tar");
    let exported = Command::new("docker")
        .args(["export", container, "--output"])
        .arg(&export)
        .status();
    run(Command::new("docker").args(["rm", container]));
    assert!(exported.unwrap().success());
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    run(Command::new("tar")
        .arg("-C")
        .arg(&root)
        .arg("-xf")
        .arg(&export));
    stand_below(&root, &bytes);
}
