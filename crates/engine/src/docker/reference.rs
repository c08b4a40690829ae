//! References of images as the engine's API takes them: checked, split, and escaped for a query.

use crate::EngineError;

/// Checks that a name is safe as a part of a URL.
pub(super) fn check_reference(reference: &str) -> Result<(), EngineError> {
    let fine = reference.starts_with(|c: char| c.is_ascii_alphanumeric())
        && reference.len() <= 512
        && !reference.contains("..")
        && !reference.contains("//")
        && reference
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-/:@+".contains(c));
    if fine {
        Ok(())
    } else {
        Err(EngineError::Invalid {
            what: "the image reference",
            value: reference.to_owned(),
            help: "write it as [registry/]name[:tag][@sha256:…]",
        })
    }
}

/// Splits `host:5000/a/b:c` into `host:5000/a/b` and `c`.
pub(super) fn repository_and_tag(reference: &str) -> (&str, Option<&str>) {
    match reference.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (reference, None),
    }
}

/// Escapes text for a value in the query of a URL.
pub(super) fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::{check_reference, repository_and_tag};

    #[test]
    fn a_port_is_no_tag() {
        assert_eq!(repository_and_tag("a:b"), ("a", Some("b")));
        assert_eq!(repository_and_tag("h:5000/a"), ("h:5000/a", None));
        assert_eq!(repository_and_tag("h:5000/a:b"), ("h:5000/a", Some("b")));
    }

    #[test]
    fn references_cannot_leave_their_place_in_a_url() {
        for fine in [
            "debian",
            "nvcr.io/nvidia/pytorch:25.10-py3",
            "a@sha256:00ff",
            "sha256:00ff",
            "localhost:5000/x/y:1",
        ] {
            assert!(check_reference(fine).is_ok(), "{fine}");
        }
        for bad in [
            "",
            "../containers",
            "a/../b",
            "a?b",
            "a b",
            "a#b",
            "/a",
            "a&t=b",
            "-a",
            "a//b",
        ] {
            assert!(check_reference(bad).is_err(), "{bad}");
        }
    }
}
