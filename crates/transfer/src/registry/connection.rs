//! Connections: certificates, proxies, and where a redirect may lead.
//!
//! In: options, and whether a server is this machine. Out: a client that never redirects from TLS to plain
//! HTTP, and that uses no proxy for loopback; and for requests with credentials in the body, one that never
//! leaves the server that it asks.

use std::path::Path;
use std::time::Duration;

use reqwest::redirect::Policy;

use super::{Options, RegistryError};

const MOST_REDIRECTS: usize = 10;

/// Whether a host name means this machine; names are not resolved.
pub(super) fn is_loopback(name: &str) -> bool {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost"
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// How a server is connected to.
#[derive(Clone)]
pub(super) struct Connection {
    pub options: Options,
    /// Whether plain HTTP may be used.
    pub plain: bool,
    pub loopback: bool,
}

/// Where redirects may lead.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Redirects {
    Anywhere,
    /// For credentials in a body: reqwest removes them from a redirected request's headers, but not from its
    /// body.
    SameOrigin,
}

impl Connection {
    /// A client that trusts the system's certificates, or those of SSL_CERT_FILE, and the options'.
    pub(crate) fn client(&self, redirects: Redirects) -> Result<reqwest::Client, RegistryError> {
        // An error means that a provider is already installed, which is fine too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("stackforge/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(20))
            .read_timeout(self.options.patience.stall)
            .http2_adaptive_window(true)
            .redirect(policy(self.plain, redirects));
        if self.loopback {
            builder = builder.no_proxy();
        }
        if let Some(path) = &self.options.authorities {
            builder = builder.tls_certs_merge(authorities(path)?);
        }
        builder.build().map_err(RegistryError::Client)
    }
}

fn policy(plain: bool, redirects: Redirects) -> Policy {
    Policy::custom(move |attempt| {
        let safe = attempt.url().scheme() == "https"
            || plain && attempt.previous().iter().all(|url| url.scheme() == "http");
        let leaves = |url: &reqwest::Url| url.origin() != attempt.url().origin();
        if attempt.previous().len() > MOST_REDIRECTS {
            attempt.error("too many redirects")
        } else if !safe {
            attempt.error("a redirect to an address without TLS")
        } else if redirects == Redirects::SameOrigin && attempt.previous().iter().any(leaves) {
            attempt.error("a redirect of credentials to another server")
        } else {
            attempt.follow()
        }
    })
}

fn authorities(path: &Path) -> Result<Vec<reqwest::Certificate>, RegistryError> {
    let bytes = std::fs::read(path).map_err(|source| RegistryError::File {
        doing: "reading the certificates of",
        path: path.to_owned(),
        source,
    })?;
    reqwest::Certificate::from_pem_bundle(&bytes).map_err(RegistryError::Client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        for name in ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"] {
            assert!(is_loopback(name), "{name}");
        }
        for name in ["localhost.example", "10.0.0.1", "127.0.0.1.example", ""] {
            assert!(!is_loopback(name), "{name}");
        }
    }
}
