//! What can be wrong with an image at rest, and what to do about it.

use std::io;
use std::path::PathBuf;

use super::merge::MergeError;
use stackforge_binary::source::ReadError;
use stackforge_binary::tar::TarError;
use stackforge_types::{Digest, Platform};

/// Why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The file is not an image layout, an archive of one, or what `docker save` writes.
    #[error(
        "{} is neither an OCI layout, an archive of one nor the output of `docker save`",
        .0.display()
    )]
    Unknown(PathBuf),
    /// The archive is compressed as a whole, but it must be readable at any offset.
    #[error("{} is compressed; decompress it first", .0.display())]
    Compressed(PathBuf),
    /// The archive is not a sound tar.
    #[error("{} is damaged: {source}", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// What is wrong with it.
        source: TarError,
    },
    /// A member of the archive cannot be used.
    #[error("member `{member}` {problem}")]
    Member {
        /// The member.
        member: String,
        /// What is wrong with it; completes "member `NAME` …".
        problem: &'static str,
    },
    /// A document or blob that the image names is missing.
    #[error("{0} is missing; copy the image again")]
    Missing(String),
    /// A document exceeds the bound that keeps memory small.
    #[error("{what} has {size} bytes, more than {most}")]
    TooLarge {
        /// The document.
        what: String,
        /// Its size in bytes.
        size: u64,
        /// The bound in bytes.
        most: u64,
    },
    /// A document or blob cannot be read.
    #[error("{what} cannot be read: {source}")]
    Bytes {
        /// The document or blob.
        what: String,
        /// Why.
        source: ReadError,
    },
    /// A document or blob has another size than its descriptor.
    #[error("{what} has {found} bytes in place of {expected}; copy the image again")]
    Size {
        /// The document or blob.
        what: String,
        /// Bytes that it should have.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// A document or blob has another digest than its descriptor.
    #[error("{what} has the digest {found} in place of {expected}; copy the image again")]
    Altered {
        /// The document or blob.
        what: String,
        /// The digest that it should have.
        expected: Digest,
        /// The digest that it has.
        found: Digest,
    },
    /// A document does not parse.
    #[error("{what} is not what it should be: {source}")]
    Json {
        /// The document.
        what: String,
        /// What the JSON reader says.
        source: serde_json::Error,
    },
    /// A document contradicts itself or the specification.
    #[error("{what} {problem}")]
    Malformed {
        /// The document.
        what: String,
        /// Completes "the manifest … …".
        problem: String,
    },
    /// A digest that is not SHA-256, as written.
    #[error("the digest `{0}` is not a sha256 digest, the only kind that is read")]
    Algorithm(String),
    /// Something has an unsupported media type.
    #[error("{what} has the media type `{media_type}`, {why}")]
    MediaType {
        /// The object: "layer `sha256:…`".
        what: String,
        /// Its media type.
        media_type: String,
        /// Why it is not supported.
        why: &'static str,
    },
    /// No image has the requested name.
    #[error("no image is `{reference}`; there is {}", list(.available))]
    NoReference {
        /// The name that was asked for.
        reference: String,
        /// The names that exist.
        available: Vec<String>,
    },
    /// No image is for the requested platform.
    #[error("no image is for {platform}; there is {}", list(.available))]
    NoPlatform {
        /// The platform that was asked for.
        platform: Platform,
        /// The platforms that exist.
        available: Vec<String>,
    },
    /// The names of the images to choose from.
    #[error("there are several images: {}; name one by its tag, digest or platform", list(.0))]
    Several(Vec<String>),
    /// A layer's tar is not sound.
    #[error("layer {digest}: {source}")]
    Layer {
        /// The layer's digest.
        digest: Digest,
        /// What is wrong with it.
        source: TarError,
    },
    /// A layer cannot be applied over those below it.
    #[error("layer {digest}: {source}")]
    Merge {
        /// The layer's digest.
        digest: Digest,
        /// What is wrong with it.
        source: MergeError,
    },
}

fn list(available: &[String]) -> String {
    const MOST: usize = 20;
    if available.is_empty() {
        return "none".to_owned();
    }
    let mut out: Vec<String> = available
        .iter()
        .take(MOST)
        // The names come from the file and may contain anything.
        .map(|name| {
            name.chars()
                .take(200)
                .flat_map(char::escape_debug)
                .collect()
        })
        .collect();
    if available.len() > MOST {
        out.push(format!("{} more", available.len() - MOST));
    }
    out.join(", ")
}
