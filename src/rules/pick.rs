//! Versions that a stack without a lock will most likely get.
//!
//! In: the stack and the releases that the catalog knows. Out: for each library the newest
//! release that goes with the others, or those that no release brings together. A library
//! that the catalog does not describe, or that may take a release newer than it describes,
//! only counts by what it is pinned to. The resolver decides in the end; this is how a
//! stack is judged before.

use super::Case;
use crate::catalog::{Pin, Release};
use crate::spec::{From, Wanted};
use crate::wheel::normalized;
use pep440_rs::{Operator, Version, VersionSpecifiers};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// Assignments that are tried before the search gives up and says nothing.
const MOST_STEPS: u32 = 20_000;

#[derive(Debug, Default)]
pub struct Picked {
    /// By distribution; those with more than one possible version that nothing narrows and
    /// no release describes are absent.
    pub versions: BTreeMap<String, Version>,
    /// Two libraries that want what no release gives both.
    pub clash: Option<Clash>,
}

/// `one` and `other` (may be the stack itself) exclude each other over `about`.
#[derive(Debug, PartialEq, Eq)]
pub struct Clash {
    pub about: String,
    pub one: (String, Version, VersionSpecifiers),
    pub other: Option<(String, Version, VersionSpecifiers)>,
    /// What the stack itself says of `about`, when it is the other side.
    pub stack: Option<VersionSpecifiers>,
}

/// One distribution whose release is to be chosen.
struct Choice<'a> {
    name: String,
    /// Newest first.
    candidates: Vec<(&'a Version, Option<&'a Release>)>,
}

pub fn pick(case: &Case<'_>) -> Picked {
    let mut search = Search::new(case);
    let all = search.choices();
    if let Some(versions) = search.solve(&all) {
        return Picked {
            versions,
            clash: None,
        };
    }
    if search.steps >= MOST_STEPS {
        return Picked::default();
    }
    let clash = search.clash(&all);
    // What can be said without those that clash is still worth saying.
    let rest: Vec<Choice<'_>> = match &clash {
        Some(c) => all
            .into_iter()
            .filter(|a| a.name != c.one.0 && c.other.as_ref().is_none_or(|o| o.0 != a.name))
            .collect(),
        None => Vec::new(),
    };
    search.steps = 0;
    Picked {
        versions: search.solve(&rest).unwrap_or_default(),
        clash,
    }
}

struct Search<'c, 'a> {
    case: &'c Case<'a>,
    /// What the stack says of a distribution.
    own: BTreeMap<String, VersionSpecifiers>,
    overridden: BTreeSet<String>,
    steps: u32,
}

impl<'c, 'a> Search<'c, 'a> {
    fn new(case: &'c Case<'a>) -> Self {
        let mut own = BTreeMap::new();
        for library in &case.stack.libraries {
            if let Wanted::Specifier(s) = &library.version {
                own.insert(distribution(case, library.name.value.as_str()), s.clone());
            }
        }
        let mut overridden = BTreeSet::new();
        for line in &case.stack.overrides {
            let Ok(requirement) =
                pep508_rs::Requirement::<pep508_rs::VerbatimUrl>::from_str(&line.value)
            else {
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

    /// The stack's libraries, those that ask for most first.
    fn choices(&self) -> Vec<Choice<'a>> {
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
        let asks = |c: &Choice<'_>| {
            let release = c.candidates.first().and_then(|(_, r)| *r);
            release.map_or(0, |r| r.requires.len())
        };
        choices.sort_by_key(|c| std::cmp::Reverse(asks(c)));
        choices
    }

    /// None where nothing is known of the distribution.
    fn choice(&self, name: String, compiled: bool) -> Option<Choice<'a>> {
        let own = self.own.get(&name);
        let releases = self.case.catalog.releases(&name);
        let candidates: Vec<_> = releases
            .into_iter()
            .flatten()
            .rev()
            .filter(|(v, _)| own.map_or(!v.any_prerelease(), |s| takes(s, v)))
            .filter(|(_, r)| compiled || self.installs(r))
            .map(|(v, r)| (v, Some(r)))
            .collect();
        // Without a release that a Python can load, the newest shows why.
        let candidates = match (candidates.is_empty(), releases) {
            (true, Some(releases)) => releases
                .iter()
                .rev()
                .filter(|(v, _)| own.map_or(!v.any_prerelease(), |s| takes(s, v)))
                .map(|(v, r)| (v, Some(r)))
                .collect(),
            _ => candidates,
        };
        (!candidates.is_empty()).then_some(Choice { name, candidates })
    }

    /// Whether the resolver would consider the release at all.
    fn installs(&self, release: &Release) -> bool {
        let stack = self.case.stack;
        let glibc = super::environment::glibc(self.case);
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

    fn solve(&mut self, choices: &[Choice<'a>]) -> Option<BTreeMap<String, Version>> {
        let mut taken: Vec<(&str, &Version, Option<&Release>)> = Vec::new();
        if !self.extend(choices, &mut taken) {
            return None;
        }
        let mut versions: BTreeMap<String, Version> = taken
            .iter()
            .map(|(n, v, _)| ((*n).to_owned(), (*v).clone()))
            .collect();
        self.follow(&mut versions, &taken);
        self.pinned(&mut versions);
        Some(versions)
    }

    fn extend<'s>(
        &mut self,
        choices: &'s [Choice<'a>],
        taken: &mut Vec<(&'s str, &'a Version, Option<&'a Release>)>,
    ) -> bool {
        let Some((choice, rest)) = choices.split_first() else {
            return true;
        };
        for (version, release) in &choice.candidates {
            self.steps += 1;
            if self.steps >= MOST_STEPS {
                return false;
            }
            let agrees = taken.iter().all(|(name, v, r)| {
                self.accepts(*r, &choice.name, version) && self.accepts(*release, name, v)
            }) && self.agree_on_others(taken, *release);
            if agrees {
                taken.push((&choice.name, version, *release));
                if self.extend(rest, taken) {
                    return true;
                }
                taken.pop();
            }
        }
        false
    }

    /// Whether some release of what the stack does not name satisfies all who ask for it, and
    /// what the stack says of names that the catalog does not describe.
    fn agree_on_others(
        &self,
        taken: &[(&str, &'a Version, Option<&'a Release>)],
        release: Option<&'a Release>,
    ) -> bool {
        release.into_iter().flat_map(|r| &r.requires).all(|pin| {
            if self.overridden.contains(&pin.name) {
                return true;
            }
            let others = taken
                .iter()
                .filter_map(|(_, _, r)| r.and_then(|r| self.asks_for(r, &pin.name)));
            let mut wanted: Vec<&VersionSpecifiers> = others.chain([&pin.versions]).collect();
            wanted.extend(self.own.get(&pin.name));
            self.some_version(&pin.name, &wanted)
        })
    }

    /// Whether a known release, or one that a pin names, is in all of the sets.
    fn some_version(&self, name: &str, wanted: &[&VersionSpecifiers]) -> bool {
        if wanted.len() < 2 {
            return true;
        }
        let all = |v: &Version| wanted.iter().all(|s| takes(s, v));
        let named = wanted
            .iter()
            .flat_map(|s| s.iter())
            .filter(|s| matches!(s.operator(), Operator::Equal))
            .map(pep440_rs::VersionSpecifier::version);
        let mut named = named.peekable();
        if named.peek().is_some() {
            return named.any(all);
        }
        match self.case.catalog.releases(name) {
            Some(releases) => releases.keys().any(all),
            None => true,
        }
    }

    fn accepts(&self, asking: Option<&Release>, name: &str, version: &Version) -> bool {
        self.overridden.contains(name)
            || asking
                .and_then(|r| self.asks_for(r, name))
                .is_none_or(|s| takes(s, version))
    }

    /// What the chosen releases bring with them.
    fn follow(
        &self,
        versions: &mut BTreeMap<String, Version>,
        taken: &[(&str, &'a Version, Option<&'a Release>)],
    ) {
        let mut open: Vec<&Pin> = taken
            .iter()
            .filter_map(|(_, _, r)| *r)
            .flat_map(|r| self.asks(r))
            .collect();
        while let Some(pin) = open.pop() {
            if versions.contains_key(&pin.name) {
                continue;
            }
            let wanted = self
                .own
                .get(&pin.name)
                .filter(|_| self.overridden.contains(&pin.name));
            let wanted = wanted.unwrap_or(&pin.versions);
            let known = self.case.catalog.releases(&pin.name);
            let newest = known.and_then(|releases| {
                releases
                    .iter()
                    .rev()
                    .find(|(v, r)| takes(wanted, v) && self.installs(r))
            });
            if let Some((version, release)) = newest {
                versions.insert(pin.name.clone(), version.clone());
                open.extend(self.asks(release));
            } else if let Some(version) = exact(wanted) {
                versions.insert(pin.name.clone(), version);
            }
        }
    }

    fn asks_for<'r>(&self, release: &'r Release, name: &str) -> Option<&'r VersionSpecifiers> {
        release.asks_on(self.case.stack.platform.value, name)
    }

    /// What a release, as it is here, asks for.
    fn asks(&self, release: &'a Release) -> impl Iterator<Item = &'a Pin> {
        let stack = self.case.stack;
        let wheel = release
            .wheels_for(stack.platform.value, "")
            .find(|w| w.loads_in(stack.python.value));
        release
            .requires
            .iter()
            .chain(wheel.into_iter().flat_map(|w| &w.requires))
    }

    /// Libraries that the catalog has no releases of, pinned by the stack.
    fn pinned(&self, versions: &mut BTreeMap<String, Version>) {
        for (name, specifiers) in &self.own {
            if !versions.contains_key(name)
                && let Some(version) = exact(specifiers)
            {
                versions.insert(name.clone(), version);
            }
        }
    }

    /// The pair that excludes each other, by the newest release of each.
    fn clash(&self, choices: &[Choice<'a>]) -> Option<Clash> {
        let newest = |c: &Choice<'a>| c.candidates.first().map(|(v, r)| ((*v).clone(), *r));
        for choice in choices {
            let (version, Some(release)) = newest(choice)? else {
                continue;
            };
            let alone = choice.candidates.iter().all(|(_, r)| {
                r.iter().flat_map(|r| &r.requires).any(|pin| {
                    self.own
                        .get(&pin.name)
                        .is_some_and(|own| !self.some_version(&pin.name, &[own, &pin.versions]))
                })
            });
            if alone {
                let pin = release.requires.iter().find(|pin| {
                    self.own
                        .get(&pin.name)
                        .is_some_and(|own| !self.some_version(&pin.name, &[own, &pin.versions]))
                })?;
                return Some(Clash {
                    about: pin.name.clone(),
                    one: (choice.name.clone(), version, pin.versions.clone()),
                    other: None,
                    stack: self.own.get(&pin.name).cloned(),
                });
            }
        }
        for (i, one) in choices.iter().enumerate() {
            for other in &choices[i + 1..] {
                let together = one.candidates.iter().any(|(v, r)| {
                    other.candidates.iter().any(|(w, s)| {
                        self.accepts(*r, &other.name, w)
                            && self.accepts(*s, &one.name, v)
                            && self.agree_on_others(&[(&one.name, v, *r)], *s)
                    })
                });
                let (Some((v, Some(r))), Some((w, Some(s)))) = (newest(one), newest(other)) else {
                    continue;
                };
                let about = r.requires.iter().find_map(|pin| {
                    let theirs = self.asks_for(s, &pin.name)?;
                    (!self.some_version(&pin.name, &[&pin.versions, theirs]))
                        .then(|| (pin.name.clone(), pin.versions.clone(), theirs.clone()))
                });
                if let (false, Some((about, ours, theirs))) = (together, about) {
                    return Some(Clash {
                        about,
                        one: (one.name.clone(), v, ours),
                        other: Some((other.name.clone(), w, theirs)),
                        stack: None,
                    });
                }
            }
        }
        None
    }
}

/// Name of the distribution behind a library of the stack.
pub fn distribution(case: &Case<'_>, library: &str) -> String {
    normalized(
        case.target
            .recipes
            .get(library)
            .map_or(library, |r| &r.distribution),
    )
}

/// PEP 440: a version with a local label satisfies what its public part does.
pub fn takes(specifiers: &VersionSpecifiers, version: &Version) -> bool {
    specifiers.contains(version)
}

/// The one version that specifiers allow.
pub fn exact(specifiers: &VersionSpecifiers) -> Option<Version> {
    specifiers
        .iter()
        .find(|s| *s.operator() == Operator::Equal)
        .map(|s| s.version().clone())
}
