//! Diagnoses failures from a log.
//!
//! In: the catalog's diagnoses, and a log of any size from any reader. Out: [`Match`]es, root cause first,
//! each with the line that shows it, a cause and a fix. The log is read once, in blocks, and never held in
//! memory. Only failures in the catalog are recognised.

mod blocks;
mod diagnoses;
mod found;
mod line;
mod pattern;
mod symbol;

use crate::diag::Code;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use blocks::Blocks;
use found::Found;
use serde::Serialize;
use std::io::{self, Read};
use std::ops::Range;

pub use diagnoses::{Diagnoses, Diagnosis, Rank};
pub use pattern::Pattern;
pub use symbol::readable;

/// A failure that was recognised in a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Match {
    pub code: Code,
    /// ID of the diagnosis in diagnoses.yaml.
    pub id: String,
    /// Number of the first line that shows the failure, counted from 1.
    pub line: u64,
    /// That line without colours and prefixes; of a long line, the part around the match.
    pub text: String,
    pub cause: String,
    pub fix: String,
    /// How often the log shows the failure.
    pub count: u64,
    /// Byte range of `text` that the pattern matched.
    #[serde(skip)]
    pub matched: Range<usize>,
}

/// Recognises failures in logs.
pub struct Diagnoser<'a> {
    diagnoses: &'a Diagnoses,
    /// Searches for the patterns' literals, which nearly all lines lack.
    literals: AhoCorasick,
    /// For each literal, the indices of its diagnosis and pattern.
    of: Vec<(usize, usize)>,
}

impl<'a> Diagnoser<'a> {
    pub fn new(diagnoses: &'a Diagnoses) -> Self {
        let mut literals = Vec::new();
        let mut of = Vec::new();
        for (d, diagnosis) in diagnoses.all.iter().enumerate() {
            for (p, pattern) in diagnosis.patterns.iter().enumerate() {
                for literal in &pattern.literals {
                    literals.push(literal);
                    of.push((d, p));
                }
            }
        }
        let literals = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&literals)
            .expect("a few thousand bytes of literals are within the automaton's limits");
        Self {
            diagnoses,
            literals,
            of,
        }
    }

    /// Returns the failures nearest to the root cause, the earliest first.
    pub fn read(&self, log: impl Read) -> io::Result<Vec<Match>> {
        let mut blocks = Blocks::new(log);
        let mut found = Found::new(&self.diagnoses.distributions);
        while let Some(block) = blocks.next()? {
            let mut number = block.line;
            let mut at = 0;
            while let Some(hit) = self.literals.find(&block.bytes[at..]) {
                let hit = at + hit.start()..at + hit.end();
                let around = line::around(block.bytes, &hit, at);
                number += line::breaks(&block.bytes[at..around.start]);
                self.line(number, &block.bytes[around.clone()], &mut found);
                number += line::breaks(&block.bytes[around.clone()]);
                at = around.end;
            }
        }
        Ok(found.nearest())
    }

    /// Matches a line. The first matching diagnosis, in the catalog's order, counts.
    fn line(&self, number: u64, bytes: &[u8], found: &mut Found<'_>) {
        let text = line::plain(bytes);
        if line::quotes_code(&text) {
            return;
        }
        let mut candidates: Vec<(usize, usize)> = self
            .literals
            .find_overlapping_iter(&*text)
            .map(|m| self.of[m.pattern().as_usize()])
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        for (d, p) in candidates {
            let diagnosis = &self.diagnoses.all[d];
            let regex = diagnosis.patterns[p].regex();
            if let Some(captures) = regex.and_then(|r| r.captures(&text)) {
                found.add((d, diagnosis), number, &text, &captures);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
