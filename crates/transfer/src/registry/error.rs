//! Errors of a registry. Each says what was being done and to what; [`RegistryError::help`] says what to do
//! about it. None contains a secret.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::failure::{Failure, excerpt, innermost, is_passing_status};
use stackforge_types::Digest;
use stackforge_types::reference::BadReference;

/// Why a registry request failed. `doing` says what was being done: "reading the manifest `a:b`".
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The name of an image is malformed.
    #[error(transparent)]
    Reference(#[from] BadReference),
    /// The HTTP client cannot be created.
    #[error("setting up the network client")]
    Client(#[source] reqwest::Error),
    /// No connection could be made.
    #[error("{doing}: `{host}` cannot be reached{}", because(source))]
    Unreachable {
        /// The registry or mirror.
        host: String,
        /// What was being done.
        doing: String,
        /// What the HTTP client says.
        #[source]
        source: reqwest::Error,
    },
    /// A connection was made, but its certificate is not trusted.
    #[error(
        "{doing}: the certificate of `{host}` is not accepted{}",
        because(source)
    )]
    Tls {
        /// The registry or mirror.
        host: String,
        /// What was being done.
        doing: String,
        /// What the HTTP client says.
        #[source]
        source: reqwest::Error,
    },
    /// The connection ended before the response did.
    #[error("{doing}: the connection to `{host}` broke{}", because(source))]
    Cut {
        /// The registry or mirror.
        host: String,
        /// What was being done.
        doing: String,
        /// What the HTTP client says.
        #[source]
        source: reqwest::Error,
    },
    /// HTTP status 401, even after a token was fetched.
    #[error("{doing}: `{host}` requires a login ({used}){}", listed(errors))]
    Unauthorized {
        /// The registry or mirror.
        host: String,
        /// What was being done.
        doing: String,
        /// Which credentials were used, for people.
        used: Box<str>,
        /// What the registry says.
        errors: ApiErrors,
    },
    /// HTTP status 403.
    #[error("{doing}: `{host}` does not allow it ({used}){}", listed(errors))]
    Denied {
        /// The registry or mirror.
        host: String,
        /// What was being done.
        doing: String,
        /// Which credentials were used, for people.
        used: Box<str>,
        /// What the registry says.
        errors: ApiErrors,
    },
    /// HTTP status 404.
    #[error("`{host}` has no {what}{}", listed(errors))]
    Missing {
        /// The registry or mirror.
        host: String,
        /// What is missing: "blob `a@sha256:…`".
        what: String,
        /// What the registry says.
        errors: ApiErrors,
    },
    /// HTTP status 429.
    #[error("{doing}: `{host}` limits how often it is asked{}", seconds(*after))]
    Limited {
        /// The registry or mirror.
        host: String,
        /// What was being done.
        doing: String,
        /// How long the server asks to wait before the next request.
        after: Option<Duration>,
    },
    /// Another HTTP status that is a failure.
    #[error("{doing}: `{host}` answers {status}{}", listed(errors))]
    Status {
        /// The registry or mirror.
        host: String,
        /// What was being done.
        doing: String,
        /// The HTTP status code.
        status: u16,
        /// How long the server asks to wait before the next request.
        after: Option<Duration>,
        /// What the registry says.
        errors: ApiErrors,
    },
    /// A response that violates the specification.
    #[error("{doing}: `{host}` answers what cannot be right: {reason}")]
    Protocol {
        /// The registry or mirror.
        host: String,
        /// What was being done.
        doing: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The received bytes have another digest. Nothing of them was kept.
    #[error("{doing}: what `{host}` sends is {found}")]
    Corrupt {
        /// The registry or mirror.
        host: String,
        /// What was being done.
        doing: String,
        /// The digest of the received bytes.
        found: Box<Digest>,
    },
    /// Every response for the blob ends before its full size.
    #[error("{doing}: `{host}` ends after {received} of {size} bytes")]
    Truncated {
        /// The registry or mirror.
        host: String,
        /// What was being done.
        doing: String,
        /// Bytes that arrived.
        received: u64,
        /// Size of the blob in bytes.
        size: u64,
    },
    /// The token service gave no token.
    #[error("{doing}: the token service `{realm}` {reason} ({used})")]
    Token {
        /// The address of the token service.
        realm: String,
        /// What was being done.
        doing: String,
        /// Which credentials were used, for people.
        used: Box<str>,
        /// What the service did instead; completes "the token service …".
        reason: String,
        /// Whether the same request may succeed later.
        passing: bool,
    },
    /// The payload to push does not have its digest.
    #[error("{doing}: the content to push is {found}")]
    Payload {
        /// What was being done.
        doing: String,
        /// The digest of the payload.
        found: Box<Digest>,
    },
    /// Another client changed the tag meanwhile.
    #[error("{doing}: it is {} now", or_nothing(found.as_deref()))]
    Changed {
        /// What was being done.
        doing: String,
        /// The tag's digest now; `None` if the tag is gone.
        found: Option<Box<Digest>>,
    },
    /// A file of this machine cannot be used.
    #[error("{doing} `{}`", path.display())]
    File {
        /// What was being done: `writing`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },
}

impl RegistryError {
    /// Classifies a failed request: repeating it does not help against a wrong name or certificate.
    pub(super) fn transfer(error: reqwest::Error, host: &str, doing: &str) -> Self {
        let (host, doing, source) = (host.to_owned(), doing.to_owned(), error.without_url());
        match Failure::of(&source) {
            Failure::Redirect => Self::Protocol {
                host,
                doing,
                reason: innermost(&source).unwrap_or_default(),
            },
            Failure::Certificate => Self::Tls {
                host,
                doing,
                source,
            },
            Failure::Unreachable => Self::Unreachable {
                host,
                doing,
                source,
            },
            Failure::Cut | Failure::Request => Self::Cut {
                host,
                doing,
                source,
            },
        }
    }

    /// A failed write of a file of this machine.
    pub(super) fn writing(path: &Path, source: std::io::Error) -> Self {
        Self::File {
            doing: "writing",
            path: path.to_owned(),
            source,
        }
    }

    /// Whether the registry answered that it has no such object.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    /// Whether the same request may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Cut { .. }
            | Self::Corrupt { .. }
            | Self::Truncated { .. }
            | Self::Limited { .. } => true,
            Self::Status { status, errors, .. } => {
                // A registry on plain files may read a file that another request is still writing, and then
                // gives these errors for complete uploads.
                let torn = ["DIGEST_INVALID", "MANIFEST_BLOB_UNKNOWN"];
                is_passing_status(*status)
                    || (*status == 400 && torn.iter().any(|code| errors.has(code)))
            }
            Self::Token { passing, .. } => *passing,
            _ => false,
        }
    }

    /// How long the server asks to wait before the next request.
    pub(super) fn asked_pause(&self) -> Option<Duration> {
        match self {
            Self::Limited { after, .. } | Self::Status { after, .. } => *after,
            _ => None,
        }
    }

    /// Advice for the user, as a sentence without its full stop.
    pub fn help(&self) -> String {
        let text = match self {
            Self::Reference { .. } => {
                "write it like `nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04`; names are in lower case"
            }
            Self::Client(_) => "check that SSL_CERT_FILE and the proxy variables name what exists",
            Self::Tls { .. } => {
                "behind a proxy that inspects TLS, or for a registry with its own authority, point SSL_CERT_FILE at a bundle that has the authority's certificate"
            }
            Self::Unreachable { .. } | Self::Cut { .. } | Self::Truncated { .. } => {
                "check the network, the registry's name and HTTPS_PROXY; a registry that speaks plain HTTP has to be named as such unless it is on loopback"
            }
            Self::Unauthorized { host, .. } => {
                return format!(
                    "run `docker login {host}`, or check the name: a registry also answers this for what it does not have"
                );
            }
            Self::Denied { host, .. } => {
                return format!(
                    "check that the account may do this, or run `docker login {host}` with another"
                );
            }
            Self::Missing { .. } => "check the name and the tag",
            Self::Limited { .. } => "wait, log in for a higher limit, or use a mirror",
            Self::Status { .. } => {
                "try again later; when it stays, the registry's operator has to look"
            }
            Self::Protocol { .. } => {
                "check that this is a registry; a proxy or a login page may answer in its place"
            }
            Self::Corrupt { .. } => {
                "the registry, a mirror or a proxy alters what it sends: use another one"
            }
            Self::Token { .. } => {
                "check the credentials and the network; `docker login` renews them"
            }
            Self::Payload { .. } => "the file was changed or damaged: make it again",
            Self::Changed { .. } => "read it again and repeat the change",
            Self::File { .. } => "check the space and the permissions of the directory",
        };
        text.to_owned()
    }
}

/// The `errors: [{code, message}]` of a response, with the distribution specification's codes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiErrors(pub Vec<ApiError>);

/// One error of a registry's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// `MANIFEST_UNKNOWN`, `DENIED`, …
    pub code: String,
    /// Message for people; may be empty.
    pub message: String,
}

impl ApiErrors {
    /// Parses the body of an error response; empty if it has another format.
    pub(super) fn decode(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Body {
            errors: Vec<Entry>,
        }
        #[derive(Deserialize)]
        struct Entry {
            #[serde(default)]
            code: String,
            #[serde(default)]
            message: Option<String>,
        }
        let Ok(body) = serde_json::from_slice::<Body>(body) else {
            return Self::default();
        };
        let entries = body.errors.into_iter().take(5).map(|entry| ApiError {
            code: excerpt(&entry.code),
            message: excerpt(&entry.message.unwrap_or_default()),
        });
        Self(entries.collect())
    }

    /// Whether one of the errors has this code.
    pub fn has(&self, code: &str) -> bool {
        self.0.iter().any(|error| error.code == code)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code.is_empty(), self.message.is_empty()) {
            (false, false) => write!(f, "{}: {}", self.code, self.message),
            (true, _) => f.write_str(&self.message),
            (_, true) => f.write_str(&self.code),
        }
    }
}

fn listed(errors: &ApiErrors) -> String {
    errors.0.iter().map(|error| format!(": {error}")).collect()
}

fn seconds(after: Option<Duration>) -> String {
    after.map_or(String::new(), |after| {
        format!(" and wants {} s of rest", after.as_secs())
    })
}

fn or_nothing(digest: Option<&Digest>) -> String {
    digest.map_or("gone".to_owned(), Digest::to_string)
}

/// The innermost cause, as the end of a message.
fn because(error: &reqwest::Error) -> String {
    innermost(error).map_or_else(String::new, |text| format!(": {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registrys_own_words_are_shown() {
        let errors = ApiErrors::decode(
            br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest \u001b[31m unknown","detail":{"Tag":"x"}},{"code":"DENIED"}]}"#,
        );
        assert!(errors.has("DENIED"));
        let error = RegistryError::Missing {
            host: "a.example".to_owned(),
            what: "manifest `a/b:x`".to_owned(),
            errors,
        };
        assert_eq!(
            error.to_string(),
            "`a.example` has no manifest `a/b:x`: MANIFEST_UNKNOWN: manifest \\u{1b}[31m unknown: DENIED"
        );
    }

    #[test]
    fn bodies_of_another_kind_say_nothing() {
        for body in [&b"<html>"[..], b"{}", b"{\"errors\":null}", b"[]", b"\xff"] {
            assert_eq!(ApiErrors::decode(body), ApiErrors::default());
        }
    }
}
