//! YAML documents of bounded depth.
//!
//! A parser keeps each key that it compares, and a key may hold another: nested keys cost memory by the
//! square of their depth, so a few hundred bytes of `? ? ?` would cost megabytes.

use serde::de::DeserializeOwned;

/// Reads one document. Its depth is at most 32, its anchors and aliases are at most 50.
///
/// # Errors
/// If the bytes are no YAML of that depth, or are not the value that is wanted.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_saphyr::Error> {
    // Comments mean nothing here, and the parser refuses more than 96 in front of one value.
    let options = serde_saphyr::options! {
        emit_comments: false,
        budget: serde_saphyr::budget! { max_aliases: 50, max_anchors: 50, max_depth: 32 },
    };
    serde_saphyr::from_slice_with_options(bytes, options)
}

#[cfg(test)]
mod tests {
    use super::*;

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
