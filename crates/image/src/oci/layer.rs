//! A layer of an image, which can be opened repeatedly and from any thread.

use super::OciError;
use super::parse::{self, Compression};
use super::place::Place;
use super::stream::{Proof, Stream, Tar};
use oci_spec::image::Descriptor;
use sha2::{Digest as _, Sha256};
use stackforge_binary::source::Source as _;
use stackforge_types::Digest;
use std::path::Path;

/// A layer of an opened image. Its blob is read on demand.
#[derive(Debug, Clone)]
pub struct Layer {
    pub(super) place: Place,
    pub(super) compression: Compression,
    /// Digest of the blob. `None` in the output of `docker save`, which names no blob digests.
    pub(super) digest: Option<Digest>,
    pub(super) diff_id: Digest,
    pub(super) size: u64,
    pub(super) media_type: String,
}

impl Layer {
    /// A layer whose blob is, or will be, a file below a layout's directory.
    ///
    /// # Errors
    /// If the descriptor's digest is not SHA-256, or its media type is not a layer's.
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

    /// Digest of the blob; in the output of `docker save` the diff ID.
    pub fn digest(&self) -> &Digest {
        self.digest.as_ref().unwrap_or(&self.diff_id)
    }

    /// Digest of the tar.
    pub fn diff_id(&self) -> &Digest {
        &self.diff_id
    }

    /// Size of the blob in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The layer's media type in the manifest.
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// The file that holds the blob, and the blob's offset in it in bytes.
    pub fn at(&self) -> (&Path, u64) {
        self.place.at()
    }

    /// The tar from its start, decompressed as it is read. If the blob does not match its digests, a read
    /// fails, at the latest the last one.
    ///
    /// # Errors
    /// If the blob cannot be opened or has another size.
    pub fn tar(&self) -> Result<Tar, OciError> {
        let hash = self.digest.is_some().then(Sha256::new);
        let (digest, diff_id) = (self.digest.clone(), self.diff_id.clone());
        Ok(Tar::new(self.stream(hash)?, digest, diff_id))
    }

    /// Like [`Layer::tar`] for a blob that was just verified, for callers that unpack in one thread and
    /// verify the tar in another.
    ///
    /// # Errors
    /// If the blob cannot be opened or has another size.
    pub fn tar_of_verified(&self) -> Result<(Stream, Proof), OciError> {
        Ok((self.stream(None)?, Proof::new(self.diff_id.clone())))
    }

    fn stream(&self, hash: Option<Sha256>) -> Result<Stream, OciError> {
        let what = || format!("layer {}", self.digest());
        let blob = self.place.open()?;
        if blob.size() != self.size {
            return Err(OciError::Size {
                what: what(),
                expected: self.size,
                found: blob.size(),
            });
        }
        Stream::new(blob, self.compression, hash)
            .map_err(|source| parse::malformed(&what(), format!("cannot be read: {source}")))
    }
}
