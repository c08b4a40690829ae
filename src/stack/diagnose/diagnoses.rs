//! The failures that logs show: `diagnoses.yaml`, extended by a user's own.
//!
//! In: the embedded file and, if an overlay has one, the user's. Out: [`Diagnoses`] in the order in which they
//! are tried on a line. A diagnosis that does not match its own examples is never loaded.

use super::Pattern;
use crate::catalog::{CatalogError, parse, schema};
use crate::diag::Code;
use crate::embedded::inflated;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Stands in a fix for the OS package that the captured `library` most likely lies in.
pub(super) const PACKAGE: &str = "os_package";
/// Stands in a fix for the distribution that has the captured `module`.
pub(super) const DISTRIBUTION: &str = "distribution";

const FILE: &str = "diagnoses.yaml";
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/diagnoses.yaml"));

#[derive(Debug, Clone)]
pub struct Diagnoses {
    /// In the order in which they are tried on a line.
    pub all: Vec<Diagnosis>,
    /// Distributions by the modules that they have, where the two names differ.
    pub(super) distributions: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diagnosis {
    pub id: String,
    pub code: Code,
    #[serde(default)]
    pub rank: Rank,
    pub patterns: Vec<Pattern>,
    /// Description of the failure; `{name}` is replaced by what the pattern captured, `{os_package}` by the
    /// OS package that the captured `library` most likely lies in, `{distribution}` by the one that has the
    /// captured `module`.
    pub cause: String,
    pub fix: String,
    /// Example lines. Each pattern matches at least one.
    pub examples: Vec<String>,
    pub source: String,
}

/// How near to the root cause a line is. Only the nearest in a log are reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rank {
    /// The root cause.
    #[default]
    Root,
    /// Often the cause, but just as often a harmless warning or a sign of something else.
    Suspect,
    /// The line names the part that failed, but not the reason.
    Wrapper,
    /// The line repeats that something failed.
    Echo,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    diagnoses: Vec<Diagnosis>,
    #[serde(default)]
    distributions: BTreeMap<String, String>,
}

impl Diagnoses {
    /// Loads the embedded diagnoses. An overlay's replace those with the same ID; its others come first.
    pub fn load(overlay: Option<&Path>) -> Result<Self, CatalogError> {
        let embedded = read(&format!("catalog/{FILE}"), &inflated(EMBEDDED))?;
        let mut both = Self {
            all: embedded.diagnoses,
            distributions: embedded.distributions,
        };
        let Some(path) = overlay.map(|dir| dir.join(FILE)) else {
            return Ok(both);
        };
        let content = match std::fs::read(&path) {
            Ok(content) => content,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(both),
            Err(source) => return Err(CatalogError::Read { path, source }),
        };
        let shown = path.display().to_string();
        let own = read(&shown, &content)?;
        check(&own.diagnoses).map_err(|message| CatalogError::Inconsistent {
            file: shown,
            message,
        })?;
        let mut first = Vec::new();
        for diagnosis in own.diagnoses {
            match both.all.iter_mut().find(|d| d.id == diagnosis.id) {
                Some(old) => *old = diagnosis,
                None => first.push(diagnosis),
            }
        }
        first.append(&mut both.all);
        both.all = first;
        both.distributions.extend(own.distributions);
        Ok(both)
    }
}

fn read(shown: &str, content: &[u8]) -> Result<File, CatalogError> {
    let file: File = parse(shown, content)?;
    schema(shown, file.schema)?;
    Ok(file)
}

/// Checks that IDs are unique, that each `{name}` is captured, and that examples and patterns match each
/// other.
fn check(diagnoses: &[Diagnosis]) -> Result<(), String> {
    let mut ids = BTreeSet::new();
    for d in diagnoses {
        let id = &d.id;
        if !ids.insert(id) {
            return Err(format!("`{id}` is there twice"));
        }
        for pattern in &d.patterns {
            let regex = pattern.regex();
            let regex = regex.ok_or_else(|| format!("`{id}`: `{}` is too large", pattern.text))?;
            let captured: BTreeSet<_> = regex.capture_names().flatten().collect();
            for name in [&d.cause, &d.fix].into_iter().flat_map(|t| placeholders(t)) {
                let named = match name {
                    PACKAGE => "library",
                    DISTRIBUTION => "module",
                    name => name,
                };
                if !captured.contains(named) {
                    return Err(format!(
                        "`{id}`: {{{name}}} is not captured by `{}`",
                        pattern.text
                    ));
                }
            }
            let matches = |line: &String| pattern.is_match(line.as_bytes());
            if !d.examples.iter().any(matches) {
                return Err(format!("`{id}`: no example matches `{}`", pattern.text));
            }
        }
        for line in &d.examples {
            if !d.patterns.iter().any(|p| p.is_match(line.as_bytes())) {
                return Err(format!("`{id}` does not match its example `{line}`"));
            }
        }
    }
    Ok(())
}

/// Returns the names between braces.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split('{')
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('}')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::codes;

    const OWN: &str = "schema: 1
diagnoses:
- id: fast-kernels-license
  code: SF0742
  patterns: ['license server (?P<host>\\S+) refused']
  cause: '`{host}` has no free license'
  fix: wait
  examples: ['E: license server a.example refused']
  source: its manual
";

    fn own(text: &str) -> Result<Diagnoses, CatalogError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), text).unwrap();
        Diagnoses::load(Some(dir.path()))
    }

    #[test]
    fn the_embedded_diagnoses_hold_what_they_promise() {
        let all = Diagnoses::load(None).unwrap().all;
        check(&all).unwrap();
        for d in &all {
            // Two are of steps of our own, which have codes elsewhere too.
            let own = [codes::COMPILE_OFFLINE, codes::WHEEL_UNSOUND].contains(&d.code);
            assert!(d.code.0 / 100 == 7 || own, "{}: {}", d.id, d.code);
            assert!(!d.patterns.is_empty() && !d.source.is_empty(), "{}", d.id);
            assert!(
                d.cause.ends_with(['.', ')', '}']) && d.fix.ends_with('.'),
                "{}",
                d.id
            );
        }
    }

    #[test]
    fn an_example_is_taken_by_its_own_diagnosis_first() {
        let all = Diagnoses::load(None).unwrap().all;
        let takes = |line: &str| {
            let matches = |d: &&Diagnosis| d.patterns.iter().any(|p| p.is_match(line.as_bytes()));
            all.iter().find(matches).map(|d| d.id.as_str())
        };
        for d in &all {
            for line in &d.examples {
                assert_eq!(takes(line), Some(d.id.as_str()), "{line}");
            }
        }
    }

    #[test]
    fn a_users_diagnoses_come_first_or_in_place() {
        let all = own(OWN).unwrap().all;
        assert_eq!(all[0].id, "fast-kernels-license");
        let before = Diagnoses::load(None).unwrap().all;
        assert_eq!(all.len(), before.len() + 1);
        let replaced = own(&OWN.replace("fast-kernels-license", &before[3].id))
            .unwrap()
            .all;
        assert_eq!(replaced.len(), before.len());
        assert_eq!(replaced[3].fix, "wait");
    }

    #[test]
    fn what_is_wrong_with_a_users_file_is_said() {
        for (from, to, expected) in [
            ("SF0742", "SF9742", "there is no code `SF9742`"),
            ("{host}", "{hots}", "{hots} is not captured"),
            ("a.example refused", "away", "no example matches"),
            (
                "license server (?P",
                "(license server (?P",
                "unclosed group",
            ),
            (
                "'license server (?P<host>\\S+) refused'",
                "'(?P<host>\\S+)'",
                "needs 4 characters",
            ),
            ("  source: its manual\n", "", "source"),
        ] {
            let e = own(&OWN.replace(from, to)).unwrap_err().to_string();
            assert!(e.contains(expected) && e.contains(FILE), "{e}");
        }
    }
}
