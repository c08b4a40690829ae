//! RECORD: a wheel's list of its files with their digests, which an installation rewrites.
//!
//! In: the wheel's RECORD, a CSV of path, digest and size. Out: the digest that it states for each file, and
//! the RECORD of the installed files. Digests are SHA-256 or better, as the specification of binary
//! distributions demands; stated digests are checked, never trusted.

use std::collections::HashMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::error::WheelFault;

pub(super) type Sha256 = [u8; 32];

pub(super) fn sha256(bytes: &[u8]) -> Sha256 {
    stackforge_types::Sha256::digest(bytes)
}

/// The digest that RECORD states for each file: `sha256=…`, in URL-safe base64 without padding, or nothing.
pub(super) type Rows = HashMap<String, Option<String>>;

pub(super) fn parse(text: &str) -> Result<Rows, WheelFault> {
    let mut rows = HashMap::new();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut line = 0;
    while !rest.is_empty() {
        line += 1;
        let wrong = |why| WheelFault::Record { line, why };
        let mut fields: [String; 3] = Default::default();
        let mut count = 0;
        loop {
            let (field, end, after) = field(rest).ok_or_else(|| wrong("badly quoted"))?;
            rest = after;
            if let Some(place) = fields.get_mut(count) {
                *place = field;
            }
            count += 1;
            if end != Some(',') {
                break;
            }
        }
        let [path, digest, _] = fields;
        if count == 1 && path.is_empty() {
            continue;
        }
        if count > 3 {
            return Err(wrong("not of three fields"));
        }
        let digest = (!digest.is_empty()).then_some(digest);
        let before = rows.insert(path, digest.clone());
        if before.is_some_and(|before| before != digest) {
            return Err(wrong("at odds with another on the same file"));
        }
    }
    Ok(rows)
}

/// The next field, the comma or line end (`\n`) after it, and the rest.
fn field(text: &str) -> Option<(String, Option<char>, &str)> {
    let mut value = String::new();
    let mut rest = text;
    if let Some(quoted) = text.strip_prefix('"') {
        rest = quoted;
        loop {
            let (part, after) = rest.split_once('"')?;
            value.push_str(part);
            rest = after;
            match rest.strip_prefix('"') {
                Some(more) => {
                    value.push('"');
                    rest = more;
                }
                None => break,
            }
        }
    } else {
        let end = rest.find([',', '\n', '\r']).unwrap_or(rest.len());
        value.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    if let Some(after) = rest.strip_prefix(',') {
        return Some((value, Some(','), after));
    }
    if rest.is_empty() {
        return Some((value, None, rest));
    }
    let after = rest
        .strip_prefix("\r\n")
        .or(rest.strip_prefix('\n'))
        .or(rest.strip_prefix('\r'))?;
    Some((value, Some('\n'), after))
}

/// Hash algorithm of a digest in RECORD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Sha256,
    Sha384,
    Sha512,
}

/// The algorithm of a stated digest. `None` if it is weaker than SHA-256 or unknown.
pub(super) fn algorithm(stated: &str) -> Option<Algorithm> {
    match stated.split_once('=')?.0 {
        "sha256" => Some(Algorithm::Sha256),
        "sha384" => Some(Algorithm::Sha384),
        "sha512" => Some(Algorithm::Sha512),
        _ => None,
    }
}

/// Formats a digest as RECORD does.
pub(super) fn digest(algorithm: &str, digest: &[u8]) -> String {
    format!("{algorithm}={}", URL_SAFE_NO_PAD.encode(digest))
}

/// Appends a line; the line of RECORD itself has neither digest nor size.
pub(super) fn line(out: &mut String, path: &str, file: Option<(&Sha256, u64)>) {
    if path.contains([',', '"', '\n', '\r']) {
        let _ = write!(out, "\"{}\"", path.replace('"', "\"\""));
    } else {
        out.push_str(path);
    }
    let _ = match file {
        Some((sha256, size)) => writeln!(out, ",{},{size}", digest("sha256", sha256)),
        None => writeln!(out, ",,"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_any_writer_are_read() {
        let rows = parse("a.py,sha256=x,3\r\n\"b,\"\"c\"\".py\",,\n\nd,,\rlast,,7").unwrap();
        assert_eq!(rows["a.py"].as_deref(), Some("sha256=x"));
        assert_eq!(rows["b,\"c\".py"], None);
        assert!(rows.contains_key("last"));
        assert_eq!(rows.len(), 4);
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for bad in ["\"a,b", "\"a\"x,,", "a,,1,2", "a,sha256=x,1\na,sha256=y,1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("a,,1\na,,1\n").is_ok());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[a,\"\r\n=1é]{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn what_is_written_is_read(paths in proptest::collection::hash_set("[a-z,\" /é]{1,12}", 0..6)) {
            let mut text = String::new();
            for path in &paths {
                line(&mut text, path, Some((&[3; 32], 5)));
            }
            let rows = parse(&text).unwrap();
            prop_assert_eq!(rows.len(), paths.len());
            for path in &paths {
                prop_assert_eq!(rows[path].clone(), Some(digest("sha256", &[3; 32])));
            }
        }
    }
}
