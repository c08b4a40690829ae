//! Addresses: which may be fetched, and how messages show them.

use super::error::FetchError;
use reqwest::Url;
use stackforge_types::printable::without_credentials;

/// Parses an address and checks that its scheme is HTTP or HTTPS.
pub(super) fn parse(url: &str) -> Result<Url, FetchError> {
    let wrong = || FetchError::Address {
        url: without_credentials(url),
    };
    let parsed = Url::parse(url).map_err(|_| wrong())?;
    match parsed.scheme() {
        "http" | "https" if parsed.has_host() => Ok(parsed),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_http_is_fetched() {
        for bad in ["file:///etc/passwd", "ftp://h/x", "x", "http://", "data:,x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_password_is_shown(password in "[a-z@:/?#]{0,12}", path in "[a-z/?]{0,9}") {
            let shown = without_credentials(&format!("https://user:{password}SECRET@h.test/{path}"));
            prop_assert!(!shown.contains("SECRET"), "{}", shown);
        }
    }
}
