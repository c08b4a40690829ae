//! Changes of a stack file that settle findings.
//!
//! In: the text of a stack, and the fixes of its findings. Out: the text with them. Comments, order, quotes
//! and line ends of the rest stay as they are. What cannot be changed so is left to the user.

use crate::span::Span;
use serde::Serialize;
use serde_json::{Value, json};
use stackforge_types::yaml;
use std::fmt;
use yaml_edit::{Mapping, Sequence, YamlFile};

/// A change of the stack file that settles a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Fix {
    /// Writes another text in place of a key or a value; the same one where it lacks its quotes.
    Replace {
        #[serde(skip)]
        span: Span,
        from: String,
        to: String,
    },
    /// Adds an entry to `libraries`.
    AddLibrary { name: String, version: String },
    /// Adds OS packages to `packages`.
    AddPackages { names: Vec<String> },
}

/// A fix that this text does not take.
#[derive(Debug, thiserror::Error)]
#[error("this has to be done by hand: {fix}")]
pub struct Unfixable {
    pub fix: Fix,
}

impl Fix {
    /// Returns the place of what is replaced, in bytes; zero for what is added.
    pub fn offset(&self) -> usize {
        match self {
            Fix::Replace { span, .. } => span.offset,
            _ => 0,
        }
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fix::Replace { span, from, to } if from == to => {
                write!(f, "line {}: `{from}` → `\"{to}\"`", span.line)
            }
            Fix::Replace { span, from, to } => {
                write!(f, "line {}: `{from}` → `{to}`", span.line)
            }
            Fix::AddLibrary { name, version } => write!(f, "`{name}: {version}` in `libraries`"),
            Fix::AddPackages { names } => {
                write!(f, "`{}` in `packages`", names.join("`, `"))
            }
        }
    }
}

/// Returns the text with a fix.
///
/// # Errors
/// If the text is not YAML, or does not have what the fix changes in a form that can be changed.
pub fn apply(text: &str, fix: &Fix) -> Result<String, Unfixable> {
    let unfixable = || Unfixable { fix: fix.clone() };
    let before: Value = yaml::from_slice(text.as_bytes()).map_err(|_| unfixable())?;
    let (fixed, expected) = match fix {
        Fix::Replace { span, from, to } => (replaced(text, *span, from, to), None),
        Fix::AddLibrary { name, version } => {
            let mut expected = before;
            if let Some(Value::Object(libraries)) = expected.get_mut("libraries") {
                libraries.insert(name.clone(), json!(version));
            }
            let edit = |root: &Mapping| match root.get_mapping("libraries") {
                Some(libraries) => {
                    libraries.set(name.as_str(), version.as_str());
                    true
                }
                None => false,
            };
            (edited(text, edit), Some(expected))
        }
        Fix::AddPackages { names } => {
            let mut expected = before;
            let root = expected.as_object_mut().ok_or_else(unfixable)?;
            let packages = root.entry("packages").or_insert(Value::Null);
            match packages {
                Value::Array(packages) => packages.extend(names.iter().map(|name| json!(name))),
                Value::Null => *packages = json!(names),
                _ => return Err(unfixable()),
            }
            (with_packages(text, names), Some(expected))
        }
    };
    let fixed = fixed.ok_or_else(unfixable)?;
    let after: Value = yaml::from_slice(fixed.as_bytes()).map_err(|_| unfixable())?;
    match expected {
        Some(expected) if expected != after => Err(unfixable()),
        _ => Ok(fixed),
    }
}

/// Replaces the scalar at a place, which may be in quotes. Those of the text are kept; a text that YAML
/// would read as something else is quoted.
fn replaced(text: &str, span: Span, from: &str, to: &str) -> Option<String> {
    let (before, rest) = text.split_at_checked(span.offset)?;
    let (before, rest) = match rest.strip_prefix(['"', '\'']) {
        Some(inner) => text.split_at_checked(text.len() - inner.len())?,
        None => (before, rest),
    };
    let after = rest.strip_prefix(from)?;
    let quoted = before.ends_with(['"', '\'']);
    let whole = after.is_empty() || after.starts_with(|c: char| !word(c));
    if from.is_empty() || !whole || to.contains(['"', '\'', '\\', '\n']) {
        return None;
    }
    Some(if quoted || is_plain(to) {
        format!("{before}{to}{after}")
    } else {
        format!("{before}\"{to}\"{after}")
    })
}

fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}

/// Whether YAML reads a text without quotes as this text.
fn is_plain(text: &str) -> bool {
    let inner = |c: char| word(c) || "/@".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_text = || matches!(yaml::from_slice(text.as_bytes()), Ok(Value::String(t)) if t == text);
    begins && text.chars().all(inner) && is_text()
}

/// Adds items to `packages`, or the key where the stack has none.
fn with_packages(text: &str, names: &[String]) -> Option<String> {
    edited(text, |root| {
        let there = root.get_sequence("packages");
        let packages = there.clone().unwrap_or_else(Sequence::new_flow);
        for name in names {
            packages.push(name.as_str());
        }
        if there.is_none() {
            root.set("packages", packages);
        }
        true
    })
}

/// Changes the mapping that the text is.
fn edited(text: &str, change: impl FnOnce(&Mapping) -> bool) -> Option<String> {
    let file: YamlFile = text.parse().ok()?;
    let root = file.document()?.as_mapping()?;
    change(&root).then(|| file.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STACK: &str = "# What the robot runs.\nstack: s   # its name\nbase: debian-bookworm\n\ntarget: { platform: linux/amd64, gpu: [thro] }\nlibraries:\n  # the newest\n  torch: auto\n  onnxruntime-gpu: \"1.23.*\"   # pinned\n\npackages:\n  - git # for pip\n";

    fn replace(text: &str, from: &str, to: &str) -> Fix {
        let at = text.find(from).unwrap();
        Fix::Replace {
            span: Span::of(text, at..at + from.len()),
            from: from.to_owned(),
            to: to.to_owned(),
        }
    }

    fn package(name: &str) -> Fix {
        Fix::AddPackages {
            names: vec![name.to_owned()],
        }
    }

    fn library(name: &str, version: &str) -> Fix {
        Fix::AddLibrary {
            name: name.to_owned(),
            version: version.to_owned(),
        }
    }

    #[test]
    fn what_no_fix_names_stays() {
        let extras = "onnxruntime-gpu[cuda,cudnn]";
        let fixed = apply(STACK, &replace(STACK, "onnxruntime-gpu", extras)).unwrap();
        assert_eq!(
            fixed,
            STACK.replace("  onnxruntime-gpu:", &format!("  \"{extras}\":"))
        );
        let fixed = apply(STACK, &replace(STACK, "thro", "thor")).unwrap();
        assert_eq!(fixed, STACK.replace("thro", "thor"));
        let fixed = apply(STACK, &package("libgomp1")).unwrap();
        assert_eq!(fixed, format!("{STACK}  - libgomp1\n"));
        let fixed = apply(STACK, &library("six", "auto")).unwrap();
        let line = "  onnxruntime-gpu: \"1.23.*\"   # pinned\n";
        assert_eq!(fixed, STACK.replace(line, &format!("{line}  six: auto\n")));
    }

    #[test]
    fn forms_of_lists_are_kept() {
        for (text, fixed) in [
            ("packages: [git]\n", "packages: [git, libgomp1]\n"),
            ("packages: []\n", "packages: [libgomp1]\n"),
            ("a: 1\n", "a: 1\npackages: [libgomp1]\n"),
            ("a: 1", "a: 1\npackages: [libgomp1]"),
            (
                "packages:\n- git\na: 1\n",
                "packages:\n- git\n- libgomp1\na: 1\n",
            ),
            (
                "# of us\n---\npackages: [ git ] # one\n",
                "# of us\n---\npackages: [ git, libgomp1 ] # one\n",
            ),
            (
                "packages:\r\n  - git\r\na: 1\r\n",
                "packages:\r\n  - git\r\n  - libgomp1\r\na: 1\r\n",
            ),
        ] {
            assert_eq!(apply(text, &package("libgomp1")).unwrap(), fixed);
        }
        let text = "libraries: {torch: auto}\n";
        let fixed = apply(text, &library("six", "1.10")).unwrap();
        assert_eq!(fixed, "libraries: {torch: auto, six: '1.10'}\n");
    }

    #[test]
    fn texts_that_yaml_would_read_otherwise_are_quoted() {
        let text = "python: 3.10\nbase: 'thor'\n";
        let fixed = apply(text, &replace(text, "3.10", "3.11")).unwrap();
        assert_eq!(fixed, "python: \"3.11\"\nbase: 'thor'\n");
        let fixed = apply(text, &replace(text, "thor", "3.11")).unwrap();
        assert_eq!(fixed, "python: 3.10\nbase: '3.11'\n");
        for to in ["null", "yes", "1e3", "a: b", "x[y]", "#"] {
            let fixed = apply(text, &replace(text, "3.10", to)).unwrap();
            let value: Value = yaml::from_slice(fixed.as_bytes()).unwrap();
            assert_eq!(value["python"], to);
        }
    }

    #[test]
    fn what_is_not_there_is_left_to_the_user() {
        let moved = Fix::Replace {
            span: Span::of(STACK, 3..5),
            from: "torch".to_owned(),
            to: "triton".to_owned(),
        };
        let half = replace(STACK, "tor", "x");
        let none = library("six", "auto");
        for (text, fix) in [
            (STACK, moved),
            (STACK, half),
            ("stack: s\n", none),
            ("packages: {a: b}\n", package("git")),
            ("- a\n", package("git")),
            ("a: [\n", package("git")),
        ] {
            let said = apply(text, &fix).unwrap_err().to_string();
            assert!(said.starts_with("this has to be done by hand: "), "{said}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\PC|\n|: |- |\\{|\\[|&a|\\*a|\"|packages|libraries){0,60}") {
            for fix in [package("git"), library("six", "auto")] {
                if let Ok(fixed) = apply(&text, &fix) {
                    prop_assert!(fixed != text);
                }
            }
        }
    }
}
