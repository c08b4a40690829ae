//! Distributions that come as source and have no recipe.
//!
//! In: the stack's question. Out: its versions, and for each distribution without a fitting wheel the locked
//! archive with what it says of itself. uv is told the metadata, so that it builds nothing: first none, which
//! gives the version that it would take; then that version's own, until the version that it takes is one
//! whose metadata it had. A distribution is taken as source if it has no wheel that fits, if its newest
//! release has none or needs something that has none (`auto` never takes an older release for a wheel), or if
//! the stack says so.

mod archive;
mod explanation;
mod undeclared;

use super::ResolveError;
use super::answer::{Pin, Pins};
use super::offers::{offers, with_wheel};
use super::old::Old;
use super::project::{Metadata, Question, UvSettings};
use super::python::Resolver;
use super::requirements::{Need, PackageSource};
use super::sdist::{Sdist, Sdists};
use explanation::{lacks_source, without_wheels};
use pep440_rs::Version;
use stackforge_stack::catalog::{Catalog, StaticMetadata};
use stackforge_stack::spec::From;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use undeclared::{Amendments, Bound, Knowledge};

/// How often versions are resolved before that is called endless.
const MOST_ROUNDS: usize = 40;
/// How often, where an older release with a wheel may do instead: each round reads a release that does not fit.
const MOST_ROUNDS_FOR_NEWEST: usize = 10;

/// Most sources of which the index is asked for releases with wheels.
const MOST_OFFERS: usize = 5;

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

/// What was found out between the rounds of a resolution.
#[derive(Default)]
struct Rounds {
    /// What is taken as source.
    names: BTreeSet<String>,
    known: Known,
    amendments: Amendments,
    /// Releases of which uv was asked why it passes them over.
    explained: BTreeSet<(String, Version)>,
    /// Bounds that cannot be met: what is asked for is taken, as it would be by others.
    given_up: BTreeSet<String>,
}

impl Rounds {
    /// Returns a resolver that knows all this.
    fn resolver<'r>(&self, resolver: &Resolver<'r>) -> Resolver<'r> {
        let mut settings = resolver.settings.clone();
        for name in &self.names {
            settings.compiled.push(name.clone());
            settings.metadata.push(placeholder(name));
            let releases = self.known.get(name).into_iter().flatten();
            let read = releases.map(|(version, sdist)| Metadata {
                distribution: name.clone(),
                version: Some(version.clone()),
                content: sdist.metadata.dependencies.clone(),
            });
            settings.metadata.extend(read);
        }
        settings.overrides.extend(self.amendments.overrides());
        Resolver {
            settings,
            ..*resolver
        }
    }

    /// Goes back to the answer before a bound that cannot be met, or that `makes_older` what the stack names, and tries
    /// an older release of what has it. Where there is none, the bound that can be met is taken after all: what does
    /// not import is worse than what is older.
    fn give_up(
        &mut self,
        answer: Answer,
        bound: Bound,
        makes_older: bool,
    ) -> Option<(Answer, Bound)> {
        self.amendments = answer.amendments.clone();
        self.given_up.insert(bound.constraint.clone());
        let next = match (bound.instead, bound.last_resort) {
            (Some(instead), _) => Bound {
                constraint: instead,
                instead: None,
                last_resort: makes_older.then_some(bound.constraint),
            },
            (None, Some(constraint)) => Bound {
                constraint,
                instead: None,
                last_resort: None,
            },
            (None, None) => return None,
        };
        self.amendments.bounds.push(next.constraint.clone());
        Some((answer, next))
    }

    /// Returns the pins that are taken as source and were not read.
    fn unread(&self, pins: &Pins) -> Pins {
        let is_read = |name: &String, pin: &Pin| {
            let releases = self.known.get(name);
            releases.is_some_and(|releases| releases.contains_key(&pin.version))
        };
        let unread = pins
            .iter()
            .filter(|(name, pin)| self.names.contains(*name) && !is_read(name, pin));
        unread
            .map(|(name, pin)| (name.clone(), pin.clone()))
            .collect()
    }
}

pub(super) struct Sources<'a> {
    pub needs: &'a [Need<'a>],
    pub old: &'a Old<'a>,
    pub catalog: &'a Catalog,
    /// The store's root.
    pub cache: &'a Path,
    pub offline: bool,
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
            MOST_ROUNDS
        } else {
            MOST_ROUNDS_FOR_NEWEST
        };
        let mut tried = self
            .rounds(resolver, question, names().collect(), most, progress)
            .await?;
        if tried.is_err() && !newer.is_empty() {
            // An older release with a wheel may go with the rest where the newest does not.
            let again = self
                .rounds(resolver, question, fixed.clone(), MOST_ROUNDS, progress)
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
                    .rounds(resolver, &question, names, MOST_ROUNDS, progress)
                    .await?;
                answer = match again {
                    Ok(newer) if self.none_is_older(&answer.pins, &newer.pins) => newer,
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
        let knowledge = self.knowledge();
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

    /// Asks which releases have wheels of what the stack pins to one that has none. Few of those old ones compile.
    async fn ask_for_wheels(&self, resolver: &Resolver<'_>, sdists: &mut Sdists) {
        let needs = self.needs.iter().filter(|_| !self.offline);
        let open = |need: &&Need<'_>| is_plain(need) && need.library.from == From::Auto;
        let mut left = MOST_OFFERS;
        for need in needs.filter(open) {
            if let Some(sdist) = sdists.get_mut(&need.distribution).filter(|_| left > 0) {
                sdist.wheels = with_wheel(resolver, &need.line()).await;
                left -= 1;
            }
        }
    }

    /// Refuses what is compiled with Rust and has no wheel: a build has no network to fetch crates from.
    fn can_be_built(&self, sdists: &Sdists, pins: &Pins) -> Result<(), ResolveError> {
        let brings_cargo = |name: &str| {
            let named = self.needs.iter().find(|n| n.distribution == name);
            named.is_some_and(|n| n.library.build_packages.iter().any(|p| p == "cargo"))
        };
        let refused = sdists
            .iter()
            .find(|(name, sdist)| sdist.metadata.fetches_crates && !brings_cargo(name));
        let Some((name, sdist)) = refused else {
            return Ok(());
        };
        let by = pins.get(name).map(Pin::locked_via).unwrap_or_default();
        let by = match (by.as_slice(), &sdist.wheels) {
            (_, Some(wheels)) => format!("; {wheels}"),
            ([], None) => String::new(),
            (by, None) => format!(" ({} needs it)", by.join(", ")),
        };
        Err(ResolveError::Source {
            name: name.clone(),
            version: sdist.file.version.clone(),
            why: format!(
                "it has no wheel here and is compiled with Rust, whose crates its build would fetch; builds have no network{by}"
            ),
        })
    }

    /// Takes the wheel of what is source only because uv's explanation named it: that may have been about other releases
    /// than the one that was chosen in the end.
    async fn prefer_wheels(
        &self,
        answer: &mut Answer,
        resolver: &Resolver<'_>,
        fixed: &BTreeSet<String>,
    ) -> Result<(), ResolveError> {
        let only_found = |name: &String| !fixed.contains(name) && answer.known.contains_key(name);
        let found = answer.pins.iter().filter(|(name, _)| only_found(name));
        let found: Pins = found
            .map(|(name, pin)| (name.clone(), pin.clone()))
            .collect();
        if found.is_empty() || self.offline {
            return Ok(());
        }
        let mut settings = answer.settings.clone();
        settings.compiled.retain(|name| !found.contains_key(name));
        settings.sdists_too = true;
        let files = Resolver {
            settings,
            ..*resolver
        }
        .files(&found)
        .await?;
        let target = &resolver.settings.target;
        let has_wheel =
            |name: &String| found.contains_key(name) && files.wheel(name, target).is_ok();
        answer.known.retain(|name, _| !has_wheel(name));
        answer.settings.compiled.retain(|name| !has_wheel(name));
        answer
            .settings
            .metadata
            .retain(|m| !has_wheel(&m.distribution));
        Ok(())
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

    /// Resolves until all that is taken as source is known.
    async fn rounds(
        &self,
        resolver: &Resolver<'_>,
        question: &Question,
        names: BTreeSet<String>,
        most: usize,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Result<Answer, String>, ResolveError> {
        let mut state = Rounds {
            names,
            ..Rounds::default()
        };
        // The bound that was added last, and the answer without it.
        let mut trial: Option<(Answer, Bound)> = None;
        // What uv said before it was told to take something as source.
        let mut before: Option<String> = None;
        for _ in 0..most {
            let asked = state.resolver(resolver);
            let question = state.amendments.question(question);
            let pins = match asked.versions(&question).await? {
                Ok(pins) => pins,
                Err(explanation) => {
                    if let Some((answer, bound)) = trial.take() {
                        trial = state.give_up(answer, bound, false);
                        continue;
                    }
                    if let Some(before) = before.filter(|_| lacks_source(&explanation)) {
                        return Ok(Err(before));
                    }
                    let found = self.new_sources(&explanation, &state);
                    if found.is_empty() {
                        return Ok(Err(explanation));
                    }
                    state.names.extend(found);
                    before = Some(explanation);
                    continue;
                }
            };
            let unread = state.unread(&pins);
            if !unread.is_empty() {
                let found = self.passed_over(&asked, &question, &unread, &mut state);
                let found = found.await?;
                if found.is_empty() {
                    let read = archive::read(self.cache, self.offline, &asked, &unread, progress);
                    for (name, sdist) in read.await? {
                        let version = unread[&name].version.clone();
                        let releases = state.known.entry(name).or_default();
                        releases.insert(version, sdist);
                    }
                }
                state.names.extend(found);
                continue;
            }
            if let Some((answer, bound)) = trial.take()
                && bound.instead.is_some()
                && !self.none_is_older(&answer.pins, &pins)
            {
                // A bound makes nothing older that the stack names, but for what has the bound itself.
                trial = state.give_up(answer, bound, true);
                continue;
            }
            let lacking = self.knowledge().amendments(&pins);
            let broken = self.knowledge().broken(&pins, &state.given_up);
            let answer = Answer {
                pins,
                known: state.known.clone(),
                settings: asked.settings,
                amendments: state.amendments.clone(),
            };
            if !lacking.is_empty() {
                state.amendments.extend(lacking);
                continue;
            }
            let Some(bound) = broken else {
                return Ok(Ok(answer));
            };
            state.amendments.bounds.push(bound.constraint.clone());
            trial = Some((answer, bound));
        }
        // There is an answer, if not one that meets every bound.
        if let Some((answer, _)) = trial {
            return Ok(Ok(answer));
        }
        let names: Vec<String> = state.names.into_iter().collect();
        Ok(Err(format!(
            "the metadata of {} change what is chosen at every look",
            names.join(", ")
        )))
    }

    /// Returns what uv's explanation lacks wheels of and is not taken as source yet.
    fn new_sources(&self, explanation: &str, state: &Rounds) -> BTreeSet<String> {
        let lacking = without_wheels(explanation).into_iter();
        lacking
            .filter(|name| !state.names.contains(name) && !self.wants_wheel(name))
            .collect()
    }

    /// uv goes on to an older release, of which it knows nothing, where one that was read requires something
    /// without a wheel. Returns what that is, so that the newer one can be taken.
    async fn passed_over(
        &self,
        asked: &Resolver<'_>,
        question: &Question,
        unread: &Pins,
        state: &mut Rounds,
    ) -> Result<BTreeSet<String>, ResolveError> {
        let mut found = BTreeSet::new();
        for (name, pin) in unread {
            let newest = state.known.get(name).and_then(|r| r.keys().next_back());
            let Some(newest) = newest.filter(|newest| **newest > pin.version).cloned() else {
                continue;
            };
            let mut question = question.clone();
            question.constraints.push(format!("{name}=={newest}"));
            if state.explained.insert((name.clone(), newest))
                && let Err(explanation) = asked.versions(&question).await?
            {
                found.extend(self.new_sources(&explanation, state));
            }
        }
        // What is taken as source from now on may change the answers.
        if !found.is_empty() {
            state.explained.clear();
        }
        Ok(found)
    }

    fn knowledge(&self) -> Knowledge<'_> {
        Knowledge {
            catalog: self.catalog,
            needs: self.needs,
        }
    }

    /// Whether the stack wants a wheel, or a recipe says how the library is compiled.
    fn wants_wheel(&self, name: &str) -> bool {
        let mut needs = self.needs.iter().filter(|n| n.distribution == name);
        needs.any(|n| !is_plain(n) || n.library.from == From::Wheel)
    }
}

/// Whether a library has no recipe.
fn is_plain(need: &Need<'_>) -> bool {
    need.recipe.is_none() && need.source == PackageSource::Wheel
}

/// Metadata that says nothing, so that uv asks nobody else.
fn placeholder(name: &str) -> Metadata {
    Metadata {
        distribution: name.to_owned(),
        version: None,
        content: StaticMetadata {
            requires_python: None,
            requires_dist: Vec::new(),
        },
    }
}
