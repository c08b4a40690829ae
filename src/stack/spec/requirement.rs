//! Parses requirements (PEP 508).

use std::str::FromStr as _;

pub type Requirement = pep508_rs::Requirement<pep508_rs::VerbatimUrl>;

/// Parses a requirement. The error is one line.
pub fn requirement(text: &str) -> Result<Requirement, String> {
    // pep508_rs 0.9 panics on such a name unless the text ends there, and on such an extra.
    let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let trimmed = text.trim_start();
    let end = trimmed.find(|c| !of_name(c)).unwrap_or(trimmed.len());
    let extras = trimmed[end..].trim_start().strip_prefix('[');
    let extras = extras.map_or("", |list| list.split(']').next().unwrap_or(list));
    for name in extras.split(',').map(str::trim).chain([&trimmed[..end]]) {
        if let Some(last) = name.chars().last().filter(|c| !c.is_ascii_alphanumeric()) {
            return Err(format!(
                "a name ends with a letter or digit, not with `{last}`"
            ));
        }
    }
    Requirement::from_str(text).map_err(|error| super::fault::first_line(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_that_ends_with_a_dash_is_an_error() {
        for text in [
            "a->=1",
            "a_ [x]",
            " a. ; python_version > '3'",
            "a-",
            "--",
            "a[0c.]",
            "a [ok, x- ]>=1",
        ] {
            assert!(requirement(text).is_err(), "{text}");
        }
        for text in [
            "a--b >= 1",
            "a[b.c, d]>=1",
            "a @ https://h.test/[x.]/a-1.tar.gz",
        ] {
            let read = requirement(text);
            assert!(read.is_ok(), "{text}: {read:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ a-c0-9._\\[\\]<>=;@$'{}/-]{0,24}") {
            let _ = requirement(&text);
        }
    }
}
