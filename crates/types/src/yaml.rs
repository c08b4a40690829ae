//! YAML documents of bounded depth.
//!
//! A parser keeps each key that it compares, and a key may hold another: nested keys cost memory by the
//! square of their depth, so a few hundred bytes of `? ? ?` would cost megabytes.

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};

/// Why a document could not be read: it is not valid YAML, or a value has another type than is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct YamlError {
    message: String,
    line: Option<u64>,
}

impl YamlError {
    /// Returns the line of the fault, counted from 1. `None` if it has no place.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        self.line
    }
}

/// Reads one document. Its depth is at most 32, its anchors and aliases are at most 50.
///
/// # Errors
/// If the bytes are not valid YAML of that depth, or a value has another type than `T` expects. The message ends with the place:
/// ` at line 3, column 5`.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, YamlError> {
    // Comments mean nothing here, and the parser refuses more than 96 in front of one value.
    let options = serde_saphyr::options! {
        emit_comments: false,
        budget: serde_saphyr::budget! { max_aliases: 50, max_anchors: 50, max_depth: 32 },
    };
    let read = serde_saphyr::from_slice_with_options::<Erased<T>>(bytes, options);
    read.map(|Erased(value)| value).map_err(|error| {
        let text = error.without_snippet().to_string();
        let (message, line) = innermost(&text);
        let message = message.to_owned();
        YamlError { message, line }
    })
}

/// Reads `T` through a deserializer whose type is erased, so the YAML parser is compiled once for all types: for each
/// type anew it made the program 0.4 MB larger.
struct Erased<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Erased<T> {
    fn deserialize<D: Deserializer<'de>>(parser: D) -> Result<Self, D::Error> {
        let mut parser = <dyn erased_serde::Deserializer>::erase(parser);
        let read = erased_serde::deserialize(&mut parser);
        read.map(Self).map_err(D::Error::custom)
    }
}

/// Returns a message with its first place alone, and that line. A fault passes through every value that it is in, and
/// each adds its own place.
fn innermost(text: &str) -> (&str, Option<u64>) {
    let (mut whole, mut line) = (text, None);
    let mut rest = text;
    while let Some((before, at)) = place(rest) {
        (whole, line) = (rest, Some(at));
        rest = before;
    }
    (whole, line)
}

/// Returns what is before the place at the end of a text, and its line.
fn place(text: &str) -> Option<(&str, u64)> {
    let (before, place) = text.rsplit_once(" at line ")?;
    let (line, column) = place.split_once(", column ")?;
    column.parse::<u64>().ok()?;
    Some((before, line.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Item {
        #[serde(default)]
        name: String,
        #[serde(default)]
        count: Option<u32>,
    }

    #[test]
    fn a_fault_has_the_place_of_what_is_wrong() {
        let fault = |text: &str| {
            let read = from_slice::<std::collections::BTreeMap<String, Vec<Item>>>(text.as_bytes());
            let error = read.unwrap_err();
            (error.to_string(), error.line())
        };
        assert_eq!(
            fault("a:\n  - name: x\n    size: 3\n"),
            (
                "unknown field `size`, expected one of name, count at line 3, column 5".to_owned(),
                Some(3)
            )
        );
        assert_eq!(
            fault("a: [{ count: -1 }]"),
            ("invalid u32 at line 1, column 14".to_owned(), Some(1))
        );
        let (message, line) = fault("a: [{ name: x }\n");
        assert!(line.is_some(), "{message}");
        assert_eq!(message.matches(" at line ").count(), 1, "{message}");
        // A position within the document's own text is not a fault's position.
        let (message, line) = fault("a: [{ 'x at line 7, column 7': 1 }]");
        assert_eq!(line, Some(1), "{message}");
        assert!(message.starts_with("unknown field `x at line 7, column 7`"));
    }

    #[test]
    fn scalars_are_what_is_asked_for() {
        let read: Vec<Item> =
            from_slice(b"- { name: 2.10, count: 0x10 }\n- name: '~'\n  count: ~\n").unwrap();
        assert_eq!((read[0].name.as_str(), read[0].count), ("2.10", Some(16)));
        assert_eq!((read[1].name.as_str(), read[1].count), ("~", None));
    }

    #[test]
    fn comments_are_not_counted() {
        let text = format!("a:\n{}  - x\n", "  # y\n".repeat(300));
        let read: serde_json::Value = from_slice(text.as_bytes()).unwrap();
        assert_eq!(read["a"][0], "x");
    }

    #[test]
    fn depth_is_bounded() {
        let keys = |depth: usize| format!("{}x", "? ".repeat(depth));
        let lists = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let read = |text: String| from_slice::<serde::de::IgnoredAny>(text.as_bytes());
        assert!(read(keys(8)).is_ok() && read(lists(8)).is_ok());
        for text in [keys(5000), lists(5000)] {
            let error = read(text).unwrap_err().to_string();
            assert!(
                error.contains("depth") || error.contains("recursion"),
                "{error}"
            );
        }
    }
}
