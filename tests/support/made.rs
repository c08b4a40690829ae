//! Small images with labels and files, in a registry.

use super::Sandbox;
use super::server::skopeo;
use serde_json::{Value, json};
use stackforge_types::Digest;
use std::path::Path;

/// Files of reports that a build leaves in its image.
pub const REPORTS: [(&str, &str); 2] = [
    ("usr/share/stackforge/audit.json", "{\"ok\":true}\n"),
    (
        "usr/share/stackforge/validation.json",
        "{\"schema\":1,\"ok\":true,\"checks\":[]}\n",
    ),
];

/// What a build of the stack would say of itself.
pub fn labels(sandbox: &Sandbox) -> Value {
    let run = sandbox.run(&["plan", "tiny.yaml", "--json"]);
    let plan: Value = serde_json::from_str(&run.stdout).unwrap();
    json!({
        "io.stackforge.stack": "tiny",
        "io.stackforge.key": plan["variants"][0]["key"],
        "io.stackforge.sm": "sm_90",
        "org.opencontainers.image.title": "tiny",
    })
}

/// An image of one layer under `name` in a registry; its manifest's digest.
pub fn push(dir: &Path, name: &str, labels: &Value, files: &[(&str, &str)]) -> Digest {
    let root = tempfile::tempdir_in(dir).unwrap();
    let blobs = root.path().join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let put = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        std::fs::write(blobs.join(digest.hex()), bytes).unwrap();
        (digest.to_string(), bytes.len())
    };
    let mut tar = tar::Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    let tar = tar.into_inner().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &tar).unwrap();
    let (layer, layer_size) = put(&gzip.finish().unwrap());
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": { "Labels": labels },
        "rootfs": { "type": "layers", "diff_ids": [Digest::of(&tar).to_string()] },
    });
    let (config, config_size) = put(config.to_string().as_bytes());
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": config, "size": config_size,
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": layer, "size": layer_size,
        }],
    });
    let (manifest, manifest_size) = put(manifest.to_string().as_bytes());
    let index = json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": manifest, "size": manifest_size,
            "annotations": { "org.opencontainers.image.ref.name": "v1" },
        }],
    });
    std::fs::write(root.path().join("index.json"), index.to_string()).unwrap();
    let layout = r#"{"imageLayoutVersion":"1.0.0"}"#;
    std::fs::write(root.path().join("oci-layout"), layout).unwrap();
    skopeo(&[
        "copy",
        "--quiet",
        "--preserve-digests",
        "--dest-tls-verify=false",
        &format!("oci:{}:v1", root.path().display()),
        &format!("docker://{name}"),
    ]);
    manifest.parse().unwrap()
}
