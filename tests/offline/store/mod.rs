//! One store, several processes: what is put is there, whoever is killed, whoever cleans up.

mod carried;
mod commands;
mod places;
mod processes;
mod surroundings;

use stackforge_image::store::Store;
use stackforge_types::Digest;
use support::stored::{image, open};

fn bytes(seed: u64, size: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; size];
    random.fill(&mut bytes);
    bytes
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
