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
mod error;
mod file;
mod get;
mod netrc;
mod note;
mod progress;
mod writer;

use crate::RetryPolicy;
use crate::client::{Redirects, builder};
use netrc::Logins;
use stackforge_types::Digest;
use stackforge_types::login::Login;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

pub use error::FetchError;
pub use get::Answer;
pub use netrc::{Netrc, NetrcError};
pub use progress::{Event, Progress, What};
pub use stackforge_types::printable::without_credentials;

/// Most files that a [`Fetcher`] fetches at a time, unless [`Fetcher::with_parallel`] says otherwise.
const PARALLEL: usize = 8;

/// Creates a client that trusts the system's certificates, or those of SSL_CERT_FILE, and uses the proxies
/// of the environment.
///
/// # Errors
/// If TLS cannot be set up: a certificate file or a proxy variable that cannot be used.
pub fn client() -> Result<reqwest::Client, FetchError> {
    client_that_waits(RetryPolicy::default().stall)
}

/// A request that starts without TLS, such as to a Debian mirror, may continue without it. From TLS to plain
/// HTTP no redirect leads, because an index page has no digest to verify.
fn client_that_waits(stall: Duration) -> Result<reqwest::Client, FetchError> {
    let redirects = Redirects {
        plain: true,
        same_origin: false,
    };
    builder(stall, redirects)
        .build()
        .map_err(FetchError::Client)
}

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
pub struct FetchedFile {
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
    retry: RetryPolicy,
    slots: Arc<Semaphore>,
    parts: Option<PathBuf>,
}

impl Fetcher {
    /// Creates a fetcher with the user's netrc file.
    ///
    /// # Errors
    /// As [`client()`].
    pub fn new(retry: RetryPolicy) -> Result<Self, FetchError> {
        Self::with(retry, Logins::of_user())
    }

    /// Creates a fetcher with these logins instead of the user's.
    ///
    /// # Errors
    /// As [`client()`].
    pub fn with_netrc(retry: RetryPolicy, netrc: Netrc) -> Result<Self, FetchError> {
        Self::with(retry, Logins::of(netrc))
    }

    fn with(retry: RetryPolicy, logins: Logins) -> Result<Self, FetchError> {
        Ok(Self {
            client: client_that_waits(retry.stall)?,
            logins: Arc::new(logins),
            slots: Arc::new(Semaphore::new(PARALLEL)),
            retry,
            parts: None,
        })
    }

    /// Fetches at most so many files at a time.
    pub fn with_parallel(mut self, files: usize) -> Self {
        self.slots = Arc::new(Semaphore::new(files.max(1)));
        self
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
    ) -> Result<Vec<FetchedFile>, FetchError> {
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
    ) -> Result<FetchedFile, FetchError> {
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
                Some(Login::Password { user, password }) => {
                    request.basic_auth(user, Some(password.expose_text()))
                }
                _ => request,
            },
            None => request,
        }
    }
}
