//! Why a file could not be fetched, and what to do about it.

use crate::failure::{Failure, is_passing_status};
use std::path::{Path, PathBuf};

/// Why a file could not be fetched. No message contains a credential.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The HTTP client cannot be created.
    #[error("setting up the network client")]
    Client(#[source] reqwest::Error),
    /// The address does not parse, or has an unsupported scheme.
    #[error("`{url}` is not an http or https address")]
    Address {
        /// The address, without credentials.
        url: String,
    },
    /// The name is empty, hidden or too long, or has a separator or a control character.
    #[error("`{name}` is not the name of a file")]
    Name {
        /// The name as given in [`Download::name`](super::Download::name).
        name: String,
    },
    /// [`Download::urls`](super::Download::urls) is empty.
    #[error("`{name}` has no address to be fetched from")]
    Nowhere {
        /// The file's name.
        name: String,
    },
    /// The connection failed or broke.
    #[error("fetching `{url}`")]
    Transfer {
        /// The address, without credentials.
        url: String,
        /// What the HTTP client says.
        #[source]
        source: reqwest::Error,
    },
    /// The connection ended before the file did.
    #[error("`{url}` ended after {have} of {size} bytes")]
    Short {
        /// The address, without credentials.
        url: String,
        /// Bytes that arrived.
        have: u64,
        /// Bytes that the server announced.
        size: u64,
    },
    /// The server answered with a failure status.
    #[error("`{url}` answers {status}{}", wait_text(*.wait))]
    Status {
        /// The address, without credentials.
        url: String,
        /// The HTTP status code.
        status: u16,
        /// Seconds to wait before the next request, if the server asked for it.
        wait: Option<u64>,
        /// What is wrong with the user's netrc file.
        netrc: Option<String>,
    },
    /// The answer is longer than the caller's limit.
    #[error("`{url}` is longer than {limit} bytes")]
    TooLong {
        /// The address, without credentials.
        url: String,
        /// The caller's limit in bytes.
        limit: u64,
    },
    /// The file has another digest or size. Nothing of it was kept.
    #[error("`{name}` from `{url}` is not what was asked for: {reason}")]
    Mismatch {
        /// The file's name.
        name: String,
        /// The address, without credentials.
        url: String,
        /// What differs.
        reason: String,
    },
    /// The disk or the user's quota is full.
    #[error("no space left for `{}`, of which {kept} bytes are kept", path.display())]
    Full {
        /// The file that was written.
        path: PathBuf,
        /// Bytes that are kept for the next call.
        kept: u64,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },
    /// A file or directory of this machine cannot be used.
    #[error("{doing} `{}`", path.display())]
    Io {
        /// What was being done: `writing`.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },
}

fn wait_text(wait: Option<u64>) -> String {
    wait.map_or_else(String::new, |s| format!(" and asks to wait {s} s"))
}

impl FetchError {
    /// Whether the server answered that it has no such file.
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::Nowhere { .. }
                | Self::Status {
                    status: 404 | 410,
                    ..
                }
        )
    }

    /// Whether the server requires a login, or refused the one given.
    pub fn is_denied(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: 401 | 403 | 407,
                ..
            }
        )
    }

    /// Whether the disk or the user's quota is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// Whether the same request may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Transfer { source, .. } => Failure::of(source).is_passing(),
            Self::Short { .. } => true,
            Self::Status { status, .. } => is_passing_status(*status),
            _ => false,
        }
    }

    /// Whether the cause is on this machine, so another server could not help.
    pub(super) fn is_local(&self) -> bool {
        matches!(
            self,
            Self::Full { .. } | Self::Io { .. } | Self::Name { .. } | Self::Client(_)
        )
    }

    /// Advice for the user, as a sentence without its full stop.
    pub fn help(&self) -> String {
        let help = match self {
            Self::Full { .. } => {
                "make space, or put the store on another file system, and run it again: it goes on where it stopped"
            }
            Self::Io { .. } | Self::Name { .. } => {
                "check the space and the permissions of the cache directory"
            }
            Self::Mismatch { .. } => {
                "the server or a proxy alters its files: use another mirror or index"
            }
            Self::Status {
                status: 401 | 403 | 407,
                netrc,
                ..
            } => {
                let login = "the server requires a login: add its host to ~/.netrc (or the file that NETRC names), or user and password to the address";
                return match netrc {
                    Some(wrong) => format!("{login}; {wrong}"),
                    None => login.to_owned(),
                };
            }
            Self::Status {
                status: 404 | 410, ..
            }
            | Self::Nowhere { .. } => {
                "the file is gone there: lock again, or use a mirror or index that keeps it"
            }
            Self::Status { status: 429, .. } => {
                "the server limits requests: run it again later, or use a mirror"
            }
            Self::Transfer { source, .. } if source.is_redirect() => {
                "the server refers to where the file must not come from: use another mirror or index"
            }
            Self::Address { .. } => "give an address that starts with `https://` or `http://`",
            Self::Short { .. }
            | Self::TooLong { .. }
            | Self::Status { .. }
            | Self::Transfer { .. }
            | Self::Client(_) => {
                "check the network and the mirror; behind a proxy that inspects TLS, point SSL_CERT_FILE at its certificate"
            }
        };
        help.to_owned()
    }

    pub(super) fn io(doing: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    }
}
