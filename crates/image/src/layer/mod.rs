//! Wheels as a layer: what pip would install, as a gzip tar, without recompressing it.
//!
//! In: [`Wheel`]s and where they go. Out: the layer's bytes, and a [`Layer`] with its digests. A
//! wheel is a zip of deflate streams, and gzip members in a row are one gzip stream: each file is
//! one member around the wheel's own stream, between members with the tar's headers. That is
//! eStargz's structure too, so the layer ends with its table of contents, and a snapshotter that
//! knows the format can start a container before it has the layer.
//!
//! Same wheels and [`Spec`], same bytes: no clock, no host, no number of threads is in them. Never
//! writes outside of the scheme's folders, never believes a checksum or RECORD, and holds a few
//! MiB for each thread, whatever the size of a file. What was written before an error is no layer.
//!
//! Sources: PyPA's "Binary distribution format" and "Recording installed projects"; OCI's image
//! layer specification; `docs/estargz.md` of stargz-snapshotter; RFC 1951, RFC 1952; POSIX pax.
//!
//! Differs from pip where the specification or an image wants it: scripts are executable even if
//! the archive says nothing, no byte code, no `direct_url.json`, and RECORD is sorted. Two wheels
//! with different files of one name are refused, where pip keeps the one that it installs last.
//! A deflate stream cannot be entered in its middle, so such a file is one chunk for a snapshotter,
//! however large; files that are stored in the wheel are compressed here in chunks, and so are those
//! that take a member's place, cut by their content.

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

pub use cut::Changed;
pub use error::{LayerError, WheelFault};
pub use group::{Limits, Part, group};
pub use install::Install;
pub use scheme::Scheme;
pub use stackforge_binary::source::FileSource;
pub use wheel::Wheel;
pub use write::{disjoint, write};

/// What a layer is besides its wheels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Where the parts of a wheel go.
    pub scheme: Scheme,
    /// Absolute path of the interpreter that scripts name.
    pub python: String,
    /// Of every file, in seconds since 1970: SOURCE_DATE_EPOCH.
    pub epoch: u32,
    /// Of what is compressed here, 0 to 9.
    pub level: u32,
    /// That inflate and compress; hashing has three more.
    pub threads: usize,
}

/// A layer that was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    /// `sha256:…` of the layer, of the tar in it and of its table of contents.
    pub digest: String,
    /// `sha256:…` of the tar in the layer.
    pub diff_id: String,
    /// `sha256:…` of the table of contents, for snapshotters that read layers lazily.
    pub toc_digest: String,
    /// In bytes, of the layer and of the tar in it.
    pub size: u64,
    /// Bytes of the tar in the layer.
    pub plain_size: u64,
    /// Files in the layer.
    pub files: u64,
    /// Files that their wheel's RECORD does not list, as `WHEEL: FILE`. The specification forbids
    /// it, pip does not mind.
    pub unlisted: Vec<String>,
    /// Files of vouched wheels whose RECORD states another digest, likewise. The RECORD of the layer
    /// has the digest that they have.
    pub misstated: Vec<String>,
}

impl Layer {
    /// What an image's manifest says of the layer, for snapshotters.
    pub fn annotations(&self) -> [(&'static str, String); 2] {
        [
            (
                "containerd.io/snapshot/stargz/toc.digest",
                self.toc_digest.clone(),
            ),
            (
                "io.containers.estargz.uncompressed-size",
                self.plain_size.to_string(),
            ),
        ]
    }
}
