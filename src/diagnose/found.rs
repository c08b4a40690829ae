//! What has been recognised so far, in bounded memory.
//!
//! In: matches in the log's order. Out: those nearest to the root cause. The same failure told
//! again is counted, not kept.

use super::{Match, line, symbol};
use crate::catalog::{Diagnosis, Rank};
use regex::bytes::Captures;
use stackforge_types::printable::is_plain;

/// Different failures of one diagnosis that are kept: libraries that are missing, say.
const KEPT: usize = 8;

#[derive(Default)]
pub struct Found(Vec<Kept>);

struct Kept {
    /// Place of the diagnosis in the catalog.
    diagnosis: usize,
    rank: Rank,
    /// What the pattern captured: the same again is the same failure.
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

    /// The matches of the nearest rank that there is, in the log's order.
    pub fn nearest(self) -> Vec<Match> {
        let nearest = self.0.iter().map(|kept| kept.rank).min();
        self.0
            .into_iter()
            .filter(|kept| Some(kept.rank) == nearest)
            .map(|kept| kept.found)
            .collect()
    }
}

/// `text` with each `{name}` replaced by what was captured, or by `?` where nothing was.
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
