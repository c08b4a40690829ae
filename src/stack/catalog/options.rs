//! Options of a library's build: parts that a stack may leave out of what is compiled.
//!
//! In: the options of a recipe and what a stack says of them. Out: what is left out, the edits of the source
//! that do it, and the local version that tells such a wheel from a whole one.

use super::conditions::Conditions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Something that a build can leave out.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BuildOption {
    /// Its name in a stack: `head_dims`.
    pub id: String,
    pub about: String,
    /// Parts of which a stack lists those that it keeps. Empty for an option that is on or off.
    #[serde(default)]
    pub parts: Vec<String>,
    #[serde(default)]
    pub when: Conditions,
    /// What no longer works without it, for messages: `gradients`.
    pub loses: String,
    /// Libraries that use what is lost.
    #[serde(default)]
    pub needed_by: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub edits: Vec<Edit>,
    pub source: String,
}

/// A change of the source that leaves out a part. In its texts `{part}` stands for the part's name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The part that the edit leaves out. Without `part`, the edit is made for each part that is left out.
    #[serde(default)]
    pub part: Option<String>,
    pub file: String,
    /// A text to replace by `with`.
    #[serde(default)]
    pub replace: Option<String>,
    #[serde(default)]
    pub with: String,
    /// A text whose lines are removed.
    #[serde(default)]
    pub remove_lines: Option<String>,
}

/// What a stack says of an option: on or off, or the parts that it keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum OptionValue {
    Switch(bool),
    Parts(Vec<String>),
}

/// What becomes of an option's parts in one build. An option that is on or off has one part, with its own name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OptionParts {
    pub option: String,
    pub kept: Vec<String>,
    pub left_out: Vec<String>,
    /// Whether it is on or off.
    #[serde(skip)]
    pub is_switch: bool,
}

/// Why a value does not fit an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionFault {
    /// The build has no option of this name.
    Unknown,
    /// It takes `true` or `false`.
    NotASwitch,
    /// It takes a list of these parts.
    NotAList(Vec<String>),
    UnknownPart {
        part: String,
        parts: Vec<String>,
    },
    /// No part is left.
    NothingKept(Vec<String>),
}

impl BuildOption {
    fn all(&self) -> Vec<String> {
        if self.parts.is_empty() {
            vec![self.id.clone()]
        } else {
            self.parts.clone()
        }
    }

    pub(super) fn split(&self, value: Option<&OptionValue>) -> Result<OptionParts, OptionFault> {
        let is_switch = self.parts.is_empty();
        let is_kept = |part: &String| match value {
            None | Some(OptionValue::Switch(true)) => true,
            Some(OptionValue::Switch(false)) => false,
            Some(OptionValue::Parts(wanted)) => wanted.contains(part),
        };
        match value {
            Some(OptionValue::Parts(_)) if is_switch => return Err(OptionFault::NotASwitch),
            Some(OptionValue::Switch(_)) if !is_switch => {
                return Err(OptionFault::NotAList(self.parts.clone()));
            }
            Some(OptionValue::Parts(wanted)) => {
                if let Some(part) = wanted.iter().find(|part| !self.parts.contains(part)) {
                    return Err(OptionFault::UnknownPart {
                        part: part.clone(),
                        parts: self.parts.clone(),
                    });
                }
                if wanted.is_empty() {
                    return Err(OptionFault::NothingKept(self.parts.clone()));
                }
            }
            _ => {}
        }
        let (kept, left_out) = self.all().into_iter().partition(is_kept);
        Ok(OptionParts {
            option: self.id.clone(),
            kept,
            left_out,
            is_switch,
        })
    }

    /// Returns the edits that leave out these parts, with their part's name filled in.
    pub(super) fn edits(&self, left_out: &[String]) -> Vec<Edit> {
        let of = |part: &String| {
            let fill = |text: &String| text.replace("{part}", part);
            let edits = self.edits.iter();
            edits
                .filter(|edit| edit.part.as_ref().is_none_or(|p| p == part))
                .map(|edit| Edit {
                    part: Some(part.clone()),
                    file: edit.file.clone(),
                    replace: edit.replace.as_ref().map(fill),
                    with: fill(&edit.with),
                    remove_lines: edit.remove_lines.as_ref().map(fill),
                })
                .collect::<Vec<_>>()
        };
        left_out.iter().flat_map(of).collect()
    }
}

impl OptionParts {
    /// Whether nothing is left out.
    pub fn is_whole(&self) -> bool {
        self.left_out.is_empty()
    }

    /// Returns its part of a local version (PEP 440): `headdims64.128`, `nobackward`.
    fn label(&self) -> String {
        let name = label_name(&self.option);
        if self.is_switch {
            format!("no{name}")
        } else {
            format!("{name}{}", self.kept.join("."))
        }
    }
}

impl std::fmt::Display for OptionParts {
    /// `head_dims 64, 128`; `no backward`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_switch {
            let no = if self.is_whole() { "" } else { "no " };
            write!(f, "{no}{}", self.option)
        } else {
            write!(f, "{} {}", self.option, self.kept.join(", "))
        }
    }
}

/// Returns an option's name as local versions have it.
pub(super) fn label_name(option: &str) -> String {
    option.chars().filter(|c| *c != '_').collect()
}

/// Returns the local version (PEP 440) of a wheel that keeps these parts. `None` for a whole one.
pub fn local_version(parts: &[OptionParts]) -> Option<String> {
    let cut = parts.iter().filter(|p| !p.is_whole());
    let labels: Vec<String> = cut.map(OptionParts::label).collect();
    (!labels.is_empty()).then(|| labels.join("."))
}
