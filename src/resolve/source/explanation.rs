//! Reads uv's explanation of why requirements cannot be met.
//!
//! In: the explanation. Out: the distributions that would have to be built from source. uv has no other form of it,
//! so the words of the uv that the program comes with are in the tests.

use stackforge_types::wheel::normalized;
use std::collections::BTreeSet;

/// Whether uv found no source of something either, by its words for it.
pub(super) fn lacks_source(explanation: &str) -> bool {
    explanation.contains("no source distribution")
}

/// What begins uv's hint on a distribution that something else requires and that has no wheel. The explanation
/// itself may name only what requires it.
const HINT: &str = "Wheels are required for `";

/// Returns the distributions that uv has no wheel of, by its words for it: `x==1 has no usable wheels`, `all
/// versions of x have no wheels with a matching Python ABI tag`, and its hints.
pub(super) fn without_wheels(explanation: &str) -> BTreeSet<String> {
    let hints = explanation.split(HINT).skip(1);
    let hinted = hints.filter_map(|rest| rest.split_once('`'));
    let mut out: BTreeSet<String> = hinted.map(|(name, _)| normalized(name)).collect();
    let words: Vec<&str> = explanation.split_whitespace().collect();
    for (at, pair) in words.windows(2).enumerate() {
        if !["has", "have"].contains(&pair[0]) || pair[1] != "no" {
            continue;
        }
        let rest = words.get(at + 2..).unwrap_or_default();
        let of_wheels = rest.iter().take(2).any(|word| word.starts_with("wheels"));
        let Some(subject) = at.checked_sub(1).and_then(|i| words.get(i)) else {
            continue;
        };
        let end = subject.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
        let name = &subject[..end.unwrap_or(subject.len())];
        if of_wheels && !name.is_empty() {
            out.insert(normalized(name));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_wheel_is_read_from_uvs_words() {
        let text = "Because all versions of wikipedia have no usable wheels and the stack asks for wikipedia, we can conclude that your requirements are unsatisfiable.\n\
            hint: Wheels are required for `Lang_Detect` because building from source is disabled for all packages\n\
            And because box2d-py==2.3.6 has no wheels with a matching Python ABI tag (e.g., `cp311`)\n\
            Because gym[accept-rom-license]==0.25.1 has no usable wheels\n\
            Because Antlr4_python3-runtime>=4.9,<=4.9.3 has no usable wheels and x has no dependencies";
        let found: Vec<String> = without_wheels(text).into_iter().collect();
        assert_eq!(
            found,
            [
                "antlr4-python3-runtime",
                "box2d-py",
                "gym",
                "lang-detect",
                "wikipedia"
            ]
        );
    }
}
