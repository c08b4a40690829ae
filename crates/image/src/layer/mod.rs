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
//! archive has no modes, no byte code (a layer of [`files`] may hold it), no `direct_url.json`, and RECORD is sorted. Two wheels with different
//! files of one name are refused, where pip keeps the one that it installs last. A deflate stream cannot be
//! entered in its middle, so such a file is one chunk for a snapshotter, however large; files that are
//! stored in the wheel are compressed here in chunks, and so are those that replace a member, cut by their
//! content.

mod content;
mod cut;
mod error;
mod files;
mod group;
mod gzip;
mod install;
mod installed;
mod layout;
mod metadata;
mod namespace;
mod ordered;
mod record;
mod scheme;
mod scripts;
mod spec;
mod sums;
mod tar;
#[cfg(test)]
mod tests;
mod toc;
mod tree;
mod wheel;
mod write;

pub use cut::Changed;
pub use error::{LayerError, WheelFault};
pub use files::{files, installed};
pub use group::{Limits, Part, group};
pub use install::Install;
pub use metadata::{LONGEST_METADATA, is_metadata, metadata};
pub use scheme::Scheme;
pub use spec::{Spec, Stitched};
pub use stackforge_binary::source::FileSource;
pub use wheel::Wheel;
pub use write::{disjoint, write, write_watched};
