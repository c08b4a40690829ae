//! Pins and ranges of a first stack that do not go together.
//!
//! In: a stack that was made of a foreign file, and what indexes list of its libraries. Out: the libraries of which
//! another release than asked for is needed, each the next release with which all of them can be had. Nothing
//! where they go together as they are, or where none of this helps. Never: makes a release older than what is asked for, or
//! reads a source distribution; one that has no wheel for anyone is taken to need nothing.

use super::direct::Reader;
use super::inputs::inputs;
use super::old::Old;
use super::package::Published;
use super::project::{Metadata, Question, stub};
use super::python::Resolver;
use super::requirements::{Need, PackageSource, needs};
use super::source::{pinned_without_wheels, placeholder, without_wheels};
use super::{LockOptions, ResolveError, Upgrade, Workplace, answer::Pins, wheel_or_source};
use pep440_rs::{Operator, Version, VersionSpecifier, VersionSpecifiers};
use stackforge_image::store::Store;
use stackforge_stack::catalog::{Catalog, StaticMetadata};
use stackforge_stack::rules::Choice;
use stackforge_stack::spec::{From, Stack};
use stackforge_stack::target::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Stands for what is not pinned: of what is asked for through it, uv takes the newest release, and of pins the oldest.
const REST: &str = "stackforge-unpinned";
/// How often uv is asked.
const ROUNDS: usize = 24;

/// Releases in place of those that are asked for, by the normalized names of distributions.
pub type Loosened = BTreeMap<String, Version>;

/// Returns what has to stand in for what is asked for, so that all goes together.
pub async fn loosened(
    stack: &Stack,
    catalog: &Catalog,
    target: &Target<'_>,
    published: &mut Published,
    store: &Store,
    progress: &mut dyn FnMut(&str),
) -> Result<Loosened, ResolveError> {
    let options = LockOptions {
        upgrade: Upgrade::None,
        upgrade_os: false,
        pull: false,
        cache: store.root().to_owned(),
        offline: false,
        debian_mirrors: Vec::new(),
    };
    let inputs = inputs(stack, catalog, target);
    let old = Old::new(None, stack, &inputs, &options);
    let workplace = Workplace::of(stack, catalog, &options, progress).await?;
    let stubs = workplace.stubs();
    let mut resolver = workplace.resolver(stack, target, false);
    let mut needs = needs(stack, target);
    let choice = Choice::of(stack, target, catalog);
    wheel_or_source::decide(&mut needs, &resolver, &choice).await?;
    let reader = Reader {
        stack,
        old: &old,
        cache: &options.cache,
        offline: false,
    };
    let direct = reader.read(&needs, progress).await?;
    resolver.settings.add(&needs, &direct, &stubs)?;

    progress("resolving what the file asks for");
    let pins: BTreeMap<&str, Pin<'_>> = needs
        .iter()
        .filter_map(|need| Some((need.distribution.as_str(), pin(need, published)?)))
        .collect();
    let exact = pins.iter().filter(|(_, pin)| pin.kind == Kind::Exact);
    let sources = exact.filter(|(name, pin)| published.is_source_only(name, &pin.oldest));
    let sources: BTreeSet<String> = sources.map(|(name, _)| (*name).to_owned()).collect();
    let mut search = Search {
        resolver,
        published,
        catalog,
        store,
        sources: BTreeSet::new(),
    };
    search.take_source(sources);
    let mut question = Question {
        requirements: needs.iter().map(Need::line).collect(),
        constraints: stack.constraints.iter().map(|c| c.value.clone()).collect(),
        ..Question::default()
    };
    if search.pins(&mut question).await?.is_some() {
        return Ok(Loosened::new());
    }
    question.lowest = true;
    // Exact pins give way first, then ranges too, then upper bounds too. Releases that are not final come last: uv takes them
    // where every final one needs something that has no wheel.
    let stages = [true, false].into_iter().flat_map(|only_final| {
        [Kind::Exact, Kind::Range, Kind::Bound].map(|last| (only_final, last))
    });
    for (stage, (only_final, last)) in stages.enumerate() {
        let gives_way = |need: &&Need<'_>| {
            let pin = pins.get(need.distribution.as_str());
            pin.is_some_and(|pin| pin.kind <= last)
        };
        let (loose, rest): (Vec<&Need<'_>>, Vec<&Need<'_>>) = needs.iter().partition(gives_way);
        if loose.is_empty() {
            continue;
        }
        let version = Version::new([stage as u64]);
        search.stand_for(&rest, &version, &stubs)?;
        let lines = loose.iter().map(|need| {
            let oldest = &pins[need.distribution.as_str()].oldest;
            format!("{}>={oldest}", need.line_without_version())
        });
        question.requirements = lines.chain([format!("{REST}=={version}")]).collect();
        question.only_final = only_final;
        let Some(answer) = search.pins(&mut question).await? else {
            continue;
        };
        let moved = loose.iter().filter_map(|need| {
            let name = &need.distribution;
            let taken = &answer.get(name)?.version;
            (!pins[name.as_str()].allows(taken)).then(|| (name.clone(), taken.clone()))
        });
        return Ok(moved.collect());
    }
    Ok(Loosened::new())
}

/// How much is said of the releases that are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// `==1.2`.
    Exact,
    /// `>=1.2,<2`, `~=1.2`, `==1.*`.
    Range,
    /// `<2`: nothing but what is too new.
    Bound,
}

/// What a stack allows of a library, where a newer release may stand in for it.
struct Pin<'n> {
    kind: Kind,
    /// The oldest release that may stand in for what is wanted: of a bound, the newest below it.
    oldest: Version,
    specifiers: &'n VersionSpecifiers,
}

impl Pin<'_> {
    fn allows(&self, version: &Version) -> bool {
        match self.kind {
            Kind::Exact => self.oldest.only_release() == version.only_release(),
            Kind::Range | Kind::Bound => self.specifiers.contains(version),
        }
    }
}

/// Returns what is allowed of a library that has a newest release, if that is not the stack's or a recipe's alone.
fn pin<'n>(need: &'n Need<'_>, published: &Published) -> Option<Pin<'n>> {
    let of_index = need.source == PackageSource::Wheel && need.library.index.is_none();
    if !of_index || need.library.from == From::Source || need.pinned.is_some() {
        return None;
    }
    let specifiers = need.specifiers()?;
    let of = |operators: &[Operator]| {
        let found = specifiers.iter();
        let found = found.filter(|one| operators.contains(one.operator()));
        found.map(VersionSpecifier::version).max().cloned()
    };
    use Operator::{Equal, EqualStar, GreaterThanEqual, LessThan, LessThanEqual, TildeEqual};
    let (kind, oldest) = match &specifiers[..] {
        [one] if *one.operator() == Equal => (Kind::Exact, one.version().clone()),
        _ => {
            of(&[LessThan, LessThanEqual, TildeEqual, EqualStar])?;
            match of(&[GreaterThanEqual, TildeEqual, EqualStar]) {
                Some(oldest) => (Kind::Range, oldest),
                None => {
                    let newest = published.newest_of(&need.distribution, specifiers)?;
                    (Kind::Bound, newest.clone())
                }
            }
        }
    };
    Some(Pin {
        kind,
        oldest,
        specifiers,
    })
}

struct Search<'a> {
    resolver: Resolver<'a>,
    published: &'a mut Published,
    catalog: &'a Catalog,
    store: &'a Store,
    /// What is taken as source, whatever it needs.
    sources: BTreeSet<String>,
}

impl Search<'_> {
    /// Returns versions that go together and can be had: by a wheel, or as a source that has none for anyone.
    async fn pins(&mut self, question: &mut Question) -> Result<Option<Pins>, ResolveError> {
        for _ in 0..ROUNDS {
            match self.resolver.versions(question).await? {
                Err(explanation) => {
                    let mut found = without_wheels(&explanation);
                    found.retain(|name| !self.sources.contains(name));
                    if found.is_empty() {
                        return Ok(None);
                    }
                    let published = &mut self.published;
                    published
                        .add(found.clone(), self.catalog, self.store.root())
                        .await;
                    // If every release has wheels, those for this Python do not go with the rest: a pin has to give way.
                    found.retain(|name| self.published.has_source_only(name));
                    if found.is_empty() {
                        return Ok(None);
                    }
                    let pinned = pinned_without_wheels(&explanation);
                    let found = self.published.surest(found, &pinned);
                    self.take_source(found);
                }
                Ok(pins) => {
                    let target = &self.resolver.settings.target;
                    let of_others: Vec<String> = pins
                        .iter()
                        .filter(|(name, pin)| {
                            self.sources.contains(*name)
                                && self.published.is_for_others(name, &pin.version, target)
                        })
                        .map(|(name, pin)| format!("{name}!={}", pin.version))
                        .collect();
                    if of_others.is_empty() {
                        return Ok(Some(pins));
                    }
                    question.constraints.extend(of_others);
                }
            }
        }
        Ok(None)
    }

    /// Puts what keeps its versions behind one requirement.
    fn stand_for(
        &mut self,
        rest: &[&Need<'_>],
        version: &Version,
        stubs: &Path,
    ) -> Result<(), ResolveError> {
        let rest = StaticMetadata {
            requires_python: None,
            requires_dist: rest.iter().map(|need| need.line()).collect(),
        };
        stub(stubs, REST, version, &rest)?;
        let settings = &mut self.resolver.settings;
        settings.stubs = Some(stubs.to_owned());
        settings.compiled.push(REST.to_owned());
        settings.metadata.push(Metadata {
            distribution: REST.to_owned(),
            version: Some(version.clone()),
            content: rest,
        });
        Ok(())
    }

    fn take_source(&mut self, names: BTreeSet<String>) {
        let settings = &mut self.resolver.settings;
        for name in names {
            settings.compiled.push(name.clone());
            settings.metadata.push(placeholder(&name));
            self.sources.insert(name);
        }
    }
}
