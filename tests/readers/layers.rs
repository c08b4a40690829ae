//! Layers unpacked over each other, and compressed ones.

use std::fs;
use std::io::Read as _;

use stackforge_binary::tar::Reader;
use stackforge_distribute::pull::delta::toc::{self, Toc};
use stackforge_image::oci::{Merge, parse};
use stackforge_image::unpack::{self, Owner};

use super::{MAX_CONTENT, scratch};

/// Both halves as layers of one root: nothing outside of it changes.
pub fn unpacked(bytes: &[u8]) {
    let dir = scratch();
    let root = dir.path().join("root");
    let outside = dir.path().join("outside");
    let set = || fs::create_dir(&root).and_then(|()| fs::write(&outside, "kept"));
    set().expect("the scratch directory takes files");
    let middle = bytes.len() / 1024 * 512;
    for layer in [&bytes[..middle], &bytes[middle..]] {
        if unpack::over(layer, &root, Owner::Mine).is_err() {
            break;
        }
    }
    assert_eq!(fs::read(&outside).expect("it is ours"), b"kept");
    let beside = fs::read_dir(dir.path()).expect("it is ours").count();
    assert_eq!(beside, 2, "something was written beside the root");
    assert!(fs::symlink_metadata(&root).is_ok_and(|m| m.is_dir()));
}

/// The end of a layer, with its table of contents: chunks follow each other before the table.
pub fn toc(bytes: &[u8]) {
    toc::place(bytes);
    let Some(toc) = Toc::read(bytes, 1 << 40) else {
        return;
    };
    assert!(!toc.chunks.is_empty() && toc.end == 1 << 40);
    for (place, chunk) in toc.chunks.iter().enumerate() {
        assert!(chunk.length > 0 && chunk.offset < toc.until(place));
    }
}

/// A layer that zstd packed, or that says so.
pub fn zstd(bytes: &[u8]) {
    let dir = scratch();
    let blobs = dir.path().join("blobs/sha256");
    let digest = stackforge_types::Digest::of(bytes);
    let set =
        || fs::create_dir_all(&blobs).and_then(|()| fs::write(blobs.join(digest.hex()), bytes));
    set().expect("the scratch directory takes files");
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{digest}","size":2}},
        "layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar+zstd","digest":"{digest}","size":{}}}]}}"#,
        bytes.len()
    );
    let manifest = parse::manifest("x", manifest.as_bytes()).expect("it is a manifest");
    let layer = stackforge_image::Layer::of_blob(dir.path(), &manifest.layers()[0], digest)
        .expect("it names a blob");
    let Ok(tar) = layer.tar() else { return };
    let mut reader = Reader::new(tar.take(MAX_CONTENT));
    let mut merge = Merge::new();
    while let Ok(Some(entry)) = reader.next() {
        if merge.add(entry.header.clone()).is_err() {
            return;
        }
    }
}
