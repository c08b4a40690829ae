//! What `cache import` reads, and the small files of the store itself.

use std::fs;
use std::path::Path;

use stackforge_image::store::{HasSigned, Store};
use stackforge_types::Digest;

use super::scratch;

/// Parts of an input: one index and the blobs that it leads to.
const MOST_PARTS: usize = 10;

/// A layout whose parts are divided by NUL: the index, then blobs. `@3` in a part stands for the
/// digest of part 3, which has to come later. Whatever is imported, the store stays right.
pub fn import(bytes: &[u8]) {
    let dir = memory();
    let layout = dir.path().join("layout");
    let made = fs::create_dir_all(layout.join("blobs/sha256"));
    made.expect("the scratch directory takes files");
    write(&layout.join("oci-layout"), b"{}");
    let parts: Vec<&[u8]> = bytes.splitn(MOST_PARTS, |byte| *byte == 0).collect();
    let mut digests = vec![None; MOST_PARTS];
    for (n, part) in parts.into_iter().enumerate().rev() {
        let part = with_digests(part, &digests);
        if n == 0 {
            write(&layout.join("index.json"), &part);
            continue;
        }
        let digest = Digest::of(&part);
        write(&layout.join("blobs/sha256").join(digest.hex()), &part);
        digests[n] = Some(digest);
    }
    let store = Store::open(Some(&dir.path().join("store"))).expect("it has a place");
    let anybody: HasSigned<'_> = &|_, _| true;
    for trusted in [None, Some(anybody)] {
        let done = store.import(&layout, trusted, &|_, _| true);
        let found = store.verify(false, &|_, _| true).expect("it can be read");
        assert!(found.is_clean(), "{found:?}");
        if let (Ok(done), None) = (done, trusted) {
            assert_eq!(done.actions, 0, "nobody signed it");
        }
    }
    for entry in fs::read_dir(dir.path()).expect("it is ours") {
        let name = entry.expect("it is ours").file_name();
        assert!(name == "layout" || name == "store", "beside the store");
    }
}

/// One text as a step's record, as the note of a blob and as the index, where `@1` stands for an
/// image: none of them makes a step, a blob or an image of what is not one.
pub fn records(bytes: &[u8]) {
    let dir = memory();
    let store = Store::open(Some(dir.path())).expect("it has a place");
    let put = |content: &[u8]| store.put(content, None).expect("it is kept").digest;
    let config = put(b"{}");
    let manifest = format!(r#"{{"schemaVersion":2,"config":{{"digest":"{config}"}},"layers":[]}}"#);
    let manifest = put(manifest.as_bytes());
    let text = with_digests(bytes, &[None, Some(manifest.clone())]);
    let key = Digest::of(b"a step");
    for file in [
        format!("actions/{}.json", key.hex()),
        format!("verified/{}", config.hex()),
        "index.json".to_owned(),
    ] {
        write(&dir.path().join(file), &text);
    }
    let is_stored = |digest: &Digest| store.blob_path(digest).is_file();
    if let Some(action) = store.action(&key) {
        assert!(action.outputs.values().all(is_stored));
    }
    assert!(store.blob(&config).is_some(), "its bytes are right");
    let found = store.verify(true, &|_, _| true).expect("it is repaired");
    assert!(found.damaged.is_empty());
    let again = store.verify(false, &|_, _| true).expect("it can be read");
    assert!(again.is_clean(), "{again:?}");
    let images = store.refs().expect("it was repaired");
    assert!(images.iter().all(|image| is_stored(&image.digest)));
    for name in found.restored {
        let named = images
            .iter()
            .find(|image| image.name.as_ref() == Some(&name));
        assert!(named.is_some_and(|image| image.digest == manifest));
    }
}

/// A store syncs each of its files, which a disk takes long for.
fn memory() -> tempfile::TempDir {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) if std::env::var_os("FUZZ_SCRATCH").is_none() => dir,
        _ => scratch(),
    }
}

fn with_digests(text: &[u8], digests: &[Option<Digest>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        let number = rest.as_slice().first().filter(|_| *byte == b'@');
        let number = number.and_then(|digit| (*digit as char).to_digit(10));
        match number.and_then(|n| digests.get(n as usize)?.as_ref()) {
            Some(digest) => {
                rest.next();
                out.extend(digest.to_string().into_bytes());
            }
            None => out.push(*byte),
        }
    }
    out
}

fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("the scratch directory takes files");
}
