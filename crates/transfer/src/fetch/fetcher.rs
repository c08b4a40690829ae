//! The fetcher: its client, its logins and how much it does at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stackforge_types::login::Login;
use tokio::sync::Semaphore;

use super::error::FetchError;
use super::netrc::{Logins, Netrc};
use crate::RetryPolicy;
use crate::client::{Redirects, builder};

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

/// Fetches files with the certificates, proxies and logins of this machine.
#[derive(Clone)]
pub struct Fetcher {
    pub(super) client: reqwest::Client,
    pub(super) logins: Arc<Logins>,
    pub(super) retry: RetryPolicy,
    pub(super) slots: Arc<Semaphore>,
    pub(super) parts: Option<PathBuf>,
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

    /// Begins a request with the user's login for its host, unless the address contains one.
    pub(super) fn request(&self, url: &reqwest::Url) -> reqwest::RequestBuilder {
        let request = self.client.get(url.clone());
        let own = !url.username().is_empty() || url.password().is_some();
        match url.host_str().filter(|_| !own) {
            Some(host) => match self.logins.of_host(host) {
                Some(Login::Password { user, password }) => {
                    request.basic_auth(user, Some(password.expose_text()))
                }
                Some(Login::Anonymous | Login::Identity(_)) | None => request,
            },
            None => request,
        }
    }
}
