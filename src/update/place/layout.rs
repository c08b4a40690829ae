//! An image layout, whose index names one image or another.

use crate::assemble::output;
use crate::oci::{self, Image};
use crate::pull;
use crate::spec::Platform;
use crate::store::Store;
use crate::update::UpdateError;
use std::path::Path;
use tokio::task::block_in_place;

pub fn there(dir: &Path, name: &str) -> Option<String> {
    let image = oci::open(dir, Some(name), Platform::host()).ok()?;
    Some(image.digest.to_string())
}

pub fn write(dir: &Path, name: &str, image: &Image, store: &Store) -> Result<(), UpdateError> {
    let assembled = pull::assembled(image).ok_or(UpdateError::NoDocuments)?;
    let blobs = store.dir("blobs/sha256")?;
    block_in_place(|| {
        store.keeping_notes(assembled.blobs().values(), || {
            output::layout(&assembled, name, &blobs, dir)
        })
    })?;
    Ok(())
}
