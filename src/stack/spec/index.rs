//! Addresses of package indexes.

/// Whether this is an address that a stack may name as an index: http or https, without blanks and control
/// characters.
pub fn is_index(url: &str) -> bool {
    let is_http = url.starts_with("https://") || url.starts_with("http://");
    is_http && !url.contains(|c: char| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::is_index;

    #[test]
    fn addresses_and_what_is_none() {
        assert!(is_index("https://download.pytorch.org/whl/cu130"));
        assert!(is_index("http://localhost:8080/simple"));
        for other in [
            "",
            "ftp://a/simple",
            "../simple",
            "https://a/b c",
            "https://a/\u{18}b",
            "https://a/\n",
        ] {
            assert!(!is_index(other), "{other:?}");
        }
    }
}
