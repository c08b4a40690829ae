//! What a caller chooses for a client of registries.

use std::fmt;
use std::path::PathBuf;

use super::event::Observer;
use crate::RetryPolicy;

/// Which hosts may be reached without TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PlainHttp {
    /// This machine only.
    #[default]
    Loopback,
    /// Any host.
    Always,
    /// No host.
    Never,
}

/// Options of a registry client.
#[derive(Clone, Default)]
pub struct Options {
    /// Mirrors, `HOST[:PORT][/PREFIX]`, which every read asks first, in this order.
    pub mirrors: Vec<String>,
    /// Which hosts may be reached without TLS.
    pub plain_http: PlainHttp,
    /// How long failing requests are repeated.
    pub retry: RetryPolicy,
    /// A PEM bundle of authorities that are trusted besides the system's.
    pub authorities: Option<PathBuf>,
    /// Receives the events of transfers.
    pub observer: Option<Observer>,
    /// Most bytes per second of all fetched blobs together.
    pub rate: Option<u64>,
    /// Largest request in bytes when a blob is sent; without it, a blob is sent in one request.
    pub chunk: Option<u64>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("mirrors", &self.mirrors)
            .field("plain_http", &self.plain_http)
            .field("retry", &self.retry)
            .field("authorities", &self.authorities)
            .field("rate", &self.rate)
            .field("chunk", &self.chunk)
            .finish_non_exhaustive()
    }
}
