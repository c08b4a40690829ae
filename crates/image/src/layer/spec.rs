//! What a layer is made with, and what was made.

use super::scheme::Scheme;
use crate::oci::Layer;
use stackforge_types::Digest;

/// The parameters of a layer besides its wheels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Directories that the parts of a wheel are installed to.
    pub scheme: Scheme,
    /// Absolute path of the interpreter that scripts start.
    pub python: String,
    /// Modification time of every file, in seconds since 1970: SOURCE_DATE_EPOCH.
    pub epoch: u32,
    /// Compression level of chunks that are compressed here, 0 to 9.
    pub level: u32,
    /// Number of threads that inflate and compress; hashing has three more.
    pub threads: usize,
}

/// A layer that was written, and what stood out in its wheels.
#[derive(Debug, Clone)]
pub struct Stitched {
    /// The layer. Its annotations are for snapshotters that read layers lazily.
    pub layer: Layer,
    /// Digest of the table of contents.
    pub toc_digest: Digest,
    /// Number of files in the layer.
    pub files: u64,
    /// Files that their wheel's RECORD does not list, as `WHEEL: FILE`. The specification forbids it, pip
    /// accepts it.
    pub unlisted: Vec<String>,
    /// Files of vouched wheels whose RECORD states another digest, as `WHEEL: FILE`. The layer's RECORD has
    /// their actual digest.
    pub misstated: Vec<String>,
}
