//! The HTTP client: the one place that builds one.

use super::FetchError;
use reqwest::redirect::Policy;
use std::time::Duration;

const MOST_REDIRECTS: usize = 10;

/// A client that trusts the system's certificates, or those of SSL_CERT_FILE, and takes the
/// proxies that the environment names.
///
/// # Errors
/// If TLS cannot be set up: a certificate file or a proxy variable that cannot be used.
pub fn client() -> Result<reqwest::Client, FetchError> {
    client_that_waits(Duration::from_secs(60))
}

/// The same, for which a connection that brings nothing for so long is broken.
pub(super) fn client_that_waits(stall: Duration) -> Result<reqwest::Client, FetchError> {
    // An error means that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("stackforge/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(stall.min(Duration::from_secs(20)))
        .read_timeout(stall)
        // Several large files share a connection: its windows must follow the line's capacity.
        .http2_adaptive_window(true)
        .redirect(redirects())
        .build()
        .map_err(FetchError::Client)
}

/// Redirects that do not leave TLS: an index page has no digest to be checked by. What begins
/// without TLS, such as a Debian mirror, may go on without it.
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
