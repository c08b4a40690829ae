//! What enters RUN steps as secrets: certificates, index settings, job limits.

use super::BuildError;
use crate::render::quote::sh;
use stackforge_engine::Secret;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Environment variables that tell the installers where packages come from; may hold credentials.
#[derive(Clone, Default)]
pub struct IndexSettings(pub BTreeMap<String, String>);

impl std::fmt::Debug for IndexSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexSettings({} values)", self.0.len())
    }
}

/// Returns the CA certificates that this host trusts: SSL_CERT_FILE, else the distribution's bundle.
pub fn ca_bundle() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let usual = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    named
        .into_iter()
        .chain(usual.into_iter().map(PathBuf::from))
        .find(|p| p.is_file())
}

pub(super) fn secrets(
    index: &IndexSettings,
    jobs: Option<u32>,
) -> Result<BTreeMap<String, Secret>, BuildError> {
    let mut secrets = BTreeMap::new();
    if let Some(path) = ca_bundle() {
        let bytes = std::fs::read(&path).map_err(|source| BuildError::Io {
            doing: "read the CA bundle",
            path,
            source,
        })?;
        secrets.insert("ca".to_owned(), Secret::new(bytes));
    }
    if !index.0.is_empty() {
        let mut text = String::new();
        for (name, value) in &index.0 {
            text.push_str(&format!("export {name}={}\n", sh(value)));
        }
        secrets.insert("index".to_owned(), Secret::new(text));
    }
    if let Some(jobs) = jobs {
        secrets.insert("jobs".to_owned(), Secret::new(jobs.to_string()));
    }
    Ok(secrets)
}

/// Returns the proxy variables of the environment. BuildKit predefines these build arguments and keeps them
/// out of cache keys and history.
pub(super) fn proxies() -> BTreeMap<String, String> {
    ["http_proxy", "https_proxy", "no_proxy", "all_proxy"]
        .into_iter()
        .flat_map(|n| [n.to_owned(), n.to_uppercase()])
        .filter_map(|n| {
            std::env::var(&n)
                .ok()
                .filter(|v| !v.is_empty())
                .map(|v| (n, v))
        })
        .collect()
}
