//! A layer of an image: opened as often as needed, from any thread.

use super::OciError;
use super::parse::Compression;
use super::place::Place;
use super::stream::Tar;
use crate::source::Source as _;
use crate::spec::nouns::Digest;

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

    /// The tar from its start, unpacked as it is read. A blob that is not what the image names is
    /// an error of a read, of the last one at the latest.
    pub fn tar(&self) -> Result<Tar, OciError> {
        let what = || format!("layer {}", self.digest());
        let blob = self.place.open()?;
        if blob.size() != self.size {
            return Err(OciError::Size {
                what: what(),
                expected: self.size,
                found: blob.size(),
            });
        }
        let digest = self.digest.clone();
        Tar::new(blob, self.compression, digest, self.diff_id.clone())
            .map_err(|source| super::parse::malformed(&what(), format!("cannot be read: {source}")))
    }
}
