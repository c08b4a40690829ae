//! Extracts one line of a log as the program printed it.
//!
//! In: bytes around a match. Out: the line between line breaks, or between the carriage returns of progress
//! bars, without the prefixes of BuildKit, Compose and CI. Its size does not depend on the length of the line.

use regex::bytes::Regex;
use stackforge_types::printable::is_plain;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

/// Longest part of a line that is shown, in bytes.
const SHOWN: usize = 160;

/// Bytes by which pieces overlap; longer than the match of any pattern.
pub const OVERLAP: usize = 4 << 10;

/// Prefixes of a line: `web-1  | `, `2026-11-21T07:00:00.1Z `, `#12 `, `3.456 ` and `[build 1/4] RUN | `, from
/// Compose, CI, BuildKit and stackforge's own logs.
static PREFIX: LazyLock<Regex> = LazyLock::new(|| {
    let prefix = [
        r"(?-u)^",
        r"(?:[\w.-]+ +\| )?",
        r"(?:\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-][\d:]+)? )?",
        r"(?:#\d+ )?",
        r"(?:\d+\.\d+ )?",
        r"(?:\[[^\]]+\] [A-Z]+ \| )?",
    ];
    Regex::new(&prefix.concat()).expect("checked by the tests below")
});

/// Returns the part of a line around `hit`, starting at `from` at the earliest: at most [`OVERLAP`] each side.
pub fn around(bytes: &[u8], hit: &Range<usize>, from: usize) -> Range<usize> {
    let first = from.max(hit.start.saturating_sub(OVERLAP));
    let last = bytes.len().min(hit.end + OVERLAP);
    let start = memchr::memrchr2(b'\n', b'\r', &bytes[first..hit.start]);
    let end = memchr::memchr2(b'\n', b'\r', &bytes[hit.end..last]);
    start.map_or(first, |s| first + s + 1)..end.map_or(last, |e| hit.end + e)
}

pub fn breaks(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Returns the line without a prefix and with ASCII quotes: GCC prints `‘x’` in some locales.
pub fn plain(bytes: &[u8]) -> Cow<'_, [u8]> {
    let prefix = PREFIX.find(bytes).map_or(0, |m| m.end());
    let bytes = &bytes[prefix..];
    const QUOTE: [u8; 2] = [0xe2, 0x80];
    if memchr::memmem::find(bytes, &QUOTE).is_none() {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = memchr::memmem::find(rest, &QUOTE) {
        let (before, found) = rest.split_at(at);
        out.extend_from_slice(before);
        let length = match found.get(2) {
            Some(0x98 | 0x99) => {
                out.push(b'\'');
                3
            }
            _ => {
                out.extend_from_slice(&QUOTE);
                2
            }
        };
        rest = &found[length..];
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Whether the line is the statement quoted by a Python traceback: it contains the message before its values
/// are filled in, and the message itself follows.
pub fn quotes_code(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"raise ")
}

/// Returns the shown part of a line and the match's position in it. Unprintable characters, such as colours,
/// become spaces.
pub fn shown(bytes: &[u8], matched: Range<usize>) -> (String, Range<usize>) {
    let matched = matched.start..matched.end.min(matched.start + SHOWN);
    let room = SHOWN - matched.len();
    let mut first = matched.start.saturating_sub(room / 2);
    let last = bytes.len().min(first + SHOWN);
    first = first.min(last.saturating_sub(SHOWN));
    let text = |part: &[u8]| -> String {
        String::from_utf8_lossy(part)
            .chars()
            .map(|c| if is_plain(c) { c } else { ' ' })
            .collect()
    };
    let mut out = String::from(if first > 0 { "…" } else { "" });
    out += &text(&bytes[first..matched.start]);
    let start = out.len();
    out += &text(&bytes[matched.clone()]);
    let end = out.len();
    out += &text(&bytes[matched.end..last]);
    if last < bytes.len() {
        out.push('…');
    }
    (out, start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prefixes_and_quotes_are_plain() {
        for (line, expected) in [
            ("#12 3.456 Killed", "Killed"),
            ("3.456 Killed", "Killed"),
            ("#6 [builder-torch 1/1] RUN | Killed", "Killed"),
            ("2026-11-21T07:16:45.1234567Z Killed", "Killed"),
            ("web-1  | Killed", "Killed"),
            ("g++: error: ‘x’", "g++: error: 'x'"),
            ("a … b", "a … b"),
            ("3.4", "3.4"),
        ] {
            assert_eq!(plain(line.as_bytes()), expected.as_bytes(), "{line}");
        }
    }

    #[test]
    fn a_line_ends_at_a_carriage_return() {
        let text = b"one\n10%\r20%\rerror here\r\nnext";
        let at = 12;
        assert_eq!(&text[around(text, &(at..at + 5), 0)], b"error here");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_short_and_holds_the_match(
            bytes in proptest::collection::vec(any::<u8>(), 1..2000),
            start in 0..2000_usize,
            len in 1..1000_usize,
        ) {
            let start = start.min(bytes.len() - 1);
            let end = (start + len).min(bytes.len());
            let (text, matched) = shown(&bytes, start..end);
            prop_assert!(text.len() <= 3 * SHOWN + 6);
            prop_assert!(!text[matched.clone()].is_empty());
            prop_assert!(text.chars().all(is_plain));
        }
    }
}
