//! Files of known content, over HTTP, into a directory.
//!
//! In: [`Download`]s, each a name, addresses in order of preference and a sha256. Out: paths of
//! files that have that digest, with events on the way. Several at a time, resumed where an
//! earlier try stopped, in this process or one before; of two processes one fetches and the other
//! waits. Small answers without a digest (indices, pages) are read whole by [`Fetcher::get`].
//!
//! Never: a final name for bytes that were not verified, a credential in a message, a request for
//! bytes that are here already where the server can leave them out.

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

/// A file to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// Its final name, without a directory.
    pub name: String,
    /// Where it is, the preferred address first. An address may hold `user:password@`.
    pub urls: Vec<String>,
    /// What the content has to have.
    pub sha256: Digest,
    /// Bytes, if they are known; then a file of another size is refused early.
    pub size: Option<u64>,
}

/// A file that is there and has the digest that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The directory and [`Download::name`].
    pub path: PathBuf,
    /// Bytes that came over the network in this call; none if the file was there.
    pub bytes: u64,
    /// Whether it was there, or came to be there through another process.
    pub cached: bool,
}

/// Fetches, with the certificates, proxies and logins of this machine.
#[derive(Clone)]
pub struct Fetcher {
    client: reqwest::Client,
    logins: Arc<Logins>,
    policy: Policy,
    slots: Arc<Semaphore>,
    parts: Option<PathBuf>,
}

impl Fetcher {
    /// With the user's netrc.
    ///
    /// # Errors
    /// As [`client()`].
    pub fn new(policy: Policy) -> Result<Self, FetchError> {
        Self::with(policy, Logins::of_user())
    }

    /// With these logins in place of the user's.
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

    /// Lets files grow in that directory, which has to be on the file system that they go to, and
    /// not beside their final names.
    pub fn with_parts(mut self, parts: PathBuf) -> Self {
        self.parts = Some(parts);
        self
    }

    /// Every file, in the order of `downloads`. The first error ends the others, whose parts stay
    /// for the next time.
    ///
    /// # Errors
    /// The first error of any file: no address is left to try, the content is another, or the disk
    /// fails.
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

    /// One file.
    ///
    /// # Errors
    /// If no address is left to try, the content is another, or the disk fails.
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

    /// A request with the login that the user keeps for its host, unless the address has one.
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
