//! A suite's `InRelease`: the signed list of its index files.
//!
//! The input is the file's bytes, a keyring and the time; the output is the list of files, read from
//! exactly the text that the signature covers (RFC 9580 section 7: dash-escapes removed, trailing white
//! space dropped). It must never return a field from an unsigned part, of another suite, or of a
//! release past its `Valid-Until`.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::control::{ControlError, StanzaReader};
use super::package::is_pool_path;
use stackforge_openpgp::{Keyring, NotSigned, SignedText};
use stackforge_types::Digest;
use stackforge_types::date::parse_rfc2822;

/// Largest InRelease that is read, in bytes. Debian's own has about 150 KiB.
pub const MAX_RELEASE: usize = 16 << 20;

/// Why a release cannot be trusted or read.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The file is not a signed text.
    #[error("InRelease of `{suite}` is not a clear-signed message")]
    NotSigned {
        /// The suite.
        suite: String,
        /// What the OpenPGP reader says.
        #[source]
        source: NotSigned,
    },
    /// The file is larger than [`MAX_RELEASE`].
    #[error("InRelease of `{suite}` is longer than {MAX_RELEASE} bytes")]
    TooLong {
        /// The suite.
        suite: String,
    },
    /// The file has no valid signature by a key of the keyring.
    #[error(
        "InRelease of `{suite}` has no good signature by a key of the keyring; it is signed by {signers}"
    )]
    BadSignature {
        /// The suite.
        suite: String,
        /// Key IDs of the file's signatures, for display.
        signers: String,
    },
    /// The release is past its `Valid-Until`.
    #[error("InRelease of `{suite}` expired on {until}")]
    Expired {
        /// The suite.
        suite: String,
        /// Value of `Valid-Until`, as written.
        until: String,
    },
    /// The mirror returned another suite's release.
    #[error("InRelease was asked for `{suite}` and is of `{found}`")]
    OtherSuite {
        /// The suite.
        suite: String,
        /// The suite that the file names.
        found: String,
    },
    /// A field is missing or malformed.
    #[error("InRelease of `{suite}`: {reason}")]
    Malformed {
        /// The suite.
        suite: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The signed text does not parse.
    #[error("InRelease of `{suite}`")]
    Control {
        /// The suite.
        suite: String,
        /// What is wrong with it.
        #[source]
        source: ControlError,
    },
}

impl ReleaseError {
    /// Returns what to do about it, as a sentence without its full stop.
    pub fn help(&self) -> &'static str {
        match self {
            Self::BadSignature { .. } => {
                "use the keyring of this release; if it is the right one, the mirror or a proxy alters its files"
            }
            Self::Expired { .. } => {
                "the mirror is out of date, or this machine's clock is wrong: use another mirror or set the clock"
            }
            Self::OtherSuite { .. } => {
                "the mirror's configuration points at another distribution or release"
            }
            _ => {
                "the mirror or a proxy answers with something else: open the address in a browser, or use another mirror"
            }
        }
    }
}

/// An index file that the release vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFile {
    /// Size of the file in bytes.
    pub size: u64,
    /// Digest of the file.
    pub sha256: Digest,
}

/// A verified release.
#[derive(Debug, Clone)]
pub struct Release {
    /// The index files by their path below `dists/SUITE/`.
    pub files: BTreeMap<String, IndexFile>,
    /// Whether index files can also be fetched by their digest, an address that survives a mirror's
    /// update.
    pub by_hash: bool,
    /// Architectures in Debian's spelling, such as `amd64`.
    pub architectures: Vec<String>,
    /// Date at which the archive made the release.
    pub date: Option<SystemTime>,
}

impl Release {
    /// Verifies and reads the InRelease of `suite`, given by its name or its codename.
    ///
    /// # Errors
    /// If the file is too long, is not signed by the keyring, has expired at `now`, belongs to another
    /// suite, or is malformed.
    pub fn verify(
        bytes: &[u8],
        suite: &str,
        keyring: &Keyring,
        now: SystemTime,
    ) -> Result<Self, ReleaseError> {
        let suite = || suite.to_owned();
        if bytes.len() > MAX_RELEASE {
            return Err(ReleaseError::TooLong { suite: suite() });
        }
        let signed = SignedText::parse(bytes).map_err(|source| ReleaseError::NotSigned {
            suite: suite(),
            source,
        })?;
        let Some(text) = signed.verified(keyring, now) else {
            return Err(ReleaseError::BadSignature {
                suite: suite(),
                signers: signers(&signed),
            });
        };
        parse(text, &suite(), now)
    }
}

fn signers(signed: &SignedText) -> String {
    let mut names = signed.signers();
    names.truncate(8);
    if names.is_empty() {
        "no known key".to_owned()
    } else {
        names.join(", ")
    }
}

/// Reads the text of a release without checking a signature: use [`Release::verify`] for that.
///
/// # Errors
/// If the release has expired at `now`, belongs to another suite, or is malformed.
pub fn parse(text: &str, suite: &str, now: SystemTime) -> Result<Release, ReleaseError> {
    let malformed = |reason: String| ReleaseError::Malformed {
        suite: suite.to_owned(),
        reason,
    };
    let control = |source| ReleaseError::Control {
        suite: suite.to_owned(),
        source,
    };
    let mut reader = StanzaReader::new(text.as_bytes());
    let stanza = reader
        .next_stanza()
        .map_err(control)?
        .ok_or_else(|| malformed("it is empty".to_owned()))?;
    let named = |field| stanza.get(field).unwrap_or_default();
    if named("Suite") != suite && named("Codename") != suite {
        return Err(ReleaseError::OtherSuite {
            suite: suite.to_owned(),
            found: format!(
                "{} ({})",
                named("Codename").escape_debug(),
                named("Suite").escape_debug()
            ),
        });
    }
    if let Some(until) = stanza.get("Valid-Until") {
        let time = parse_rfc2822(until).ok_or_else(|| {
            malformed(format!(
                "`Valid-Until: {}` is not a date",
                until.escape_debug()
            ))
        })?;
        if time < now {
            return Err(ReleaseError::Expired {
                suite: suite.to_owned(),
                until: until.to_owned(),
            });
        }
    }
    let list = stanza
        .get("SHA256")
        .ok_or_else(|| malformed("it has no list of SHA256 digests".to_owned()))?;
    let mut files = BTreeMap::new();
    for line in list.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [sha256, size, path] = words[..] else {
            return Err(malformed(format!(
                "`{}` is not digest, size and path",
                line.escape_debug()
            )));
        };
        let size = size
            .parse()
            .map_err(|_| malformed(format!("`{}` is not a size", size.escape_debug())))?;
        let (Ok(sha256), true) = (Digest::from_hex(sha256), is_pool_path(path)) else {
            return Err(malformed(format!(
                "`{}` is not digest, size and path",
                line.escape_debug()
            )));
        };
        files.insert(path.to_owned(), IndexFile { size, sha256 });
    }
    Ok(Release {
        files,
        by_hash: stanza.get("Acquire-By-Hash") == Some("yes"),
        architectures: named("Architectures")
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect(),
        date: stanza.get("Date").and_then(parse_rfc2822),
    })
}

#[cfg(test)]
mod tests;
