//! What has been recognised so far, in bounded memory.
//!
//! In: matches in the log's order. Out: those nearest to the root cause. The same failure told
//! again is counted, not kept.

use super::{Match, line, symbol};
use crate::catalog::{Diagnosis, Rank};
use regex::bytes::Captures;
use std::collections::HashMap;

/// Different failures of one diagnosis that are kept: libraries that are missing, say.
const KEPT: usize = 8;

#[derive(Default)]
pub struct Found {
    kept: Vec<(Rank, Match)>,
    /// Place in `kept` of each diagnosis with each cause.
    places: HashMap<(usize, String), usize>,
    /// Places of each diagnosis.
    of: HashMap<usize, Vec<usize>>,
}

impl Found {
    pub fn add(
        &mut self,
        (number, diagnosis): (usize, &Diagnosis),
        line: u64,
        text: &[u8],
        captures: &Captures<'_>,
    ) {
        let cause = filled(&diagnosis.cause, captures);
        let places = self.of.entry(number).or_default();
        if let Some(place) = self.places.get(&(number, cause.clone())) {
            self.kept[*place].1.count += 1;
            return;
        }
        if places.len() == KEPT {
            self.kept[places[0]].1.count += 1;
            return;
        }
        places.push(self.kept.len());
        self.places.insert((number, cause.clone()), self.kept.len());
        let (text, matched) = line::shown(text, captures.get_match().range());
        self.kept.push((
            diagnosis.rank,
            Match {
                code: diagnosis.code,
                id: diagnosis.id.clone(),
                line,
                text,
                cause,
                fix: filled(&diagnosis.fix, captures),
                count: 1,
                matched,
            },
        ));
    }

    /// The matches of the nearest rank that there is, in the log's order.
    pub fn nearest(self) -> Vec<Match> {
        let nearest = self.kept.iter().map(|(rank, _)| *rank).min();
        self.kept
            .into_iter()
            .filter(|(rank, _)| Some(*rank) == nearest)
            .map(|(_, found)| found)
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
                let one_line = found
                    .chars()
                    .filter(|c| !c.is_control())
                    .collect::<String>();
                out.push_str(&symbol::readable(&one_line));
            }
            None => out.push('?'),
        }
        rest = after;
    }
    out + rest
}
