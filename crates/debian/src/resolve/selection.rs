//! The packages that are chosen so far, and what they provide.

use std::collections::BTreeMap;

use super::super::index::{Package, PackageIndex};
use super::super::relation::{Alternative, Group};

/// A chosen package.
pub(super) struct Chosen<'a> {
    pub package: Package<'a>,
    /// The package that first asked for this one. `None` if the caller wanted it.
    pub parent: Option<&'a str>,
    pub groups: Vec<Group<'a>>,
    pub excludes: Vec<Alternative<'a>>,
}

/// The packages that are chosen so far, beside those that are installed.
pub(super) struct Selection<'a> {
    pub index: &'a PackageIndex,
    /// Versions of installed packages by name.
    pub installed: &'a BTreeMap<String, String>,
    pub chosen: BTreeMap<&'a str, Chosen<'a>>,
    /// Providers of virtual names among the chosen and installed packages.
    pub provided: BTreeMap<&'a str, BTreeMap<&'a str, Option<&'a str>>>,
}

impl<'a> Selection<'a> {
    pub(super) fn note_provides(&mut self, package: Package<'a>) {
        for (name, provided) in package.provides() {
            self.provided
                .entry(name)
                .or_default()
                .insert(package.name(), provided);
        }
    }

    /// Returns the name of the chosen or installed package that satisfies an alternative.
    pub(super) fn satisfier(&self, alternative: &Alternative<'a>) -> Option<&'a str> {
        if !self.is_native(alternative) {
            return None;
        }
        if let Some(chosen) = self.chosen.get(alternative.name) {
            if alternative.accepts(chosen.package.version()) {
                return Some(chosen.package.name());
            }
        } else if let Some(installed) = self.installed.get(alternative.name)
            && alternative.accepts(installed)
        {
            return Some(alternative.name);
        }
        self.provided
            .get(alternative.name)?
            .iter()
            .find(|(_, provided)| provides(alternative, **provided))
            .map(|(name, _)| *name)
    }

    pub(super) fn is_native(&self, alternative: &Alternative<'_>) -> bool {
        alternative.qualifier.is_none_or(|qualifier| {
            ["any", "native", "all", self.index.architecture()].contains(&qualifier)
        })
    }

    /// Returns the chain of requests that led to a package: `wanted → its dependency → name`.
    pub(super) fn chain(&self, name: &str) -> String {
        let mut names = vec![name];
        while let Some(parent) = self
            .chosen
            .get(names[names.len() - 1])
            .and_then(|chosen| chosen.parent)
        {
            names.push(parent);
        }
        names.reverse();
        let text = names
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(" → ");
        if self.chosen.contains_key(name) {
            text
        } else {
            format!("{text} (installed)")
        }
    }
}

/// Whether a provided name satisfies an alternative. A relation with a version needs a provided
/// version.
pub(super) fn provides(alternative: &Alternative<'_>, provided: Option<&str>) -> bool {
    match (alternative.version, provided) {
        (None, _) => true,
        (Some(_), Some(provided)) => alternative.accepts(provided),
        (Some(_), None) => false,
    }
}
