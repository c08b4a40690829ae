//! The HTTP client: the one place that builds one.

use super::FetchError;
use reqwest::redirect::Policy;
use std::time::Duration;

const MOST_REDIRECTS: usize = 10;

/// Creates a client that trusts the system's certificates, or those of SSL_CERT_FILE, and uses the proxies
/// of the environment.
///
/// # Errors
/// If TLS cannot be set up: a certificate file or a proxy variable that cannot be used.
pub fn client() -> Result<reqwest::Client, FetchError> {
    client_that_waits(Duration::from_secs(60))
}

/// Like [`client()`], but a connection that brings no bytes for the time `stall` is broken.
pub(super) fn client_that_waits(stall: Duration) -> Result<reqwest::Client, FetchError> {
    // An error means that a provider is already installed, which is fine too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("stackforge/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(stall.min(Duration::from_secs(20)))
        .read_timeout(stall)
        // Several large files share a connection, so its windows must follow the line's capacity.
        .http2_adaptive_window(true)
        .redirect(redirects())
        .build()
        .map_err(FetchError::Client)
}

/// Forbids redirects from TLS to plain HTTP, because an index page has no digest to verify. A request that
/// starts without TLS, such as to a Debian mirror, may continue without it.
fn redirects() -> Policy {
    Policy::custom(|attempt| {
        let secure = attempt.previous().iter().any(|url| url.scheme() == "https");
        if attempt.previous().len() > MOST_REDIRECTS {
            attempt.error("too many redirects")
        } else if secure && attempt.url().scheme() != "https" {
            attempt.error("a redirect to an address without TLS")
        } else {
            attempt.follow()
        }
    })
}
