//! Text without addresses, for messages.

/// Replaces every URL in a text, so that no message contains a host or a credential.
pub(super) fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let scheme = rest[..at]
            .rfind(|c: char| !(c.is_ascii_alphanumeric() || "+.-".contains(c)))
            .map_or(0, |i| {
                i + rest[i..].chars().next().map_or(1, char::len_utf8)
            });
        let after = &rest[at + 3..];
        let end = after
            .find(|c: char| c.is_whitespace() || "`'\"<>)]},".contains(c))
            .unwrap_or(after.len());
        out.push_str(&rest[..scheme]);
        out.push_str("<url>");
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::redact;
    use proptest::prelude::*;

    #[test]
    fn messages_lose_their_urls() {
        assert_eq!(
            redact("failed: `https://u:p@h.test/simple/x/` (see http://h.test)"),
            "failed: `<url>` (see <url>)"
        );
        assert_eq!(redact("é://x y"), "é<url> y");
    }

    proptest! {
        #[test]
        fn redacting_leaves_no_url_and_never_panics(s in "\\PC*") {
            let text = redact(&format!("{s} https://h.test/{s}"));
            prop_assert!(!text.contains("h.test"), "{}", text);
        }
    }
}
