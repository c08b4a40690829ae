//! What to fetch, and what was fetched.

use std::path::PathBuf;

use stackforge_types::Digest;

/// A file to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// Its final name, without a directory.
    pub name: String,
    /// Its addresses, the preferred one first. An address may contain `user:password@`.
    pub urls: Vec<String>,
    /// Digest of its content.
    pub sha256: Digest,
    /// Size in bytes, if known; then a file of another size is refused early.
    pub size: Option<u64>,
}

/// A fetched file, with the requested digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedFile {
    /// The file: the directory joined with [`Download::name`].
    pub path: PathBuf,
    /// Bytes received over the network in this call; 0 if the file existed.
    pub bytes: u64,
    /// Whether the file existed already, or another process fetched it.
    pub cached: bool,
}
