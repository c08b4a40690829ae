//! A regular expression that recognises a line, with the literals that such a line must contain.
//!
//! In: the expression's text. Out: [`Pattern`]. It matches bytes, as logs are not always UTF-8, and is compiled
//! when it is first tried, as a log has few lines to try it on. It never has to be tried on every line: a
//! hundred expressions on each line of a large log would take minutes, a search for literals is fast.

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind};
use serde::Deserialize;
use std::sync::OnceLock;

/// Shortest literal, in bytes, that is searched: shorter ones are in too many lines.
const SHORTEST: usize = 4;

#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    pub text: String,
    /// Every match contains at least one of these.
    pub literals: Vec<Vec<u8>>,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Returns the compiled expression. `None` if it is too large.
    pub fn regex(&self) -> Option<&Regex> {
        let compile = || RegexBuilder::new(&self.text).unicode(false).build().ok();
        self.compiled.get_or_init(compile).as_ref()
    }

    pub fn is_match(&self, line: &[u8]) -> bool {
        self.regex().is_some_and(|r| r.is_match(line))
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let hir = regex_syntax::ParserBuilder::new()
            .unicode(false)
            .utf8(false)
            .build()
            .parse(&text)
            .map_err(|e| format!("pattern `{text}`: {e}"))?;
        let literals = required(&hir)
            .filter(|set| shortest(set) >= SHORTEST)
            .ok_or_else(|| {
                format!("pattern `{text}` needs {SHORTEST} characters that stand in every match")
            })?;
        Ok(Self {
            text,
            literals,
            compiled: OnceLock::new(),
        })
    }
}

/// Returns literals of which every match contains at least one. `None` if there is no such set.
fn required(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Literal(literal) => longest_piece(&literal.0).map(|piece| vec![piece]),
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        HirKind::Concat(parts) => parts
            .iter()
            .filter_map(required)
            .max_by_key(|set| shortest(set)),
        HirKind::Alternation(parts) => {
            let sets: Option<Vec<_>> = parts.iter().map(required).collect();
            Some(sets?.into_iter().flatten().collect())
        }
        _ => None,
    }
}

/// Returns the longest part of a literal without quotes, which programs print as the locale has them.
fn longest_piece(literal: &[u8]) -> Option<Vec<u8>> {
    let pieces = literal.split(|b| *b == b'\'');
    pieces
        .max_by_key(|piece| piece.len())
        .filter(|piece| !piece.is_empty())
        .map(<[u8]>::to_vec)
}

fn shortest(set: &[Vec<u8>]) -> usize {
    set.iter().map(Vec::len).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn literals(text: &str) -> Vec<String> {
        let pattern = Pattern::try_from(text.to_owned()).unwrap();
        let text = |l: &Vec<u8>| String::from_utf8(l.clone()).unwrap();
        pattern.literals.iter().map(text).collect()
    }

    #[test]
    fn literals_are_those_that_every_match_holds() {
        assert_eq!(
            literals(r"(?P<lib>lib\w+\.so): cannot open"),
            [": cannot open"]
        );
        assert_eq!(
            literals("(?:Killed|signal 9) by x?"),
            ["Killed", "signal 9"]
        );
        assert_eq!(literals(r"option 'gpu-name'"), ["gpu-name"]);
        assert_eq!(literals(r"(?:error: )?fatal error"), ["fatal error"]);
    }

    #[test]
    fn a_pattern_without_literals_is_refused() {
        for text in [
            r"\w+",
            "(?i)killed",
            "abc",
            "(?:error|e)",
            "(?:long text)?",
            "(",
        ] {
            assert!(Pattern::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_match_holds_a_literal(pattern in "[abc(|)?+.]{4,24}", text in "[abc]{0,40}") {
            let Ok(pattern) = Pattern::try_from(format!("abca(?:{pattern})")) else { return Ok(()) };
            if let Some(m) = pattern.regex().unwrap().find(text.as_bytes()) {
                let found = |l: &Vec<u8>| memchr::memmem::find(m.as_bytes(), l).is_some();
                prop_assert!(pattern.literals.iter().any(found));
            }
        }
    }
}
