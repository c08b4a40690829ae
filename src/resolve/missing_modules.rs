//! Modules that chosen distributions import and do not require.
//!
//! In: what the chosen files hold. Out: for each missing module that the catalog knows, the requirement that brings it, and
//! who imports it. Metadata are written by hand, and a package whose author had `six` or an old setuptools installed
//! anyway does not import in an environment that has only what is required. Never: takes a distribution by the mere name
//! of a module.

use super::answer::Pins;
use super::contents::AllContents;
use stackforge_types::wheel::{distribution_of, normalized};
use std::collections::{BTreeMap, BTreeSet};

/// A module that no chosen distribution brings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MissingModule {
    pub module: String,
    /// What brings it.
    pub requirement: String,
    /// Distributions that import it.
    pub by: BTreeSet<String>,
}

impl MissingModule {
    /// Returns the normalized name of the distribution that brings it.
    pub fn distribution(&self) -> String {
        distribution_of(&self.requirement)
    }
}

/// Returns what is imported and not there, of the modules for which a requirement is known.
pub(super) fn missing<'k>(
    all: &AllContents,
    pins: &Pins,
    known: impl Fn(&str) -> Option<&'k str>,
) -> Vec<MissingModule> {
    let modules = || {
        all.iter()
            .map(|(name, contents)| (*name, &contents.modules))
    };
    let own: BTreeSet<&String> = modules().flat_map(|(_, modules)| &modules.own).collect();
    let mut by: BTreeMap<&String, BTreeSet<String>> = BTreeMap::new();
    for (name, modules) in modules() {
        for module in modules.wanted.iter().filter(|m| !own.contains(m)) {
            by.entry(module).or_default().insert(name.to_owned());
        }
    }
    let missing = by.into_iter().filter_map(|(module, by)| {
        let requirement = known(module)?;
        // A distribution that was not read may have the module. One that was read has no such file, and will do only where
        // any release does: setuptools makes distutils when Python starts.
        let distribution = distribution_of(requirement);
        let is_read = all.contains_key(distribution.as_str());
        let any_will_do = normalized(requirement) == distribution;
        let is_there = pins.contains_key(&distribution) && (!is_read || any_will_do);
        (!is_there).then(|| MissingModule {
            module: module.clone(),
            requirement: requirement.to_owned(),
            by,
        })
    });
    missing.collect()
}

#[cfg(test)]
mod tests {
    use super::super::contents::{Contents, Modules, Objects};
    use super::*;

    fn modules(own: &[&str], wanted: &[&str]) -> Contents {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Contents {
            objects: Objects::default(),
            modules: Modules {
                own: set(own),
                wanted: set(wanted),
            },
        }
    }

    fn missing_of(all: &[(&'static str, Contents)], pins: &str) -> Vec<String> {
        let all = all.iter().map(|(name, m)| (*name, m.clone())).collect();
        let pins = super::super::answer::pins(pins);
        let known = BTreeMap::from([
            ("six", "six"),
            ("pkg_resources", "setuptools<81"),
            ("distutils", "setuptools"),
        ]);
        let missing = missing(&all, &pins, |module| known.get(module).copied());
        let shown = |m: MissingModule| format!("{} for {:?}", m.requirement, m.by);
        missing.into_iter().map(shown).collect()
    }

    #[test]
    fn what_nothing_brings_and_the_catalog_knows_is_missing() {
        let thing = (
            "thing",
            modules(&["thing"], &["six", "os", "numpy", "pkg_resources"]),
        );
        let setuptools = |own: &[&str]| ("setuptools", modules(own, &[]));
        assert_eq!(
            missing_of(std::slice::from_ref(&thing), "thing==1"),
            ["setuptools<81 for {\"thing\"}", "six for {\"thing\"}"]
        );
        let old = setuptools(&["setuptools", "pkg_resources"]);
        let six = ("six", modules(&["six"], &[]));
        assert!(missing_of(&[thing.clone(), old, six], "thing==1").is_empty());
        // A setuptools that was read and does not have it is not the one that is needed.
        let new = setuptools(&["setuptools"]);
        let pins = "thing==1\nsetuptools==82.0\nsix==1.17\n";
        let found = missing_of(&[thing, new], pins);
        assert_eq!(found, ["setuptools<81 for {\"thing\"}"]);
        // distutils is made by any setuptools, whose wheel has no such module.
        let old = ("old", modules(&["old"], &["distutils"]));
        let all = [old, setuptools(&["setuptools"])];
        assert_eq!(
            missing_of(&all[..1], "old==1"),
            ["setuptools for {\"old\"}"]
        );
        assert!(missing_of(&all, "old==1\nsetuptools==83.0\n").is_empty());
    }
}
