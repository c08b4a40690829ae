//! Connections: certificates, proxies, and where a redirect may lead.
//!
//! In: options, and whether a server is this machine. Out: a client that never redirects from TLS to plain
//! HTTP, and that uses no proxy for loopback; and for requests with credentials in the body, one that never
//! leaves the server that it asks.

use std::path::Path;

use super::{Options, RegistryError};
use crate::client::{Redirects, builder};

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

impl Connection {
    /// A client that also trusts the options' authorities. With `same_origin`, for credentials in a body, it
    /// follows no redirect to another server.
    pub(crate) fn client(&self, same_origin: bool) -> Result<reqwest::Client, RegistryError> {
        let redirects = Redirects {
            plain: self.plain,
            same_origin,
        };
        let mut builder = builder(self.options.retry.stall, redirects);
        if self.loopback {
            builder = builder.no_proxy();
        }
        if let Some(path) = &self.options.authorities {
            builder = builder.tls_certs_merge(authorities(path)?);
        }
        builder.build().map_err(RegistryError::Client)
    }
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
