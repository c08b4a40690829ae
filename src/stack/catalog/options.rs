//! Options of a library's build: parts that a stack may leave out of what is compiled.
//!
//! In: the options of a recipe and what a stack says of them. Out: what is left out, the edits of the source
//! that do it, and the local version that tells such a wheel from a whole one.

use super::library::{Build, Conditions, Facts};
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

    fn split(&self, value: Option<&OptionValue>) -> Result<OptionParts, OptionFault> {
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
    fn edits(&self, left_out: &[String]) -> Vec<Edit> {
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

impl Build {
    /// Returns the recipe's option of a name.
    pub fn option(&self, name: &str) -> Option<&BuildOption> {
        self.options.iter().find(|option| option.id == name)
    }

    /// Returns what a stack's value keeps of an option.
    ///
    /// # Errors
    /// Says why it is not a value of one of the recipe's options.
    pub fn option_parts(
        &self,
        name: &str,
        value: &OptionValue,
    ) -> Result<OptionParts, OptionFault> {
        let option = self.option(name).ok_or(OptionFault::Unknown)?;
        option.split(Some(value))
    }

    /// Returns all options with what `values` keep of them. Empty if they leave nothing out. Ignores values of options
    /// that the recipe does not have.
    pub fn chosen_parts(
        &self,
        facts: &Facts<'_>,
        values: &BTreeMap<&str, &OptionValue>,
    ) -> Vec<OptionParts> {
        let here = self.options.iter().filter(|o| o.when.hold(facts));
        let parts: Vec<OptionParts> = here
            .filter_map(|o| o.split(values.get(o.id.as_str()).copied()).ok())
            .collect();
        if parts.iter().all(OptionParts::is_whole) {
            return Vec::new();
        }
        parts
    }

    /// Returns the edits of the source that leave out what `parts` do not keep, each with the option's name.
    pub fn option_edits(&self, parts: &[OptionParts]) -> Vec<(String, Edit)> {
        let mut all = Vec::new();
        for parts in parts {
            if let Some(option) = self.option(&parts.option) {
                let edits = option.edits(&parts.left_out).into_iter();
                all.extend(edits.map(|edit| (parts.option.clone(), edit)));
            }
        }
        all
    }

    /// Returns the variables that `parts` add to the build's environment.
    pub fn option_env(&self, parts: &[OptionParts]) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for cut in parts.iter().filter(|p| !p.is_whole()) {
            if let Some(option) = self.option(&cut.option) {
                env.extend(option.env.clone());
            }
        }
        if let (Some(variable), Some(label)) = (&self.local_version, local_version(parts)) {
            env.insert(variable.clone(), label);
        }
        env
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

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD: &str = r##"
source: sdist
jobs: { variable: MAX_JOBS, memory_gb: 4, source: s }
local_version: LOCAL
options:
  - id: head_dims
    about: a
    parts: ["32", "64", "128"]
    loses: l
    edits:
      - { file: setup.py, remove_lines: "_hdim{part}_" }
      - { part: "32", file: a.h, replace: "= 32;  x", with: "no {part}" }
    source: s
  - id: backward
    about: a
    when: { version: ">=2" }
    loses: training
    env: { NO_BACKWARD: "1" }
    edits: [{ file: a.h, replace: "#pragma once", with: "#pragma once\n#define X" }]
    source: s
"##;

    fn chosen(values: &[(&str, OptionValue)], version: &str) -> (Build, Vec<OptionParts>) {
        let build: Build = serde_saphyr::from_str(BUILD).unwrap();
        let version = version.parse().unwrap();
        let facts = Facts {
            version: Some(&version),
            ..Facts::default()
        };
        let values = values.iter().map(|(name, value)| (*name, value)).collect();
        let parts = build.chosen_parts(&facts, &values);
        (build, parts)
    }

    fn list(parts: &[&str]) -> OptionValue {
        OptionValue::Parts(parts.iter().map(|p| (*p).to_owned()).collect())
    }

    #[test]
    fn parts_are_left_out_by_edits_and_told_by_the_version() {
        let values = [
            ("head_dims", list(&["128", "64"])),
            ("backward", OptionValue::Switch(false)),
        ];
        let (build, parts) = chosen(&values, "2.8");
        assert_eq!(
            local_version(&parts).unwrap(),
            "headdims64.128.nobackward",
            "in the catalog's order"
        );
        let shown: Vec<String> = parts.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["head_dims 64, 128", "no backward"]);
        let edits = build.option_edits(&parts);
        let texts: Vec<&str> = edits
            .iter()
            .map(|(_, e)| e.remove_lines.as_deref().unwrap_or(&e.with))
            .collect();
        assert_eq!(texts, ["_hdim32_", "no 32", "#pragma once\n#define X"]);
        let env = build.option_env(&parts);
        assert_eq!(env["LOCAL"], "headdims64.128.nobackward");
        assert_eq!(env["NO_BACKWARD"], "1");
    }

    #[test]
    fn what_leaves_nothing_out_is_a_whole_build() {
        for values in [
            &[][..],
            &[("backward", OptionValue::Switch(true))],
            &[("head_dims", list(&["32", "64", "128"]))],
        ] {
            let (build, parts) = chosen(values, "2.8");
            assert!(parts.is_empty(), "{values:?}");
            assert!(build.option_env(&parts).is_empty());
        }
        let (_, parts) = chosen(&[("backward", OptionValue::Switch(false))], "1.0");
        assert!(parts.is_empty(), "the release does not have the option");
    }

    #[test]
    fn each_fault_is_told_apart() {
        let (build, _) = chosen(&[], "2.8");
        let fault = |name: &str, value| build.option_parts(name, &value).unwrap_err();
        let dims = ["32", "64", "128"].map(str::to_owned).to_vec();
        assert_eq!(
            fault("heads", OptionValue::Switch(true)),
            OptionFault::Unknown
        );
        assert_eq!(fault("backward", list(&["1"])), OptionFault::NotASwitch);
        assert_eq!(
            fault("head_dims", OptionValue::Switch(false)),
            OptionFault::NotAList(dims.clone())
        );
        let unknown = OptionFault::UnknownPart {
            part: "65".to_owned(),
            parts: dims.clone(),
        };
        assert_eq!(fault("head_dims", list(&["64", "65"])), unknown);
        assert_eq!(
            fault("head_dims", list(&[])),
            OptionFault::NothingKept(dims)
        );
    }
}
