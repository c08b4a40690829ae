//! Distributions that come as source and have no recipe.
//!
//! In: the stack's question. Out: its versions, and for each distribution without a fitting wheel the locked
//! archive with what it says of itself. uv is told the metadata, so that it builds nothing: first none, which
//! gives the version that it would take; then that version's own, until the version that it takes is one
//! whose metadata it had. A distribution is taken as source if it has no wheel that fits, if its newest
//! release has none or needs something that has none (`auto` never takes an older release for a wheel), or if
//! the stack says so.

mod after;
mod archive;
mod explanation;
mod rounds;
mod undeclared;

use super::ResolveError;
use super::answer::{Pin, Pins};
use super::offers::offers;
use super::old::Old;
use super::project::{Metadata, Question, UvSettings};
use super::python::Resolver;
use super::requirements::{Need, PackageSource};
use super::sdist::{Sdist, Sdists};
pub(super) use explanation::{pinned_without_wheels, without_wheels};
use pep440_rs::Version;
use rounds::{MOST_LOOKS, MOST_LOOKS_FOR_NEWEST};
use stackforge_stack::catalog::{Catalog, StaticMetadata};
use stackforge_stack::spec::{From, PythonVersion};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use undeclared::{Amendments, Knowledge};

/// The versions of a stack.
pub(super) struct Resolved {
    pub pins: Pins,
    pub sdists: Sdists,
    /// Bounds that the question did not have.
    pub bounds: Vec<String>,
    /// What somebody who reads the stack would not expect, a sentence each.
    pub notes: Vec<String>,
}

/// The newest release of a library that the stack leaves open.
struct Newest {
    version: Version,
    /// Whether it has a wheel that fits.
    has_wheel: bool,
}

/// Versions, and what they hold for.
struct Answer {
    pins: Pins,
    /// What is taken as source.
    known: Known,
    /// The settings that give them.
    settings: UvSettings,
    /// What the question lacked.
    amendments: Amendments,
}

/// Distributions that are taken as source, with what was read of their releases.
type Known = BTreeMap<String, BTreeMap<Version, Sdist>>;

pub(super) struct Sources<'a> {
    pub needs: &'a [Need<'a>],
    pub old: &'a Old<'a>,
    pub catalog: &'a Catalog,
    /// The store's root.
    pub cache: &'a Path,
    pub offline: bool,
    /// Whether the base has CUDA.
    pub cuda: bool,
}

impl Sources<'_> {
    /// Resolves the question, and leaves in `resolver` what the answer needs.
    pub async fn resolve(
        &self,
        resolver: &mut Resolver<'_>,
        question: &Question,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Resolved, ResolveError> {
        let fixed = self.asked_or_kept();
        let newest = self.newest(resolver, &fixed).await?;
        let newer: BTreeMap<&String, &Version> = newest
            .iter()
            .filter(|(_, newest)| !newest.has_wheel)
            .map(|(name, newest)| (name, &newest.version))
            .collect();
        let mut notes = Vec::new();
        let names = || fixed.iter().chain(newer.keys().copied()).cloned();
        let most = if newer.is_empty() {
            MOST_LOOKS
        } else {
            MOST_LOOKS_FOR_NEWEST
        };
        let mut tried = self
            .rounds(resolver, question, names().collect(), most, progress)
            .await?;
        if tried.is_err() && !newer.is_empty() {
            // An older release with a wheel may go with the rest where the newest does not.
            let again = self
                .rounds(resolver, question, fixed.clone(), MOST_LOOKS, progress)
                .await?;
            if let Ok(answer) = &again {
                notes.extend(newer.iter().filter_map(|(name, newest)| {
                    let taken = &answer.pins.get(*name)?.version;
                    Some(format!(
                        "{name} {taken} is taken for its wheel: {newest}, of which there is only source, does not go with the rest"
                    ))
                }));
                tried = again;
            }
        }
        let mut answer = match tried {
            Ok(answer) => answer,
            Err(explanation) => {
                let asked = &question.requirements;
                let offers = offers(resolver, self.catalog, asked, &explanation).await;
                return Err(ResolveError::Unsatisfiable {
                    of: "the stack".to_owned(),
                    explanation,
                    offers,
                });
            }
        };
        for (name, newest) in &newest {
            let older = |answer: &Answer| {
                let pin = answer.pins.get(name);
                pin.is_some_and(|pin| pin.version < newest.version)
            };
            if newest.has_wheel && older(&answer) {
                let mut question = answer.amendments.question(question);
                // Without an upper bound, uv would go on to releases that are not final.
                question
                    .constraints
                    .push(format!("{name}=={}", newest.version));
                question
                    .constraints
                    .extend(self.not_older(&answer.pins, name));
                let names = fixed.iter().chain(answer.known.keys()).cloned().collect();
                let again = self
                    .rounds(resolver, &question, names, MOST_LOOKS, progress)
                    .await?;
                let knowledge = self.knowledge(resolver.settings.target.python);
                let none_broken =
                    |a: &Answer| knowledge.broken(&a.pins, &BTreeSet::new()).is_none();
                let is_better = |newer: &Answer| {
                    let is_sound = none_broken(newer) || !none_broken(&answer);
                    is_sound && self.none_is_older(&answer.pins, &newer.pins)
                };
                answer = match again {
                    Ok(newer) if is_better(&newer) => newer,
                    _ => answer,
                };
            }
        }
        self.prefer_wheels(&mut answer, resolver, &fixed).await?;
        let Answer {
            mut pins,
            known,
            settings,
            amendments,
        } = answer;
        let of_wheels = Resolver {
            settings: std::mem::replace(&mut resolver.settings, settings),
            ..*resolver
        };
        let knowledge = self.knowledge(resolver.settings.target.python);
        notes.extend(knowledge.notes(&amendments, &pins));
        knowledge.attribute(&mut pins);
        let mut sdists = Sdists::new();
        let with_recipe = |name: &str| {
            let mut needs = self.needs.iter();
            needs.any(|n| n.distribution == name && n.compiled())
        };
        for (name, releases) in known.into_iter().filter(|(name, _)| !with_recipe(name)) {
            if let Some(pin) = pins.get(&name)
                && let Some(sdist) = releases.get(&pin.version)
            {
                sdists.insert(name, sdist.clone());
            }
        }
        self.ask_for_wheels(&of_wheels, &mut sdists).await;
        self.can_be_built(&sdists, &pins)?;
        notes.extend(sdists.iter().filter_map(|(name, sdist)| {
            let (version, wheels) = (&sdist.file.version, sdist.wheels.as_ref()?);
            Some(format!("{name} {version} is taken as source: {wheels}"))
        }));
        Ok(Resolved {
            pins,
            sdists,
            bounds: amendments.bounds,
            notes,
        })
    }

    /// Returns what is source because the stack says so, or because it was when it was locked before; and what a
    /// recipe builds without a description of the wanted version.
    fn asked_or_kept(&self) -> BTreeSet<String> {
        let asked = self.needs.iter().filter(|n| is_plain(n));
        let asked = asked.filter(|n| n.library.from == From::Source);
        let undescribed = self.needs.iter().filter(|n| n.undescribed);
        let mut out: BTreeSet<String> = asked
            .chain(undescribed)
            .map(|n| n.distribution.clone())
            .collect();
        let described = |name: &str| self.needs.iter().any(|n| n.name() == name && !is_plain(n));
        out.extend(
            self.old
                .sources()
                .filter(|name| !described(name))
                .map(str::to_owned),
        );
        out
    }

    /// Returns constraints by which no other library of the stack becomes older than in the answer: uv would try
    /// each release of what pins `name`.
    fn not_older(&self, pins: &Pins, name: &str) -> Vec<String> {
        let others = self.needs.iter().filter(|need| need.distribution != name);
        let pinned = others.filter_map(|need| {
            let version = pins.get(&need.distribution)?.version.clone();
            Some(format!(
                "{}>={}",
                need.distribution,
                version.without_local()
            ))
        });
        pinned.collect()
    }

    /// Whether no library of the stack is older in the second answer than in the first.
    fn none_is_older(&self, before: &Pins, after: &Pins) -> bool {
        self.needs.iter().all(|need| {
            let pinned = |pins: &Pins| pins.get(&need.distribution).map(|p| p.version.clone());
            pinned(after) >= pinned(before)
        })
    }

    /// Returns the newest releases of the libraries that may be any release, each alone.
    async fn newest(
        &self,
        resolver: &Resolver<'_>,
        fixed: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Newest>, ResolveError> {
        let open = |n: &&Need<'_>| {
            let auto = n.library.from == From::Auto && !fixed.contains(&n.distribution);
            is_plain(n) && auto && !self.old.has(n)
        };
        let open: Vec<&Need<'_>> = self.needs.iter().filter(open).collect();
        if self.offline || open.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut settings = resolver.settings.clone();
        settings.sdists_too = true;
        settings
            .metadata
            .extend(open.iter().map(|n| placeholder(&n.distribution)));
        let resolver = Resolver {
            settings,
            ..*resolver
        };
        let question = Question {
            requirements: open.iter().map(|n| n.line()).collect(),
            no_deps: true,
            ..Question::default()
        };
        // Whatever is wrong is said by the resolution of the whole.
        let Ok(pins) = resolver.versions(&question).await? else {
            return Ok(BTreeMap::new());
        };
        let files = resolver.files(&pins).await?;
        let target = &resolver.settings.target;
        let of = |(name, pin): (String, Pin)| {
            let has_wheel = files.wheel(&name, target).is_ok();
            let newest = Newest {
                version: pin.version,
                has_wheel,
            };
            (has_wheel || files.sdist(&name).is_ok()).then_some((name, newest))
        };
        Ok(pins.into_iter().filter_map(of).collect())
    }

    fn knowledge(&self, python: PythonVersion) -> Knowledge<'_> {
        Knowledge {
            python,
            cuda: self.cuda,
            catalog: self.catalog,
            needs: self.needs,
        }
    }
}

/// Whether a library has no recipe.
fn is_plain(need: &Need<'_>) -> bool {
    need.recipe.is_none() && need.source == PackageSource::Wheel
}

/// Metadata that says nothing, so that uv asks nobody else.
pub(super) fn placeholder(name: &str) -> Metadata {
    Metadata {
        distribution: name.to_owned(),
        version: None,
        content: StaticMetadata {
            requires_python: None,
            requires_dist: Vec::new(),
        },
    }
}
