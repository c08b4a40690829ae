//! Fetches files of known content over HTTP into a directory.
//!
//! In: [`Download`]s, each a name, addresses in order of preference and a SHA-256. Out: paths of files with
//! that digest, and progress events. Fetches several at a time and resumes where an earlier attempt stopped,
//! in this process or an earlier one; if two processes want one file, one fetches it and the other waits.
//! Small responses without a digest (indexes, pages) are read whole by [`Fetcher::get`].
//!
//! Never: gives a final name to bytes that were not verified, shows a credential in a message, requests
//! bytes that are already here if the server supports ranges.

mod address;
mod client;
mod error;
mod file;
mod get;
mod headers;
mod netrc;
mod part;
mod progress;
mod retry;
mod writer;

use netrc::Logins;
use stackforge_types::Digest;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;

pub use client::client;
pub use error::FetchError;
pub use get::Answer;
pub use netrc::{Login, Netrc, NetrcError};
pub use progress::{Event, Progress, What};
pub use retry::Policy;
pub use stackforge_types::printable::without_credentials;

/// A file to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// Its final name, without a directory.
    pub name: String,
    /// Its addresses, the preferred one first. An address may contain `user:password@`.
    pub urls: Vec<String>,
    /// Digest of its content.
    pub sha256: Digest,
    /// Size in bytes, if known; then a file of another size is refused early.
    pub size: Option<u64>,
}

/// A fetched file, with the requested digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The file: the directory joined with [`Download::name`].
    pub path: PathBuf,
    /// Bytes received over the network in this call; 0 if the file existed.
    pub bytes: u64,
    /// Whether the file existed already, or another process fetched it.
    pub cached: bool,
}

/// Fetches files with the certificates, proxies and logins of this machine.
#[derive(Clone)]
pub struct Fetcher {
    client: reqwest::Client,
    logins: Arc<Logins>,
    policy: Policy,
    slots: Arc<Semaphore>,
    parts: Option<PathBuf>,
}

impl Fetcher {
    /// Creates a fetcher with the user's netrc file.
    ///
    /// # Errors
    /// As [`client()`].
    pub fn new(policy: Policy) -> Result<Self, FetchError> {
        Self::with(policy, Logins::of_user())
    }

    /// Creates a fetcher with these logins instead of the user's.
    ///
    /// # Errors
    /// As [`client()`].
    pub fn with_netrc(policy: Policy, netrc: Netrc) -> Result<Self, FetchError> {
        Self::with(policy, Logins::of(netrc))
    }

    fn with(policy: Policy, logins: Logins) -> Result<Self, FetchError> {
        Ok(Self {
            client: client::client_that_waits(policy.stall)?,
            logins: Arc::new(logins),
            slots: Arc::new(Semaphore::new(policy.parallel.max(1))),
            policy,
            parts: None,
        })
    }

    /// Puts part files into that directory instead of beside their final names. It must be on the same file
    /// system.
    pub fn with_parts(mut self, parts: PathBuf) -> Self {
        self.parts = Some(parts);
        self
    }

    /// Fetches all files; returns them in the order of `downloads`. The first error ends the others, whose
    /// parts are kept for the next call.
    ///
    /// # Errors
    /// The first error of any file: all addresses failed, the content differs, or the disk fails.
    pub async fn all(
        &self,
        downloads: &[Download],
        directory: &Path,
        on_event: &(dyn Fn(Event<'_>) + Sync),
    ) -> Result<Vec<Fetched>, FetchError> {
        let tracker = progress::Tracker::new(downloads, on_event);
        let files = downloads.iter().enumerate().map(|(index, download)| {
            let report = tracker.of(index);
            async move { self.one(download, directory, &report).await }
        });
        futures_util::future::try_join_all(files).await
    }

    /// Fetches one file.
    ///
    /// # Errors
    /// If all addresses failed, the content differs, or the disk fails.
    pub async fn file(
        &self,
        download: &Download,
        directory: &Path,
        on_event: &(dyn Fn(Event<'_>) + Sync),
    ) -> Result<Fetched, FetchError> {
        let downloads = std::slice::from_ref(download);
        let tracker = progress::Tracker::new(downloads, on_event);
        self.one(download, directory, &tracker.of(0)).await
    }

    /// Begins a request with the user's login for its host, unless the address contains one.
    fn request(&self, url: &reqwest::Url) -> reqwest::RequestBuilder {
        let request = self.client.get(url.clone());
        let own = !url.username().is_empty() || url.password().is_some();
        match url.host_str().filter(|_| !own) {
            Some(host) => match self.logins.of_host(host) {
                Some(login) => request.basic_auth(&login.user, Some(&login.password)),
                None => request,
            },
            None => request,
        }
    }
}
