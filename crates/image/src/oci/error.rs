//! What can be wrong with an image at rest, and what to do.

use std::io;
use std::path::PathBuf;

use super::merge::MergeError;
use stackforge_binary::source::ReadError;
use stackforge_binary::tar::TarError;
use stackforge_types::{Digest, Platform};

#[derive(Debug, thiserror::Error)]
pub enum OciError {
    #[error("{} cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "{} is neither an OCI layout, an archive of one nor the output of `docker save`",
        .0.display()
    )]
    Unknown(PathBuf),
    #[error("{} is compressed; decompress it first", .0.display())]
    Compressed(PathBuf),
    #[error("{} is damaged: {source}", path.display())]
    Archive { path: PathBuf, source: TarError },
    #[error("member `{member}` {problem}")]
    Member {
        member: String,
        problem: &'static str,
    },
    #[error("{0} is missing; copy the image again")]
    Missing(String),
    #[error("{what} has {size} bytes, more than {most}")]
    TooLarge { what: String, size: u64, most: u64 },
    #[error("{what} cannot be read: {source}")]
    Bytes { what: String, source: ReadError },
    #[error("{what} has {found} bytes in place of {expected}; copy the image again")]
    Size {
        what: String,
        expected: u64,
        found: u64,
    },
    #[error("{what} has the digest {found} in place of {expected}; copy the image again")]
    Altered {
        what: String,
        expected: Digest,
        found: Digest,
    },
    #[error("{what} is not what it should be: {source}")]
    Json {
        what: String,
        source: serde_json::Error,
    },
    #[error("{what} {problem}")]
    Malformed { what: String, problem: String },
    #[error("the digest `{0}` is no sha256 digest, which is all that is read")]
    Algorithm(String),
    #[error("{what} has the media type `{media_type}`, {why}")]
    MediaType {
        what: String,
        media_type: String,
        why: &'static str,
    },
    #[error("no image is `{reference}`; there is {}", list(.there))]
    NoReference {
        reference: String,
        there: Vec<String>,
    },
    #[error("no image is for {platform}; there is {}", list(.there))]
    NoPlatform {
        platform: Platform,
        there: Vec<String>,
    },
    #[error("there are several images: {}; name one by its tag, digest or platform", list(.0))]
    Several(Vec<String>),
    #[error("layer {digest}: {source}")]
    Layer { digest: Digest, source: TarError },
    #[error("layer {digest}: {source}")]
    Merge { digest: Digest, source: MergeError },
}

fn list(there: &[String]) -> String {
    const MOST: usize = 20;
    if there.is_empty() {
        return "none".to_owned();
    }
    let mut out: Vec<String> = there
        .iter()
        .take(MOST)
        // Names come from the file and may hold anything.
        .map(|name| {
            name.chars()
                .take(200)
                .flat_map(char::escape_debug)
                .collect()
        })
        .collect();
    if there.len() > MOST {
        out.push(format!("{} more", there.len() - MOST));
    }
    out.join(", ")
}
