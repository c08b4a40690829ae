//! Collects the recognised failures in bounded memory.
//!
//! In: matches in the log's order. Out: those nearest to the root cause. A repeated failure is counted, not
//! kept again.

use super::diagnoses::{Diagnosis, PACKAGE, Rank};
use super::{Match, line, symbol};
use regex::bytes::Captures;
use stackforge_debian::soname::likely_package;
use stackforge_types::printable::is_plain;

/// Most different failures of one diagnosis that are kept, such as missing libraries.
const KEPT: usize = 8;

#[derive(Default)]
pub struct Found(Vec<Kept>);

struct Kept {
    /// Index of the diagnosis in the catalog.
    diagnosis: usize,
    rank: Rank,
    /// The text that the pattern captured. Equal text means the same failure.
    captured: Vec<u8>,
    found: Match,
}

impl Found {
    pub fn add(
        &mut self,
        (number, diagnosis): (usize, &Diagnosis),
        line: u64,
        text: &[u8],
        captures: &Captures<'_>,
    ) {
        let mut captured = Vec::new();
        for group in captures.iter().skip(1).flatten() {
            captured.extend_from_slice(group.as_bytes());
            captured.push(0);
        }
        let mut same: Vec<&mut Kept> = self
            .0
            .iter_mut()
            .filter(|k| k.diagnosis == number)
            .collect();
        let full = same.len() == KEPT;
        let again = same.iter().position(|k| k.captured == captured);
        if let Some(place) = again.or(full.then_some(0)) {
            same[place].found.count += 1;
            return;
        }
        let cause = filled(&diagnosis.cause, captures);
        if let Some(kept) = same.into_iter().find(|k| k.found.cause == cause) {
            kept.found.count += 1;
            return;
        }
        let (text, matched) = line::shown(text, captures.get_match().range());
        self.0.push(Kept {
            diagnosis: number,
            rank: diagnosis.rank,
            captured,
            found: Match {
                code: diagnosis.code,
                id: diagnosis.id.clone(),
                line,
                text,
                cause,
                fix: filled(&diagnosis.fix, captures),
                count: 1,
                matched,
            },
        });
    }

    /// Returns the matches of the best rank that occurs, in the log's order.
    pub fn nearest(self) -> Vec<Match> {
        let nearest = self.0.iter().map(|kept| kept.rank).min();
        self.0
            .into_iter()
            .filter(|kept| Some(kept.rank) == nearest)
            .map(|kept| kept.found)
            .collect()
    }
}

/// Returns the OS package that the captured `library` most likely lies in, by its name.
fn package(captures: &Captures<'_>) -> String {
    let library = captures.name("library").map(|found| found.as_bytes());
    let library = String::from_utf8_lossy(library.unwrap_or_default());
    let name = library.rsplit('/').next().unwrap_or_default();
    likely_package(name).unwrap_or_else(|| "…".to_owned())
}

/// Replaces each `{name}` in `text` by the captured text, or by `?` if nothing was captured.
fn filled(text: &str, captures: &Captures<'_>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            out.push('{');
            rest = after;
            continue;
        };
        match captures.name(name) {
            None if name == PACKAGE => out.push_str(&package(captures)),
            Some(found) => {
                let found = String::from_utf8_lossy(found.as_bytes());
                let one_line = found.chars().filter(|c| is_plain(*c)).collect::<String>();
                out.push_str(&symbol::readable(&one_line));
            }
            None => out.push('?'),
        }
        rest = after;
    }
    out + rest
}
