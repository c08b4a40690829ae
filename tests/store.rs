//! One store, several processes: what is put is there, whoever is killed, whoever cleans up.

mod support;

#[path = "store/carried.rs"]
mod carried;
#[path = "store/commands.rs"]
mod commands;
#[path = "store/places.rs"]
mod places;
#[path = "store/processes.rs"]
mod processes;
#[path = "store/surroundings.rs"]
mod surroundings;

use serde_json::json;
use stackforge_image::store::Store;
use stackforge_types::Digest;
use std::path::Path;

fn bytes(seed: u64, size: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; size];
    random.fill(&mut bytes);
    bytes
}

fn open(dir: &Path) -> Store {
    Store::open(Some(dir)).unwrap()
}

/// An image of one file, whose layer is a real tar, named `name` in the store.
fn image(store: &Store, name: &str, file: &str, content: &[u8]) -> Digest {
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

/// Overwrites a byte in the middle of a blob, as a failing disk would.
fn damage(store: &Store, digest: &Digest) {
    use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
    let path = store.blob_path(digest);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    file.write_all_at(b"\xff\x00\xff", middle).unwrap();
}
