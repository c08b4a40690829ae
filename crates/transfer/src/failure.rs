//! What a failed request means: which failures may pass, and what to say of them.

use reqwest::Error;
use stackforge_types::printable;

/// Why a request brought no complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The request itself is malformed.
    Request,
    /// A redirect leads to where it must not.
    Redirect,
    /// The peer's certificate is not trusted.
    Certificate,
    /// No connection could be made.
    Unreachable,
    /// The connection ended before the response did.
    Cut,
}

impl Failure {
    pub(crate) fn of(error: &Error) -> Self {
        if error.is_builder() {
            Self::Request
        } else if error.is_redirect() {
            Self::Redirect
        } else if is_certificate(error) {
            Self::Certificate
        } else if error.is_connect() {
            Self::Unreachable
        } else {
            Self::Cut
        }
    }

    /// Whether the same request may succeed later. Nothing is gained by repeating it against a wrong address
    /// or certificate.
    pub(crate) fn is_passing(self) -> bool {
        matches!(self, Self::Unreachable | Self::Cut)
    }
}

/// Whether a request that got this HTTP status may succeed later.
pub(crate) fn is_passing_status(status: u16) -> bool {
    status >= 500 || [408, 425, 429].contains(&status)
}

/// Returns the innermost cause, fit for one line of a message: the outer errors only repeat that a request
/// failed. `None` if the error has no cause.
pub(crate) fn innermost(error: &Error) -> Option<String> {
    let mut source = std::error::Error::source(error);
    let mut last = None;
    while let Some(cause) = source {
        last = Some(cause.to_string());
        source = cause.source();
    }
    match last {
        Some(text) => Some(excerpt(&text)),
        None => error
            .is_timeout()
            .then(|| "nothing arrives any more".to_owned()),
    }
}

/// The start of a server's text, fit for one line of a message.
pub(crate) fn excerpt(text: &str) -> String {
    let start: String = text.chars().take(300).collect();
    printable::line(&start).into_owned()
}

/// Whether the peer's certificate caused the failure.
fn is_certificate(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
        return true;
    }
    // `source` of this type skips the error that it wraps, which may itself be an `io::Error`.
    if let Some(inner) = error.downcast_ref::<std::io::Error>()
        && let Some(inner) = inner.get_ref()
    {
        return is_certificate(inner);
    }
    error.source().is_some_and(is_certificate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_in_trouble_may_recover_and_a_refusal_stands() {
        for status in [408, 425, 429, 500, 503] {
            assert!(is_passing_status(status), "{status}");
        }
        for status in [400, 401, 403, 404, 410, 416] {
            assert!(!is_passing_status(status), "{status}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_may_pass_and_a_malformed_address_not() {
        let client = crate::client::builder(
            std::time::Duration::from_secs(5),
            crate::client::Redirects::default(),
        )
        .no_proxy()
        .build()
        .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        drop(listener);
        let refused = client.get(url).send().await.unwrap_err();
        assert_eq!(Failure::of(&refused), Failure::Unreachable);
        assert!(Failure::of(&refused).is_passing());
        assert!(innermost(&refused).is_some());
        let malformed = client.get("http://").send().await.unwrap_err();
        assert_eq!(Failure::of(&malformed), Failure::Request);
        assert!(!Failure::of(&malformed).is_passing());
    }
}
