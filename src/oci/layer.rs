//! A layer of an image: opened as often as needed, from any thread.

use super::OciError;
use super::parse::{self, Compression};
use super::place::Place;
use super::stream::Tar;
use crate::source::Source as _;
use crate::spec::nouns::Digest;
use oci_spec::image::Descriptor;
use std::path::Path;

#[derive(Debug, Clone)]
pub struct Layer {
    pub(super) place: Place,
    pub(super) compression: Compression,
    /// None in the output of `docker save`, which names no digests of blobs.
    pub(super) digest: Option<Digest>,
    pub(super) diff_id: Digest,
    pub(super) size: u64,
    pub(super) media_type: String,
}

impl Layer {
    /// A layer whose blob is, or will be, a file below a layout's directory.
    pub fn of_blob(
        root: &Path,
        descriptor: &Descriptor,
        diff_id: Digest,
    ) -> Result<Self, OciError> {
        let digest = parse::digest(descriptor)?;
        Ok(Self {
            place: Place::File(root.join("blobs/sha256").join(digest.hex())),
            compression: parse::compression(descriptor)?,
            digest: Some(digest),
            diff_id,
            size: descriptor.size(),
            media_type: descriptor.media_type().to_string(),
        })
    }

    /// Of the blob; in the output of `docker save` the diff ID.
    pub fn digest(&self) -> &Digest {
        self.digest.as_ref().unwrap_or(&self.diff_id)
    }

    /// Of the tar.
    pub fn diff_id(&self) -> &Digest {
        &self.diff_id
    }

    /// Of the blob, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// The file that holds the blob, and where it begins there.
    pub fn at(&self) -> (&Path, u64) {
        self.place.at()
    }

    /// The tar from its start, unpacked as it is read. A blob that is not what the image names is
    /// an error of a read, of the last one at the latest.
    pub fn tar(&self) -> Result<Tar, OciError> {
        self.read(self.digest.clone())
    }

    /// The same for a blob that was verified just now: only the diff ID is checked.
    pub fn tar_of_verified(&self) -> Result<Tar, OciError> {
        self.read(None)
    }

    fn read(&self, digest: Option<Digest>) -> Result<Tar, OciError> {
        let what = || format!("layer {}", self.digest());
        let blob = self.place.open()?;
        if blob.size() != self.size {
            return Err(OciError::Size {
                what: what(),
                expected: self.size,
                found: blob.size(),
            });
        }
        Tar::new(blob, self.compression, digest, self.diff_id.clone())
            .map_err(|source| parse::malformed(&what(), format!("cannot be read: {source}")))
    }
}
