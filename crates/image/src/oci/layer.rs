//! A layer of an image: what the documents state of it, and its bytes if they are at hand.

use super::error::OciError;
use super::parse::{self, Compression};
use super::place::Place;
use super::stream::{Proof, Stream, Tar};
use oci_spec::image::Descriptor;
use serde::{Deserialize, Serialize};
use stackforge_binary::source::Source as _;
use stackforge_types::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// A layer, whoever made it. A layer that was read from an image has its blob, which can be opened repeatedly
/// and from any thread; one that was just written has only what describes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Layer {
    /// The blob's media type, which names its compression.
    pub media_type: String,
    /// Digest of the blob. In the output of `docker save`, which names no blob digests, the diff ID.
    pub digest: Digest,
    /// Digest of the tar in the blob.
    pub diff_id: Digest,
    /// Size of the blob in bytes.
    pub size: u64,
    /// Size of the tar in bytes; zero if it was not measured.
    #[serde(default)]
    pub plain_size: u64,
    /// Annotations for the layer's descriptor in the manifest of an image that is made of it. Those of the
    /// image that it was read from are not among them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Description for people, shown in the history of an image that is made of it.
    #[serde(default)]
    pub about: String,
    /// Names of the packages in the layer.
    #[serde(default)]
    pub of: Vec<String>,
    #[serde(skip)]
    pub(super) blob: Option<Blob>,
}

/// Where a layer's bytes are, and how to read them.
#[derive(Debug, Clone)]
pub(super) struct Blob {
    pub place: Place,
    pub compression: Compression,
    /// Whether the layer's digest is that of the blob, not the diff ID in its stead.
    pub is_named: bool,
}

impl Layer {
    /// A layer that was written: `plain_size` bytes of tar in a blob of `size` bytes.
    pub fn new(
        media_type: impl Into<String>,
        digest: Digest,
        diff_id: Digest,
        size: u64,
        plain_size: u64,
    ) -> Self {
        Self {
            media_type: media_type.into(),
            digest,
            diff_id,
            size,
            plain_size,
            annotations: BTreeMap::new(),
            about: String::new(),
            of: Vec::new(),
            blob: None,
        }
    }

    /// Adds a description for people and the names of the packages in the layer.
    pub fn described(self, about: impl Into<String>, of: Vec<String>) -> Self {
        Self {
            about: about.into(),
            of,
            ..self
        }
    }

    /// A layer whose blob is, or will be, a file below a layout's directory.
    ///
    /// # Errors
    /// If the descriptor's digest is not SHA-256, or its media type is not a layer's.
    pub fn of_blob(
        root: &Path,
        descriptor: &Descriptor,
        diff_id: Digest,
    ) -> Result<Self, OciError> {
        let file = root
            .join("blobs/sha256")
            .join(parse::digest(descriptor)?.hex());
        Self::of_descriptor(descriptor, diff_id, Place::File(file))
    }

    /// A layer of a manifest, whose blob is at `place`.
    pub(super) fn of_descriptor(
        descriptor: &Descriptor,
        diff_id: Digest,
        place: Place,
    ) -> Result<Self, OciError> {
        let compression = parse::compression(descriptor)?;
        let digest = parse::digest(descriptor)?;
        let media_type = descriptor.media_type().to_string();
        Ok(Self {
            blob: Some(Blob {
                place,
                compression,
                is_named: true,
            }),
            ..Self::new(media_type, digest, diff_id, descriptor.size(), 0)
        })
    }

    /// The file that holds the blob, and the blob's offset in it in bytes.
    ///
    /// # Errors
    /// [`OciError::Missing`] if the layer was not read from an image.
    pub fn at(&self) -> Result<(&Path, u64), OciError> {
        Ok(self.blob()?.place.at())
    }

    /// The tar from its start, decompressed as it is read. If the blob does not match its digests, a read
    /// fails, at the latest the last one.
    ///
    /// # Errors
    /// If the layer has no blob, or the blob cannot be opened or has another size.
    pub fn tar(&self) -> Result<Tar, OciError> {
        let named = self.blob()?.is_named.then(|| self.digest.clone());
        let hash = named.is_some().then(Sha256::new);
        Ok(Tar::new(self.stream(hash)?, named, self.diff_id.clone()))
    }

    /// Like [`Layer::tar`] for a blob that was just verified, for callers that unpack in one thread and
    /// verify the tar in another.
    ///
    /// # Errors
    /// If the layer has no blob, or the blob cannot be opened or has another size.
    pub fn tar_of_verified(&self) -> Result<(Stream, Proof), OciError> {
        Ok((self.stream(None)?, Proof::new(self.diff_id.clone())))
    }

    fn blob(&self) -> Result<&Blob, OciError> {
        let missing = || OciError::Missing(format!("the blob of layer {}", self.digest));
        self.blob.as_ref().ok_or_else(missing)
    }

    fn stream(&self, hash: Option<Sha256>) -> Result<Stream, OciError> {
        let what = || format!("layer {}", self.digest);
        let blob = self.blob()?;
        let bytes = blob.place.open()?;
        if bytes.size() != self.size {
            return Err(OciError::Size {
                what: what(),
                expected: self.size,
                found: bytes.size(),
            });
        }
        Stream::new(bytes, blob.compression, hash)
            .map_err(|source| parse::malformed(&what(), format!("cannot be read: {source}")))
    }
}
