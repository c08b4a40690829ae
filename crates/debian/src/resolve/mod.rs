//! Resolves wanted packages to the whole set that a system needs, as apt does for a fresh system.
//!
//! Depends and Pre-Depends are followed, Recommends are not. Dependencies with one answer are decided
//! first. Then each choice takes its first alternative that can be installed, unless another one is
//! already chosen. A virtual name resolves to a real package of that name, else to the provider of the
//! most important priority, else to the first by name. There is no backtracking: Conflicts and Breaks
//! are checked at the end, and an error names who asked for each package. The same index and request
//! give the same result, with dependencies before their dependents except in cycles.

mod conflicts;
mod error;
mod order;
mod selection;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::index::{Package, PackageIndex, Priority};
use super::package::LockedDeb;
use super::relation::{Alternative, Group, parse_relations};
use super::version;

use selection::{Chosen, Selection, provides};

pub use error::{ResolveError, UnknownPackage};

/// Systems have /usr merged, so the choice `usrmerge | usr-is-merged` goes to the package that only
/// states it, not to the one that converts a system and depends on Perl.
const USR_IS_MERGED: &str = "usr-is-merged";

/// What a system must contain.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Wanted packages, each `NAME` or `NAME=VERSION`.
    pub wanted: Vec<String>,
    /// Versions of installed packages by name. They satisfy dependencies and are never in the result.
    pub installed: BTreeMap<String, String>,
    /// Whether to add a whole base system: packages of priority `required`, essential ones and apt.
    pub base: bool,
    /// Dependencies on these packages are ignored, so the packages are left out and not reported.
    pub without: Vec<String>,
}

/// Returns the packages to install, in an order in which they can be unpacked.
///
/// # Errors
/// [`ResolveError`] names the packages and who asked for them.
pub fn resolve(index: &PackageIndex, request: &Request) -> Result<Vec<LockedDeb>, ResolveError> {
    let mut resolver = Resolver::new(index, &request.installed);
    resolver.without = request.without.iter().map(String::as_str).collect();
    let mut all_unknown = Vec::new();
    for wanted in &request.wanted {
        match resolver.want(wanted) {
            Err(ResolveError::Unknown(unknown)) => all_unknown.extend(unknown),
            other => other?,
        }
    }
    if !all_unknown.is_empty() {
        return Err(ResolveError::Unknown(all_unknown));
    }
    if request.base {
        for package in index.packages() {
            if package.essential()
                || package.priority() == Priority::Required
                || package.name() == "apt"
            {
                resolver.choose_root(package)?;
            }
        }
    }
    resolver.close()?;
    resolver.selection.check_conflicts()?;
    Ok(resolver.selection.ordered())
}

struct Resolver<'a> {
    selection: Selection<'a>,
    without: BTreeSet<&'a str>,
    /// Groups still to be satisfied, each with the package that asks for it.
    single: VecDeque<(&'a str, Group<'a>)>,
    choices: VecDeque<(&'a str, Group<'a>)>,
}

impl<'a> Resolver<'a> {
    fn new(index: &'a PackageIndex, installed: &'a BTreeMap<String, String>) -> Self {
        let mut selection = Selection {
            index,
            installed,
            chosen: BTreeMap::new(),
            provided: BTreeMap::new(),
        };
        for (name, installed_version) in installed {
            if let Some(package) = index
                .versions(name)
                .find(|package| version::compare(package.version(), installed_version).is_eq())
            {
                selection.note_provides(package);
            }
        }
        Resolver {
            selection,
            without: BTreeSet::new(),
            single: VecDeque::new(),
            choices: VecDeque::new(),
        }
    }

    fn want(&mut self, wanted: &str) -> Result<(), ResolveError> {
        let (name, pinned) = match wanted.split_once('=') {
            Some((name, pinned)) => (name, Some(pinned)),
            None => (wanted, None),
        };
        if let Some(installed) = self.selection.installed.get(name)
            && pinned.is_none_or(|pinned| version::compare(pinned, installed).is_eq())
        {
            return Ok(());
        }
        let index = self.selection.index;
        let accepts = |package: &Package<'_>| {
            pinned.is_none_or(|pinned| version::compare(pinned, package.version()).is_eq())
        };
        let versions: Vec<Package<'a>> = index.versions(name).collect();
        if let Some(package) = versions.iter().find(|package| accepts(package)) {
            return self.choose_root(*package);
        }
        if let (Some(pinned), false) = (pinned, versions.is_empty()) {
            let have: Vec<&str> = versions.iter().map(|package| package.version()).collect();
            return Err(ResolveError::NoVersion {
                name: name.to_owned(),
                wanted: pinned.to_owned(),
                have: have.join(", "),
            });
        }
        match by_urgency(index.providers(name)).first() {
            Some(provider) if pinned.is_none() => self.choose_root(*provider),
            _ => Err(ResolveError::Unknown(vec![UnknownPackage {
                name: name.to_owned(),
                near: similar(index, name),
                known: None,
            }])),
        }
    }

    fn choose_root(&mut self, package: Package<'a>) -> Result<(), ResolveError> {
        if self.selection.chosen.contains_key(package.name())
            || self.selection.installed.contains_key(package.name()) && !self.is_upgrade(package)
        {
            return Ok(());
        }
        self.choose(package, None)
    }

    /// Whether choosing the package would change an installed one that is not of the base. Base
    /// packages stay as installed; a pinned one may change.
    fn is_upgrade(&self, package: Package<'a>) -> bool {
        let essential = package.essential()
            || package.priority() == Priority::Required
            || package.name() == "apt";
        !essential
            && self
                .selection
                .installed
                .get(package.name())
                .is_some_and(|installed| version::compare(package.version(), installed).is_ne())
    }

    fn choose(
        &mut self,
        package: Package<'a>,
        parent: Option<&'a str>,
    ) -> Result<(), ResolveError> {
        let architecture = self.selection.index.architecture();
        let parse = |field: &'a str| {
            parse_relations(field, architecture).map_err(|source| ResolveError::Relation {
                package: package.name().to_owned(),
                source,
            })
        };
        let mut groups = parse(package.pre_depends())?;
        groups.extend(parse(package.depends())?);
        let mut excludes = parse(package.conflicts())?;
        excludes.extend(parse(package.breaks())?);
        for group in &groups {
            let decided = group.len() == 1
                && !self.candidates(&group[0]).is_empty()
                && self.selection.index.newest(group[0].name).is_some();
            let queue = if decided {
                &mut self.single
            } else {
                &mut self.choices
            };
            queue.push_back((package.name(), group.clone()));
        }
        self.selection.note_provides(package);
        let excludes = excludes.into_iter().flatten().collect();
        self.selection.chosen.insert(
            package.name(),
            Chosen {
                package,
                parent,
                groups,
                excludes,
            },
        );
        Ok(())
    }

    fn close(&mut self) -> Result<(), ResolveError> {
        while let Some((asker, group)) =
            self.single.pop_front().or_else(|| self.choices.pop_front())
        {
            if group
                .iter()
                .any(|a| self.without.contains(a.name) || self.selection.satisfier(a).is_some())
            {
                continue;
            }
            let candidates: Vec<Package<'a>> = group
                .iter()
                .flat_map(|alternative| self.candidates(alternative))
                .collect();
            // A chosen package whose version this group refuses cannot be chosen again.
            let free: Vec<Package<'a>> = candidates
                .iter()
                .filter(|package| !self.selection.chosen.contains_key(package.name()))
                .copied()
                .collect();
            let merged = free.iter().find(|package| package.name() == USR_IS_MERGED);
            let peaceful = || {
                free.iter()
                    .find(|package| !self.selection.excluded(package))
            };
            match merged.or_else(peaceful).or(free.first()) {
                Some(package) => self.choose(*package, Some(asker))?,
                None => return Err(self.unsatisfied(asker, &group)),
            }
        }
        Ok(())
    }

    /// Returns the packages that could satisfy an alternative, best first.
    fn candidates(&self, alternative: &Alternative<'a>) -> Vec<Package<'a>> {
        if !self.selection.is_native(alternative) {
            return Vec::new();
        }
        let real = self
            .selection
            .index
            .versions(alternative.name)
            .find(|package| alternative.accepts(package.version()));
        let virtual_ones = self
            .selection
            .index
            .providers(alternative.name)
            .filter(|package| {
                package.name() != alternative.name
                    && package.provides().iter().any(|(name, provided)| {
                        *name == alternative.name && provides(alternative, *provided)
                    })
            });
        let mut candidates = by_urgency(virtual_ones);
        if let Some(real) = real {
            candidates.insert(0, real);
        }
        candidates
    }

    fn unsatisfied(&self, asker: &str, group: &Group<'a>) -> ResolveError {
        let (relation, chain) = (describe(group), self.selection.chain(asker));
        match group
            .iter()
            .find_map(|alternative| self.selection.chosen.get(alternative.name))
        {
            Some(chosen) => ResolveError::Clash {
                relation,
                chain,
                name: chosen.package.name().to_owned(),
                version: chosen.package.version().to_owned(),
                other: self.selection.chain(chosen.package.name()),
            },
            None => ResolveError::Unsatisfiable { relation, chain },
        }
    }
}

fn by_urgency<'a>(packages: impl Iterator<Item = Package<'a>>) -> Vec<Package<'a>> {
    let mut packages: Vec<Package<'a>> = packages.collect();
    packages.sort_by_key(|package| (package.priority(), package.name()));
    packages
}

fn describe(group: &Group<'_>) -> String {
    let shown: Vec<String> = group.iter().map(ToString::to_string).collect();
    shown.join(" | ")
}

fn similar(index: &PackageIndex, name: &str) -> Option<String> {
    let near = index
        .packages()
        .map(|package| (strsim::osa_distance(package.name(), name), package.name()))
        .min();
    let near = near.filter(|(distance, _)| *distance <= 2);
    near.map(|(_, near)| near.to_owned())
}

#[cfg(test)]
mod tests;
