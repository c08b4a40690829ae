//! Predicts the versions of a stack without a lock.
//!
//! In: the stack and the releases that the catalog knows. Out: for each library the newest release that is
//! compatible with the others, or two libraries that have no compatible releases. A library that the
//! catalog does not describe, or that may get a release newer than the catalog's, counts only by its pin.
//! The resolver decides in the end; this prediction lets a stack be judged before.

use super::case::{Case, distribution, glibc};
use crate::catalog::{Pin, Release, split_local};
use crate::spec::{From, Platform, Wanted, requirement};
use pep440_rs::{Operator, Version, VersionSpecifiers};
use stackforge_types::wheel::normalized;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// Assignments that are tried before the search gives up without a result.
const MOST_STEPS: u32 = 20_000;

/// A distribution whose release has to be chosen.
pub(super) struct Choice<'a> {
    pub name: String,
    /// Newest first.
    pub candidates: Vec<Candidate<'a>>,
}

/// A version that the stack allows, and the facts about its release.
pub(super) struct Candidate<'a> {
    /// The version with the local label that the stack names.
    pub version: Version,
    pub release: &'a Release,
}

impl<'a> Candidate<'a> {
    /// Returns what it requires of one other library.
    pub fn asks(&self, platform: Platform, name: &str) -> Option<&'a VersionSpecifiers> {
        let (_, local) = split_local(&self.version);
        self.release.asks_as(platform, &local, name)
    }
}

pub(super) struct Search<'c, 'a> {
    case: &'c Case<'a>,
    /// The stack's own requirements, by distribution.
    pub own: BTreeMap<String, VersionSpecifiers>,
    overridden: BTreeSet<String>,
    steps: u32,
}

impl<'c, 'a> Search<'c, 'a> {
    pub fn new(case: &'c Case<'a>) -> Self {
        let mut own = BTreeMap::new();
        for library in &case.stack.libraries {
            if let Wanted::Specifier(s) = &library.version {
                own.insert(distribution(case, library.name.value.as_str()), s.clone());
            }
        }
        let mut overridden = BTreeSet::new();
        for line in &case.stack.overrides {
            let Ok(requirement) = requirement(&line.value) else {
                continue;
            };
            let name = normalized(requirement.name.as_ref());
            if let Some(pep508_rs::VersionOrUrl::VersionSpecifier(s)) = requirement.version_or_url {
                own.insert(name.clone(), s);
            }
            overridden.insert(name);
        }
        Self {
            case,
            own,
            overridden,
            steps: 0,
        }
    }

    /// Returns the stack's libraries, those with most requirements first.
    pub fn choices(&self) -> Vec<Choice<'a>> {
        let mut choices: Vec<Choice<'a>> = self
            .case
            .stack
            .libraries
            .iter()
            .filter_map(|library| {
                let name = distribution(self.case, library.name.value.as_str());
                let compiled = library.from == From::Source;
                self.choice(name, compiled)
            })
            .collect();
        let asks = |c: &Choice<'_>| c.candidates.first().map_or(0, |c| c.release.requires.len());
        choices.sort_by_key(|c| std::cmp::Reverse(asks(c)));
        choices
    }

    /// `None` if the catalog does not know the distribution.
    fn choice(&self, name: String, compiled: bool) -> Option<Choice<'a>> {
        let known = self.case.catalog.releases(&name)?;
        let own = self.own.get(&name);
        let taken = |stable: bool| -> Vec<Candidate<'a>> {
            let taken = |(version, release)| {
                let version = taken_as(own, version, stable)?;
                Some(Candidate { version, release })
            };
            known.iter().rev().filter_map(taken).collect()
        };
        // As a resolver: pre-releases only if there is nothing else.
        let all = Some(taken(true)).filter(|c| !c.is_empty());
        let all = all.unwrap_or_else(|| taken(false));
        let (fit, unfit): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|c| compiled || self.installs(c.release));
        // If no release fits the Python, keep the newest: it shows why.
        let candidates = if fit.is_empty() { unfit } else { fit };
        (!candidates.is_empty()).then_some(Choice { name, candidates })
    }

    /// Whether the resolver would consider the release at all.
    fn installs(&self, release: &Release) -> bool {
        let stack = self.case.stack;
        let glibc = glibc(self.case);
        let python = Version::from_str(&stack.python.value.to_string()).ok();
        let python_fits = match (&release.python, &python) {
            (Some(wanted), Some(python)) => wanted.contains(python),
            _ => true,
        };
        let wheel_fits = |w: &crate::catalog::ReleaseWheel| {
            w.platform.is_none_or(|p| p == stack.platform.value)
                && w.loads_in(stack.python.value)
                && w.glibc.zip(glibc).is_none_or(|(wheel, base)| wheel <= base)
        };
        python_fits && (release.wheels.is_empty() || release.wheels.iter().any(wheel_fits))
    }

    pub fn solve(&mut self, choices: &[Choice<'a>]) -> Option<BTreeMap<String, Version>> {
        let mut taken: Vec<(&str, &Candidate<'a>)> = Vec::new();
        if !self.extend(choices, &mut taken) {
            return None;
        }
        let mut versions: BTreeMap<String, Version> = taken
            .iter()
            .map(|(name, c)| ((*name).to_owned(), c.version.clone()))
            .collect();
        self.follow(&mut versions, &taken);
        self.pinned(&mut versions);
        Some(versions)
    }

    /// Whether the search ended for its many steps, without an answer.
    pub fn gave_up(&self) -> bool {
        self.steps >= MOST_STEPS
    }

    fn extend<'s>(
        &mut self,
        choices: &'s [Choice<'a>],
        taken: &mut Vec<(&'s str, &'s Candidate<'a>)>,
    ) -> bool {
        let Some((choice, rest)) = choices.split_first() else {
            return true;
        };
        for candidate in &choice.candidates {
            self.steps += 1;
            if self.gave_up() {
                return false;
            }
            let agrees = taken.iter().all(|(name, other)| {
                self.accepts(other, &choice.name, &candidate.version)
                    && self.accepts(candidate, name, &other.version)
            }) && self.agree_on_others(taken, candidate);
            if agrees {
                taken.push((&choice.name, candidate));
                if self.extend(rest, taken) {
                    return true;
                }
                taken.pop();
            }
        }
        false
    }

    /// Whether some release of each distribution that `candidate` requires satisfies all that require it,
    /// including the stack.
    pub fn agree_on_others(
        &self,
        taken: &[(&str, &Candidate<'a>)],
        candidate: &Candidate<'a>,
    ) -> bool {
        self.asks(candidate).all(|pin| {
            if self.overridden.contains(&pin.name) {
                return true;
            }
            let others = taken
                .iter()
                .filter_map(|(_, other)| self.asks_for(other, &pin.name));
            let mut wanted: Vec<&VersionSpecifiers> = others.chain([&pin.versions]).collect();
            wanted.extend(self.own.get(&pin.name));
            self.some_version(&pin.name, &wanted)
        })
    }

    /// Whether a known release, or one that a pin names, satisfies all of `wanted`. Without an exact pin,
    /// releases newer than the known ones count too.
    pub fn some_version(&self, name: &str, wanted: &[&VersionSpecifiers]) -> bool {
        if wanted.len() < 2 {
            return true;
        }
        let all = |v: &Version| wanted.iter().all(|s| takes(s, v));
        let mut named = wanted.iter().filter_map(|s| exact(s)).peekable();
        if named.peek().is_some() {
            return named.any(|v| all(&v));
        }
        let Some(releases) = self.case.catalog.releases(name) else {
            return true;
        };
        let newest = releases.keys().next_back();
        let later = wanted.iter().flat_map(|s| s.iter()).map(|s| s.version());
        let mut later = later.filter(|v| newest.is_none_or(|newest| *v > newest));
        releases.keys().any(all) || later.any(all) || all(&Version::new([u64::from(u32::MAX)]))
    }

    pub fn accepts(&self, asking: &Candidate<'a>, name: &str, version: &Version) -> bool {
        self.overridden.contains(name)
            || self
                .asks_for(asking, name)
                .is_none_or(|s| takes(s, version))
    }

    /// Adds the dependencies of the chosen releases.
    fn follow(&self, versions: &mut BTreeMap<String, Version>, taken: &[(&str, &Candidate<'a>)]) {
        let mut pins: Vec<&'a Pin> = taken.iter().flat_map(|(_, c)| self.asks(c)).collect();
        let mut next = 0;
        while let Some(name) = pins.get(next).map(|pin| &pin.name) {
            next += 1;
            if versions.contains_key(name) {
                continue;
            }
            // All requirements for this name so far, or the override that replaces them.
            let asked = pins.iter().filter(|p| p.name == *name).map(|p| &p.versions);
            let wanted: Vec<&VersionSpecifiers> = match self.own.get(name) {
                Some(own) if self.overridden.contains(name) => vec![own],
                own => asked.chain(own).collect(),
            };
            let all = |v: &Version| wanted.iter().all(|s| takes(s, v));
            let known = self.case.catalog.releases(name);
            let newest = known.and_then(|releases| {
                let mut newest = releases.iter().rev();
                newest.find(|(v, r)| all(v) && self.installs(r))
            });
            if let Some((version, release)) = newest {
                versions.insert(name.clone(), version.clone());
                let version = version.clone();
                pins.extend(self.asks(&Candidate { version, release }));
            } else if let Some(version) = wanted.iter().find_map(|s| exact(s)).filter(all) {
                versions.insert(name.clone(), version);
            }
        }
    }

    pub fn asks_for(&self, asking: &Candidate<'a>, name: &str) -> Option<&'a VersionSpecifiers> {
        asking.asks(self.case.stack.platform.value, name)
    }

    /// Returns the requirements of a release, including those of its wheel.
    pub fn asks(&self, asking: &Candidate<'a>) -> impl Iterator<Item = &'a Pin> + use<'a> {
        let stack = self.case.stack;
        let (_, local) = split_local(&asking.version);
        let wheel = asking
            .release
            .wheels_for(stack.platform.value, &local)
            .find(|w| w.loads_in(stack.python.value));
        let release = asking.release.requires.iter();
        release.chain(wheel.into_iter().flat_map(|w| &w.requires))
    }

    /// Adds libraries that the catalog has no releases of and that the stack pins.
    fn pinned(&self, versions: &mut BTreeMap<String, Version>) {
        for (name, specifiers) in &self.own {
            if !versions.contains_key(name)
                && let Some(version) = exact(specifiers)
            {
                versions.insert(name.clone(), version);
            }
        }
    }
}

/// Returns the version of a release with the local label that the stack names. `None` if the stack does not
/// allow the release.
fn taken_as(own: Option<&VersionSpecifiers>, release: &Version, stable: bool) -> Option<Version> {
    let named = own.and_then(exact).filter(Version::is_local);
    let early = |s: &VersionSpecifiers| s.iter().any(|s| s.version().any_prerelease());
    if stable && release.any_prerelease() && !own.is_some_and(early) {
        return None;
    }
    match (named, own) {
        (Some(named), _) => (split_local(&named).0 == *release).then_some(named),
        (None, Some(own)) => takes(own, release).then(|| release.clone()),
        (None, None) => Some(release.clone()),
    }
}

/// Whether specifiers allow a version. By PEP 440 a version with a local label satisfies what its public
/// part does, and specifiers that name the label.
pub fn takes(specifiers: &VersionSpecifiers, version: &Version) -> bool {
    specifiers.contains(version)
        || version.is_local() && specifiers.contains(&version.clone().without_local())
}

/// Returns the exact version in the specifiers.
pub fn exact(specifiers: &VersionSpecifiers) -> Option<Version> {
    let one = |o: &Operator| matches!(o, Operator::Equal | Operator::ExactEqual);
    specifiers
        .iter()
        .find(|s| one(s.operator()))
        .map(|s| s.version().clone())
}

/// Returns the exact version in the specifiers. Without one, returns their lowest version if they allow no
/// known release.
pub fn first(case: &Case<'_>, name: &str, specifiers: &VersionSpecifiers) -> Option<Version> {
    let newer = || {
        let mut known = case.catalog.releases(name)?.keys();
        let from = |o: &Operator| {
            matches!(
                o,
                Operator::GreaterThanEqual | Operator::TildeEqual | Operator::EqualStar
            )
        };
        let floors = specifiers.iter().filter(|s| from(s.operator()));
        let floor = floors.map(|s| s.version().clone()).max();
        floor.filter(|_| !known.any(|v| takes(specifiers, v)))
    };
    exact(specifiers).or_else(newer)
}
