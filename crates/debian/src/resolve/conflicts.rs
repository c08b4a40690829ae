//! Conflicts and Breaks: which packages exclude each other.

use super::super::index::Package;
use super::super::relation::{Alternative, parse_relations};
use super::error::ResolveError;
use super::selection::{Selection, provides};

impl<'a> Selection<'a> {
    /// Whether a package and the chosen ones exclude each other.
    pub(super) fn excluded(&self, package: &Package<'a>) -> bool {
        let architecture = self.index.architecture();
        let own: Vec<Alternative<'a>> = [package.conflicts(), package.breaks()]
            .into_iter()
            .flat_map(|field| parse_relations(field, architecture).unwrap_or_default())
            .flatten()
            .collect();
        self.chosen.values().any(|chosen| {
            own.iter()
                .any(|relation| hits(relation, package, &chosen.package))
                || chosen
                    .excludes
                    .iter()
                    .any(|relation| hits(relation, &chosen.package, package))
        })
    }

    pub(super) fn check_conflicts(&self) -> Result<(), ResolveError> {
        for chosen in self.chosen.values() {
            let name = chosen.package.name();
            for relation in &chosen.excludes {
                let by_name = self.chosen.get(relation.name).into_iter();
                let by_virtual = self
                    .provided
                    .get(relation.name)
                    .into_iter()
                    .flatten()
                    .filter_map(|(name, _)| self.chosen.get(name));
                let other = by_name
                    .chain(by_virtual)
                    .find(|other| hits(relation, &chosen.package, &other.package));
                let installed = self.installed.get(relation.name).filter(|installed| {
                    !self.chosen.contains_key(relation.name) && relation.accepts(installed)
                });
                let other = other
                    .map(|other| other.package.name())
                    .or(installed.map(|_| relation.name));
                if let Some(other) = other {
                    return Err(ResolveError::Conflict {
                        name: name.to_owned(),
                        chain: self.chain(name),
                        relation: relation.to_string(),
                        other: other.to_owned(),
                        other_chain: self.chain(other),
                    });
                }
            }
        }
        Ok(())
    }
}

/// Whether an exclusion of `owner` matches `other`, by its name or by a name that it provides.
fn hits(relation: &Alternative<'_>, owner: &Package<'_>, other: &Package<'_>) -> bool {
    owner.name() != other.name()
        && (other.name() == relation.name && relation.accepts(other.version())
            || other
                .provides()
                .iter()
                .any(|(name, provided)| *name == relation.name && provides(relation, *provided)))
}
