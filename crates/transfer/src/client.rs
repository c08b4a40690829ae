//! The HTTP client of every request: certificates, proxies, and where a redirect may lead.

use std::time::Duration;

use reqwest::ClientBuilder;
use reqwest::redirect::Policy;

const MOST_REDIRECTS: usize = 10;
const LONGEST_CONNECT: Duration = Duration::from_secs(20);

/// Where a redirect may lead. It never leads from TLS to plain HTTP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Redirects {
    /// A request that starts without TLS may continue without it.
    pub plain: bool,
    /// For credentials in a body: reqwest removes them from a redirected request's headers, but not from its
    /// body.
    pub same_origin: bool,
}

impl Redirects {
    fn policy(self) -> Policy {
        Policy::custom(move |attempt| {
            let safe = attempt.url().scheme() == "https"
                || self.plain && attempt.previous().iter().all(|url| url.scheme() == "http");
            let leaves = |url: &reqwest::Url| url.origin() != attempt.url().origin();
            if attempt.previous().len() > MOST_REDIRECTS {
                attempt.error("too many redirects")
            } else if !safe {
                attempt.error("a redirect to an address without TLS")
            } else if self.same_origin && attempt.previous().iter().any(leaves) {
                attempt.error("a redirect of credentials to another server")
            } else {
                attempt.follow()
            }
        })
    }
}

/// Returns the builder of a client that trusts the system's certificates, or those of SSL_CERT_FILE, and
/// uses the proxies of the environment. A connection that brings no bytes for the time `stall` is broken.
pub(crate) fn builder(stall: Duration, redirects: Redirects) -> ClientBuilder {
    // An error means that a provider is already installed, which is fine too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("stackforge/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(stall.min(LONGEST_CONNECT))
        .read_timeout(stall)
        // Several large files share a connection, so its windows must follow the line's capacity.
        .http2_adaptive_window(true)
        .redirect(redirects.policy())
}
