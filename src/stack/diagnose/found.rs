//! Collects the recognised failures in bounded memory.
//!
//! In: matches in the log's order. Out: those nearest to the root cause. A repeated failure is counted, not
//! kept again.

use super::diagnoses::{DISTRIBUTION, Diagnosis, PACKAGE, Rank};
use super::{Match, line, symbol};
use regex::bytes::Captures;
use stackforge_debian::soname::likely_package;
use stackforge_types::printable::is_plain;
use stackforge_types::wheel::normalized;
use std::collections::BTreeMap;

/// Most different failures of one diagnosis that are kept, such as missing libraries.
const KEPT: usize = 8;

pub struct Found<'a> {
    kept: Vec<Kept>,
    /// Distributions by the modules that they have, where the two names differ.
    distributions: &'a BTreeMap<String, String>,
}

struct Kept {
    /// Index of the diagnosis in the catalog.
    diagnosis: usize,
    rank: Rank,
    /// The text that the pattern captured. Equal text means the same failure.
    captured: Vec<u8>,
    found: Match,
}

impl<'a> Found<'a> {
    pub fn new(distributions: &'a BTreeMap<String, String>) -> Self {
        Self {
            kept: Vec::new(),
            distributions,
        }
    }

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
            .kept
            .iter_mut()
            .filter(|k| k.diagnosis == number)
            .collect();
        let full = same.len() == KEPT;
        let again = same.iter().position(|k| k.captured == captured);
        if let Some(place) = again.or(full.then_some(0)) {
            same[place].found.count += 1;
            return;
        }
        let filled = |text| filled(text, captures, self.distributions);
        let cause = filled(&diagnosis.cause);
        if let Some(kept) = same.into_iter().find(|k| k.found.cause == cause) {
            kept.found.count += 1;
            return;
        }
        let (text, matched) = line::shown(text, captures.get_match().range());
        self.kept.push(Kept {
            diagnosis: number,
            rank: diagnosis.rank,
            captured,
            found: Match {
                code: diagnosis.code,
                id: diagnosis.id.clone(),
                line,
                text,
                cause,
                fix: filled(&diagnosis.fix),
                count: 1,
                matched,
            },
        });
    }

    /// Returns the matches of the best rank that occurs, in the log's order.
    pub fn nearest(self) -> Vec<Match> {
        let nearest = self.kept.iter().map(|kept| kept.rank).min();
        self.kept
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

/// Returns the distribution that has the captured `module`. Most are called like their module.
fn distribution(captures: &Captures<'_>, known: &BTreeMap<String, String>) -> String {
    let module = captures.name("module").map(|found| found.as_bytes());
    let module = String::from_utf8_lossy(module.unwrap_or_default());
    let parents = module.match_indices('.').map(|(at, _)| &module[..at]);
    let mut names = std::iter::once(&*module).chain(parents.rev());
    match names.find_map(|name| known.get(name)) {
        Some(distribution) => distribution.clone(),
        None => normalized(module.split('.').next().unwrap_or_default()),
    }
}

/// Replaces each `{name}` in `text` by the captured text, or by `?` if nothing was captured.
fn filled(text: &str, captures: &Captures<'_>, distributions: &BTreeMap<String, String>) -> String {
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
            None if name == DISTRIBUTION => out.push_str(&distribution(captures, distributions)),
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
