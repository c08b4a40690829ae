//! Makes text from outside safe to print.
//!
//! In: text from anyone. Out: the same text, in which each character that controls a terminal, reorders its
//! neighbours or is invisible is replaced by an escape such as `\u{1b}`.
//! The output layer (`cli`) passes all its text through [`text`] or [`json`]. Code that prints several
//! values as lines passes each through [`line`], so that no value can begin a line of its own. Hidden
//! characters are shown, never removed.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character may be printed as it is.
///
/// Control characters (C0, DEL, C1) may not: terminals obey them. Format characters may not either,
/// including zero-width joiners and spaces, because two names that differ only in those look the same. An
/// emoji joined from several is shown as its parts, which hides nothing. Variation selectors after an emoji
/// may; those of the supplement may not, as they can carry hidden text.
pub fn is_plain(c: char) -> bool {
    !(c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}'))
}

/// Escapes text of several lines; line ends and tabs stay.
pub fn text(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || c == '\t')
}

/// Escapes text that is one line of output, or a part of one.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// One word of a command line that a message proposes: quoted for a shell where it has to be.
/// What cannot be printed is escaped, as in [`line`]; such a word does not name its file.
pub fn word(text: &str) -> Cow<'_, str> {
    let bare = |c: char| c.is_alphanumeric() || "_-./:,=+@%".contains(c);
    let word = line(text);
    if !word.is_empty() && word.chars().all(bare) {
        return word;
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let plain = |c: char| is_plain(c) || stays(c);
    if text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if stays('\n') && chars.peek() == Some(&'\n') => {}
            c if plain(c) => out.push(c),
            c => out.extend(c.escape_default()),
        }
    }
    Cow::Owned(out)
}

/// An address as messages may show it: without user and password, and without a query, which may contain a
/// signature. Text before an `@` counts as a password even without a scheme.
pub fn without_credentials(url: &str) -> String {
    let start = url.find("://").map(|at| at + 3);
    let query = |text: &str| text.find(['?', '#']).unwrap_or(text.len());
    match (url.rfind('@'), start) {
        (Some(at), start) if start.unwrap_or(0) <= at => {
            let rest = &url[at + 1..];
            let scheme = &url[..start.unwrap_or(0)];
            format!("{scheme}{}", &rest[..query(rest)])
        }
        (_, Some(_)) => url[..query(url)].to_owned(),
        (_, None) => url.to_owned(),
    }
}

/// Removes passwords from a message that may quote an address: everything from the first address or
/// quotation to the last `@`.
pub fn without_passwords(message: &str) -> String {
    let Some(at) = message.rfind('@') else {
        return message.to_owned();
    };
    let before = &message[..at];
    let scheme = before.find("://").map(|at| at + 3);
    let quote = before.find(['"', '`', '\'']).map(|at| at + 1);
    let start = scheme.or(quote).unwrap_or(0);
    format!("{}…{}", &message[..start], &message[at..])
}

/// Escapes a JSON document without changing its values. Outside of strings, the only characters of JSON that
/// are not printed as they are are line ends, tabs and spaces, so every other character is in a string and
/// can be escaped there.
pub fn json(document: &str) -> Cow<'_, str> {
    let plain = |c: char| is_plain(c) || c == '\n' || c == '\t';
    if document.chars().all(plain) {
        return Cow::Borrowed(document);
    }
    let mut out = String::with_capacity(document.len() + 16);
    for c in document.chars() {
        match c {
            c if plain(c) => out.push(c),
            // JSON strings cannot contain one, and between values it is white space.
            '\r' => out.push(' '),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_word_is_quoted_where_a_shell_would_split_or_run_it() {
        for (name, shown) in [
            ("stacks/thor-cuda13.yaml", "stacks/thor-cuda13.yaml"),
            ("größe.yaml", "größe.yaml"),
            ("", "''"),
            ("my stack.yaml", "'my stack.yaml'"),
            ("$(id).yaml", "'$(id).yaml'"),
            ("it's.yaml", r"'it'\''s.yaml'"),
            ("a\nb", r"'a\nb'"),
        ] {
            assert_eq!(word(name), shown);
        }
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        for (url, shown) in [
            ("https://u:p@h.test/a", "https://h.test/a"),
            ("https://u:p@ss@h.test/a?x=1", "https://h.test/a"),
            ("https://u:p?q@h.test/a", "https://h.test/a"),
            ("https://h.test/a?signature=1#b", "https://h.test/a"),
            ("u:p@h.test/a", "h.test/a"),
            ("debian=u:p@h.test/a?x=1", "h.test/a"),
            ("no address?", "no address?"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
        for (message, shown) in [
            ("nothing: `a`", "nothing: `a`"),
            (
                "invalid type: string \"https://u:p w@h.test\", expected a list",
                "invalid type: string \"https://…@h.test\", expected a list",
            ),
            ("`u:p@h` is wrong", "`…@h` is wrong"),
            ("u:p@h", "…@h"),
        ] {
            assert_eq!(without_passwords(message), shown);
        }
    }

    #[test]
    fn what_steers_or_hides_is_shown() {
        let title = "a\u{1b}]0;b\u{7}\u{9b}2J\u{7f}";
        assert_eq!(text(title), r"a\u{1b}]0;b\u{7}\u{9b}2J\u{7f}");
        assert_eq!(line("pay\u{202e}lap\u{200b}"), r"pay\u{202e}lap\u{200b}");
        assert_eq!(
            line("tag\u{e0041}\u{fe0f}"),
            "tag\\u{e0041}\u{fe0f}",
            "an emoji's selector is not a tag"
        );
        assert_eq!(line("x: ok\ny: ok"), r"x: ok\ny: ok");
        assert_eq!(
            text("one\r\ntwo\rthree\tfour\n"),
            "one\ntwo\\rthree\tfour\n"
        );
    }

    #[test]
    fn what_people_write_stays() {
        for plain in [
            "→ “größer” …",
            "日本語",
            "עברית",
            "é\u{301}",
            "±5 °C",
            "👍🏽",
            "⚠️",
        ] {
            assert!(matches!(line(plain), Cow::Borrowed(_)), "{plain}");
        }
    }

    proptest! {
        #[test]
        fn nothing_else_comes_out(from in "(\\PC|\\p{Cc}|\\p{Cf}|\n|\r|\u{2028}|\u{e0041}){0,40}") {
            prop_assert!(line(&from).chars().all(is_plain));
            let fits = |c| is_plain(c) || c == '\n' || c == '\t';
            prop_assert!(text(&from).chars().all(fits));
        }

        #[test]
        fn a_document_keeps_its_values(from in "(\\PC|\\p{Cc}|\\p{Cf}|\"|\\\\|\u{2028}|\u{e0041}){0,40}") {
            let value = serde_json::json!({ &from: [&from] });
            let document = serde_json::to_string_pretty(&value).unwrap().replace('\n', "\r\n");
            let shown = json(&document);
            prop_assert!(shown.chars().all(|c| is_plain(c) || c == '\n'), "{}", shown);
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }
}
