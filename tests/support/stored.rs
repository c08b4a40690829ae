//! Stores and small images in them.

use serde_json::json;
use stackforge_image::store::Store;
use stackforge_types::Digest;
use std::path::Path;

pub fn open(dir: &Path) -> Store {
    Store::open(Some(dir)).unwrap()
}

/// An image of one file, whose layer is a real tar, named `name` in the store.
pub fn image(store: &Store, name: &str, file: &str, content: &[u8]) -> Digest {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, file, content).unwrap();
    let layer = store.put(&archive.into_inner().unwrap()[..], None).unwrap();
    let config = json!({
        "os": "linux", "architecture": "amd64", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [layer.digest] },
        "history": [{ "created_by": "test" }],
    });
    let config = store.put(config.to_string().as_bytes(), None).unwrap();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": config.digest, "size": config.size,
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": layer.digest, "size": layer.size,
        }],
    });
    let manifest = store.put(manifest.to_string().as_bytes(), None).unwrap();
    store.tag(name, &manifest.digest).unwrap();
    manifest.digest
}
