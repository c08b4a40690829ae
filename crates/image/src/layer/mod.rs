//! Makes a layer of wheels: what pip would install, as a gzip tar, without recompressing it.
//!
//! In: [`Wheel`]s and where to install them. Out: the layer's bytes, and a [`Stitched`] with its digests. A
//! wheel is a zip of deflate streams, and concatenated gzip members are one gzip stream: each file is one
//! member around the wheel's own stream, between members with the tar's headers. That is eStargz's structure
//! too, so the layer ends with its table of contents, and a snapshotter that knows the format can start a
//! container before it has fetched the layer.
//!
//! The same wheels and [`Spec`] give the same bytes, on any host, at any time and with any number of
//! threads. Never writes outside of the scheme's directories, never trusts a checksum or RECORD, and holds a
//! few MiB for each thread, whatever the size of a file. Bytes written before an error are not a valid
//! layer.
//!
//! Sources: PyPA's "Binary distribution format" and "Recording installed projects"; OCI's image
//! layer specification; `docs/estargz.md` of stargz-snapshotter; RFC 1951, RFC 1952; POSIX pax.
//!
//! Differs from pip where the specification or an image requires it: scripts are executable even if the
//! archive has no modes, no byte code, no `direct_url.json`, and RECORD is sorted. Two wheels with different
//! files of one name are refused, where pip keeps the one that it installs last. A deflate stream cannot be
//! entered in its middle, so such a file is one chunk for a snapshotter, however large; files that are
//! stored in the wheel are compressed here in chunks, and so are those that replace a member, cut by their
//! content.

mod content;
mod cut;
mod error;
mod group;
mod gzip;
mod install;
mod installed;
mod layout;
mod ordered;
mod record;
mod scheme;
mod scripts;
mod sums;
mod tar;
#[cfg(test)]
mod tests;
mod toc;
mod tree;
mod wheel;
mod write;

use crate::oci::Layer;
use stackforge_types::Digest;

pub use cut::Changed;
pub use error::{LayerError, WheelFault};
pub use group::{Limits, Part, group};
pub use install::Install;
pub use scheme::Scheme;
pub use stackforge_binary::source::FileSource;
pub use wheel::Wheel;
pub use write::{disjoint, write};

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
