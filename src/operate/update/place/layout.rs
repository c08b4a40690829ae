//! An image layout whose index names the service's image.

use crate::UpdateError;
use serde_json::Value;
use stackforge_distribute::pull;
use stackforge_image::assemble::output;
use stackforge_image::oci::{self, Image, OciError};
use stackforge_image::store::Store;
use stackforge_stack::spec::Platform;
use stackforge_types::Digest;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use tokio::task::block_in_place;

pub fn current_id(dir: &Path, name: &str) -> Result<Option<String>, UpdateError> {
    if !dir.join("index.json").exists() {
        return Ok(None);
    }
    match oci::open(dir, Some(name), Platform::of_processor()) {
        Ok(image) => Ok(Some(image.digest.to_string())),
        Err(OciError::NoReference { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Writes an image into the layout. Without a name the index does not list it yet.
pub fn write(
    dir: &Path,
    name: Option<&str>,
    image: &Image,
    store: &Store,
) -> Result<(), UpdateError> {
    let assembled = pull::assembled(image).ok_or(UpdateError::NoDocuments)?;
    let blobs = store.dir("blobs/sha256")?;
    let written = || match name {
        Some(name) => output::layout(&assembled, name, &blobs, dir),
        None => output::unnamed(&assembled, &blobs, dir),
    };
    block_in_place(|| store.keeping_notes(assembled.blobs().values(), written))?;
    let synced = |at: &Path| File::open(at)?.sync_all();
    (synced(&dir.join("blobs/sha256")).and_then(|()| synced(dir)))
        .map_err(|e| UpdateError::io("write", dir, e))
}

/// Removes the name, and the image that had it, from the index.
pub fn unname(dir: &Path, name: &str) -> Result<(), UpdateError> {
    block_in_place(|| output::unname(dir, name))?;
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|e| UpdateError::io("write", dir, e))
}

/// Removes the blobs of images that the index does not name any more. If something cannot be read, removes
/// nothing.
pub fn sweep(dir: &Path) {
    if let Err(error) = swept(dir) {
        tracing::debug!(%error, "old blobs stay in {}", dir.display());
    }
}

fn swept(dir: &Path) -> io::Result<()> {
    let blobs = dir.join("blobs/sha256");
    let mut kept = BTreeSet::new();
    let mut documents = vec![read(&dir.join("index.json"))?];
    while let Some(document) = documents.pop() {
        let one = [&document["config"], &document["subject"]];
        let lists = ["manifests", "layers"].map(|key| document[key].as_array());
        let many = lists.into_iter().flatten().flatten();
        for descriptor in one.into_iter().chain(many).filter(|d| !d.is_null()) {
            let digest: Option<Digest> = descriptor["digest"].as_str().and_then(|d| d.parse().ok());
            let digest = digest.ok_or(io::ErrorKind::InvalidData)?;
            let kind = descriptor["mediaType"].as_str().unwrap_or_default();
            let leads = kind.contains("manifest") || kind.contains("image.index");
            if leads && kept.insert(digest.clone()) {
                documents.push(read(&blobs.join(digest.hex()))?);
            }
            kept.insert(digest);
        }
    }
    for entry in fs::read_dir(&blobs)? {
        let entry = entry?;
        let name = entry.file_name();
        let digest = name.to_str().and_then(|hex| Digest::from_hex(hex).ok());
        let stays = digest.is_some_and(|digest| kept.contains(&digest));
        if !stays && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> io::Result<Value> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_index_leads_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = dir.path().join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        let put = |bytes: &[u8]| {
            let digest = Digest::of(bytes);
            fs::write(blobs.join(digest.hex()), bytes).unwrap();
            digest.to_string()
        };
        let manifest = "application/vnd.oci.image.manifest.v1+json";
        let image = |text: &str| {
            let layer = put(text.as_bytes());
            let config = put(format!("config of {text}").as_bytes());
            let document = json!({
                "config": { "digest": config }, "layers": [{ "digest": layer }],
            });
            json!({ "mediaType": manifest, "digest": put(document.to_string().as_bytes()) })
        };
        let (kept, _) = (image("kept"), image("gone"));
        let index = json!({ "manifests": [kept] }).to_string();
        let count = || fs::read_dir(&blobs).unwrap().count();
        fs::write(dir.path().join("index.json"), "{").unwrap();
        sweep(dir.path());
        assert_eq!(count(), 6, "an index that cannot be read removes nothing");
        fs::write(dir.path().join("index.json"), index).unwrap();
        sweep(dir.path());
        assert_eq!(count(), 3);
        assert!(blobs.join(Digest::of(b"kept").hex()).exists());
    }
}
