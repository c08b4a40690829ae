//! Converts names from bytes of any encoding to text, reversibly, and paths to one spelling.

use super::error::Problem;

/// Converts bytes to text. Bytes that are not UTF-8 become `\xNN` in lower case. A backslash that would
/// read as such an escape becomes `\x5c`, so the original can be restored. Escapes below 80, as in
/// systemd's unit names (`\x2d`), stay as they are.
pub fn text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' && reads_as_escape(&bytes[at + 1..]) {
                out.push_str("\\x5c");
            } else {
                out.push(c);
            }
            at += c.len_utf8();
        }
        for b in chunk.invalid() {
            out.push_str("\\x");
            for digit in [b >> 4, b & 15] {
                out.extend(char::from_digit(u32::from(digit), 16));
            }
            at += 1;
        }
    }
    out
}

/// Returns the bytes from which [`text`] made a text.
pub fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let digit = |d: u8| char::from(d).to_digit(16).map(|d| d as u8);
        if let ([b'x', high, low, left @ ..], true) =
            (after, *first == b'\\' && reads_as_escape(after))
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            out.push(high << 4 | low);
            rest = left;
        } else {
            out.push(*first);
        }
    }
    out
}

fn reads_as_escape(after: &[u8]) -> bool {
    matches!(
        after,
        [b'x', b'5', b'c', ..] | [b'x', b'8' | b'9' | b'a'..=b'f', b'0'..=b'9' | b'a'..=b'f', ..]
    )
}

/// Returns the relative path without empty parts and `.`.
pub(super) fn path(bytes: &[u8], what: &'static str) -> Result<String, Problem> {
    let path = text(bytes);
    let wrong = |why| Problem::Name {
        what,
        found: path.escape_debug().take(200).collect(),
        why,
    };
    if path.contains('\0') {
        return Err(wrong("holds a zero byte"));
    }
    let mut out = String::with_capacity(path.len());
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err(wrong("leads out of its directory")),
            part => {
                if !out.is_empty() {
                    out.push('/');
                }
                out.push_str(part);
            }
        }
    }
    Ok(out)
}
