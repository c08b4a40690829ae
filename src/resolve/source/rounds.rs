//! Versions are resolved in rounds: what one answer shows, the next question says.

use super::super::ResolveError;
use super::super::answer::{Pin, Pins};
use super::super::package::Published;
use super::super::project::{Metadata, Question};
use super::super::python::Resolver;
use super::explanation::{lacks_source, pinned_without_wheels, without_wheels};
use super::undeclared::{Amendments, Bound};
use super::{Answer, Known, Sources, archive, is_plain, placeholder};
use pep440_rs::Version;
use stackforge_stack::spec::From;
use std::collections::BTreeSet;

/// How often sources are looked at before that is called endless.
pub(super) const MOST_LOOKS: usize = 40;
/// How often, where an older release with a wheel may do instead: each look reads a release that does not fit.
pub(super) const MOST_LOOKS_FOR_NEWEST: usize = 10;
/// How often versions are resolved, whether or not a source was looked at.
const MOST_ROUNDS: usize = 120;

/// An answer as far as possible without releases that are not final.
enum Final {
    Taken(Pins),
    /// Final releases need these, which have no wheels.
    Lack(BTreeSet<String>),
}

/// What was found out between the rounds of a resolution.
#[derive(Default)]
struct Rounds {
    /// What is taken as source.
    names: BTreeSet<String>,
    known: Known,
    amendments: Amendments,
    /// Releases of which uv was asked why it passes them over.
    explained: BTreeSet<(String, Version)>,
    /// Releases that are not final and are taken all the same.
    not_final: BTreeSet<(String, Version)>,
    /// What indexes have of what explanations name.
    published: Published,
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

impl Sources<'_> {
    /// Resolves until all that is taken as source is known.
    pub(super) async fn rounds(
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
        let python = resolver.settings.target.python;
        // The bound that was added last, and the answer without it.
        let mut trial: Option<(Answer, Bound)> = None;
        // What uv said before it was told to take something as source.
        let mut before: Option<String> = None;
        let mut looks = 0;
        for _ in 0..MOST_ROUNDS {
            if looks == most {
                break;
            }
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
                    let found = self.new_sources(&explanation, &mut state).await;
                    if found.is_empty() {
                        return Ok(Err(explanation));
                    }
                    state.names.extend(found);
                    before = Some(explanation);
                    looks += 1;
                    continue;
                }
            };
            let pins = match self
                .final_releases(&asked, &question, pins, &mut state)
                .await?
            {
                Final::Taken(pins) => pins,
                Final::Lack(found) => {
                    state.names.extend(found);
                    looks += 1;
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
                looks += 1;
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
            let lacking = self.knowledge(python).amendments(&pins);
            let broken = self.knowledge(python).broken(&pins, &state.given_up);
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
            if state.amendments.bounds.contains(&bound.constraint) {
                // It was added, and uv counts what is pinned as within it, as it may with a pre-release.
                trial = state.give_up(answer, bound, false);
                continue;
            }
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

    /// Returns what uv's explanation lacks wheels of and is not taken as source yet. If there are several,
    /// those without any wheel in their newest release come first, and those of which one release is required that has
    /// none. An explanation also names distributions that have wheels, only not of the releases that would go with the rest.
    async fn new_sources(&self, explanation: &str, state: &mut Rounds) -> BTreeSet<String> {
        let mut found = without_wheels(explanation);
        found.retain(|name| !state.names.contains(name) && !self.wants_wheel(name));
        tracing::debug!(?found, explanation, "what has no wheel");
        if found.len() < 2 || self.offline {
            return found;
        }
        let published = &mut state.published;
        published.add(found.clone(), self.catalog, self.cache).await;
        published.surest(found, &pinned_without_wheels(explanation))
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
                found.extend(self.new_sources(&explanation, state).await);
            }
        }
        // What is taken as source from now on may change the answers.
        if !found.is_empty() {
            state.explained.clear();
        }
        Ok(found)
    }

    /// uv goes on to releases that are not final where every final one requires something without a wheel. Returns
    /// what that is; else the versions, with final ones wherever there are some that go together.
    async fn final_releases(
        &self,
        asked: &Resolver<'_>,
        question: &Question,
        pins: Pins,
        state: &mut Rounds,
    ) -> Result<Final, ResolveError> {
        let early = pins.iter().filter(|(_, p)| p.version.any_prerelease());
        let early: BTreeSet<(String, Version)> = early
            .map(|(name, pin)| (name.clone(), pin.version.clone()))
            .collect();
        if early.iter().all(|e| state.not_final.contains(e)) {
            return Ok(Final::Taken(pins));
        }
        let mut question = Question {
            only_final: true,
            ..question.clone()
        };
        let named = self.needs.iter().map(|need| &need.distribution);
        let named = named.filter_map(|name| Some((name, &pins.get(name)?.version)));
        let final_ones = named.filter(|(_, version)| !version.any_prerelease());
        question.constraints.extend(
            final_ones
                .map(|(name, version)| format!("{name}>={}", version.clone().without_local())),
        );
        let explanation = match asked.versions(&question).await? {
            Ok(pins) => return Ok(Final::Taken(pins)),
            Err(explanation) => explanation,
        };
        let mut found = self.new_sources(&explanation, state).await;
        // Final releases of what has wheels only of later ones are not wanted: they are often empty.
        found.retain(|name| !early.iter().any(|(of, _)| of == name));
        if found.is_empty() {
            state.not_final.extend(early);
            return Ok(Final::Taken(pins));
        }
        Ok(Final::Lack(found))
    }

    /// Whether the stack wants a wheel, or a recipe says how the library is compiled.
    fn wants_wheel(&self, name: &str) -> bool {
        let mut needs = self.needs.iter().filter(|n| n.distribution == name);
        needs.any(|n| !is_plain(n) || n.library.from == From::Wheel)
    }
}
