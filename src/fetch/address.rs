//! Addresses: what may be fetched, and how messages show it.

use super::FetchError;
use reqwest::Url;

/// An address as messages may show it: without user and password, and without a query, which may
/// be a signature.
pub fn without_credentials(url: &str) -> String {
    let (Some(scheme), end) = (url.find("://"), url.find(['?', '#']).unwrap_or(url.len())) else {
        return url.to_owned();
    };
    match url.rfind('@') {
        Some(at) if scheme < at => {
            let rest = &url[at + 1..];
            let end = rest.find(['?', '#']).unwrap_or(rest.len());
            format!("{}{}", &url[..scheme + 3], &rest[..end])
        }
        _ => url[..end].to_owned(),
    }
}

/// An address that HTTP reaches.
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
    fn what_is_secret_is_not_shown() {
        for (url, shown) in [
            ("https://u:p@h.test/a", "https://h.test/a"),
            ("https://u:p@ss@h.test/a?x=1", "https://h.test/a"),
            ("https://u:p?q@h.test/a", "https://h.test/a"),
            ("https://h.test/a?signature=1#b", "https://h.test/a"),
            ("no address", "no address"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }

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
