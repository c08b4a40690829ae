//! Distributions that come as source and have no recipe.
//!
//! In: the stack's question. Out: its versions, and for each distribution without a fitting wheel the locked
//! archive with what it says of itself. uv is told the metadata, so that it builds nothing: first none, which
//! gives the version that it would take; then that version's own, until the version that it takes is one
//! whose metadata it had. A distribution is taken as source if it has no wheel that fits, if its newest
//! release has none or needs something that has none (`auto` never takes an older release for a wheel), or if
//! the stack says so.

pub(super) mod sdist;

use super::ResolveError;
use super::answer::{Pin, Pins};
use super::old::Old;
use super::project::{Metadata, Question, UvSettings};
use super::python::Resolver;
use super::requirements::{Need, PackageSource};
use pep440_rs::{Version, VersionSpecifiers};
use sdist::SdistMetadata;
use stackforge_image::store::Store;
use stackforge_stack::catalog::{Catalog, StaticMetadata, Undeclared};
use stackforge_stack::lock::PythonFile;
use stackforge_stack::spec::From;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::{Download, Fetcher};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// How often versions are resolved before that is called endless.
const MOST_ROUNDS: usize = 40;

/// A source distribution that is to be built.
#[derive(Debug, Clone)]
pub(super) struct Sdist {
    pub file: PythonFile,
    pub metadata: SdistMetadata,
}

/// Source distributions by name.
pub(super) type Sdists = BTreeMap<String, Sdist>;

/// The versions of a stack.
pub(super) struct Resolved {
    pub pins: Pins,
    pub sdists: Sdists,
    /// Constraints that the question did not have: see [`Undeclared::holds`].
    pub held: Vec<String>,
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
    /// Distributions that are left out, by those that have their modules.
    left_out: BTreeMap<String, String>,
    /// Constraints that the question did not have.
    held: Vec<String>,
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
        let mut tried = self
            .rounds(resolver, question, names().collect(), progress)
            .await?;
        if tried.is_err() && !newer.is_empty() {
            // An older release with a wheel may go with the rest where the newest does not.
            let again = self
                .rounds(resolver, question, fixed.clone(), progress)
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
        let mut answer = tried.map_err(|explanation| ResolveError::Unsatisfiable {
            of: "the stack".to_owned(),
            explanation,
        })?;
        for (name, newest) in &newest {
            let older = |answer: &Answer| {
                let pin = answer.pins.get(name);
                pin.is_some_and(|pin| pin.version < newest.version)
            };
            if newest.has_wheel && older(&answer) {
                let mut question = question.clone();
                // Without an upper bound, uv would go on to releases that are not final.
                question
                    .constraints
                    .push(format!("{name}=={}", newest.version));
                let names = fixed.iter().chain(answer.known.keys()).cloned().collect();
                let again = self.rounds(resolver, &question, names, progress).await?;
                answer = match again {
                    Ok(newer) if self.none_is_older(&answer.pins, &newer.pins) => newer,
                    _ => answer,
                };
            }
        }
        let Answer {
            mut pins,
            known,
            settings,
            left_out,
            held,
        } = answer;
        resolver.settings = settings;
        notes.extend(left_out.iter().map(|(name, other)| {
            format!(
                "{name} is left out: {other} has its modules, and an environment holds one of them"
            )
        }));
        for bound in &held {
            let known = self.known(&pins).filter(|(_, k)| k.holds.contains(bound));
            notes.extend(known.map(|(name, _)| {
                let version = &pins[name].version;
                format!("{name} {version} does not go with newer releases: {bound} is taken")
            }));
        }
        self.attribute(&mut pins);
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
        Ok(Resolved {
            pins,
            sdists,
            held,
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
        mut names: BTreeSet<String>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Result<Answer, String>, ResolveError> {
        let mut known = Known::new();
        let mut question = question.clone();
        let mut left_out = BTreeMap::new();
        let mut held = Vec::new();
        // The answer before newer releases were held back.
        let mut unheld: Option<Answer> = None;
        // What uv said before it was told to take something as source.
        let mut before: Option<String> = None;
        for _ in 0..MOST_ROUNDS {
            let mut settings = resolver.settings.clone();
            for name in &names {
                settings.compiled.push(name.clone());
                settings.metadata.push(placeholder(name));
                let releases = known.get(name).into_iter().flatten();
                settings
                    .metadata
                    .extend(releases.map(|(version, sdist)| Metadata {
                        distribution: name.clone(),
                        version: Some(version.clone()),
                        content: sdist.metadata.dependencies.clone(),
                    }));
            }
            // An override that never applies leaves a requirement out.
            let never = left_out
                .keys()
                .map(|name| format!("{name} ; python_version < '3'"));
            settings.overrides.extend(never);
            let asked = Resolver {
                settings,
                ..*resolver
            };
            let pins = match asked.versions(&question).await? {
                Ok(pins) => pins,
                Err(explanation) => {
                    // Something asks for what is too new: then that is taken, as it would be by others.
                    if let Some(answer) = unheld.take() {
                        return Ok(Ok(answer));
                    }
                    if let Some(before) = before.filter(|_| lacks_source(&explanation)) {
                        return Ok(Err(before));
                    }
                    let found: Vec<String> = without_wheels(&explanation)
                        .into_iter()
                        .filter(|name| !names.contains(name) && !self.wants_wheel(name))
                        .collect();
                    if found.is_empty() {
                        return Ok(Err(explanation));
                    }
                    names.extend(found);
                    before = Some(explanation);
                    continue;
                }
            };
            let unread: BTreeMap<&String, &Pin> = pins
                .iter()
                .filter(|(name, _)| names.contains(*name))
                .filter(|(name, pin)| {
                    let releases = known.get(*name);
                    releases.is_none_or(|r| !r.contains_key(&pin.version))
                })
                .collect();
            if unread.is_empty() {
                let lacking = self.undeclared(&pins).map(|(requirement, _)| requirement);
                let lacking: Vec<String> = lacking.map(str::to_owned).collect();
                let doubled = self.doubled(&pins);
                let too_new = self.too_new(&pins, &question.constraints);
                let done = lacking.is_empty() && doubled.is_empty();
                let answer = Answer {
                    pins,
                    known: known.clone(),
                    settings: asked.settings,
                    left_out: left_out.clone(),
                    held: held.clone(),
                };
                if done && too_new.is_empty() {
                    return Ok(Ok(answer));
                }
                if done {
                    unheld = Some(answer);
                }
                question.requirements.extend(lacking);
                question.constraints.extend(too_new.iter().cloned());
                held.extend(too_new);
                left_out.extend(doubled);
                continue;
            }
            let unread: Pins = unread
                .into_iter()
                .map(|(n, p)| (n.clone(), p.clone()))
                .collect();
            for (name, sdist) in self.read(&asked, &unread, progress).await? {
                let version = unread[&name].version.clone();
                known.entry(name).or_default().insert(version, sdist);
            }
        }
        let names: Vec<String> = names.into_iter().collect();
        Ok(Err(format!(
            "the metadata of {} change what is chosen at every look",
            names.join(", ")
        )))
    }

    /// Returns what the catalog knows of pinned distributions.
    fn known<'p>(&'p self, pins: &'p Pins) -> impl Iterator<Item = (&'p String, &'p Undeclared)> {
        pins.iter().flat_map(|(name, pin)| {
            let entries = self.catalog.undeclared.get(name).into_iter().flatten();
            let entries = entries.filter(|entry| entry.versions.contains(&pin.version));
            entries.map(move |entry| (name, entry))
        })
    }

    /// Returns requirements that pinned distributions have and do not declare, with those distributions: where
    /// no alternative of one is pinned, the first.
    fn undeclared<'p>(&'p self, pins: &'p Pins) -> impl Iterator<Item = (&'p str, &'p str)> {
        self.known(pins).flat_map(move |(name, undeclared)| {
            let lacking = undeclared.requires.iter().filter_map(|alternatives| {
                let there = |a: &str| pins.contains_key(&distribution_of(a));
                let mut all = alternatives.split(" | ");
                let first = all.clone().next()?;
                (!all.any(there)).then_some(first)
            });
            lacking.map(move |requirement| (requirement, name.as_str()))
        })
    }

    /// Returns constraints that pinned distributions would have if their releases had known what came after them,
    /// where what is pinned breaks them.
    fn too_new(&self, pins: &Pins, constraints: &[String]) -> Vec<String> {
        let holds = self.known(pins).flat_map(|(_, known)| &known.holds);
        let broken = holds.filter(|held| {
            let name = distribution_of(held);
            let versions =
                held.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "-_.".contains(c));
            let versions: Option<VersionSpecifiers> = versions.parse().ok();
            let pinned = pins.get(&name);
            let breaks = pinned
                .zip(versions)
                .is_some_and(|(pin, v)| !v.contains(&pin.version));
            breaks && !constraints.contains(held)
        });
        broken.cloned().collect()
    }

    /// Returns pinned distributions whose modules another has, with the other: the one that the stack names, else
    /// the best. Of two that the stack names, none is left out.
    fn doubled(&self, pins: &Pins) -> BTreeMap<String, String> {
        let named = |name: &str| self.needs.iter().any(|need| need.distribution == name);
        let mut out = BTreeMap::new();
        for same in &self.catalog.same_modules {
            let there = same.distributions.iter().filter(|d| pins.contains_key(*d));
            let there: Vec<&String> = there.collect();
            let by_name = there.iter().find(|d| named(d.as_str()));
            let Some(kept) = by_name.or(there.first()) else {
                continue;
            };
            let others = there.iter().filter(|d| *d != kept && !named(d.as_str()));
            out.extend(others.map(|d| ((*d).clone(), (*kept).clone())));
        }
        out
    }

    /// Says of what was added for its importers by whom it is required.
    fn attribute(&self, pins: &mut Pins) {
        let mut importers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, entries) in &self.catalog.undeclared {
            let requires = entries.iter().flat_map(|entry| &entry.requires);
            let all = requires.flat_map(|alternatives| alternatives.split(" | "));
            for required in all.filter(|_| pins.contains_key(name)) {
                let of = importers.entry(distribution_of(required)).or_default();
                of.insert(name.clone());
            }
        }
        let named = |name: &str| self.needs.iter().any(|need| need.distribution == name);
        for (name, by) in importers {
            if let Some(pin) = pins.get_mut(&name).filter(|_| !named(&name)) {
                pin.named = false;
                pin.via.extend(by);
                pin.via.sort();
                pin.via.dedup();
            }
        }
    }

    /// Whether the stack wants a wheel, or a recipe says how the library is compiled.
    fn wants_wheel(&self, name: &str) -> bool {
        let mut needs = self.needs.iter().filter(|n| n.distribution == name);
        needs.any(|n| !is_plain(n) || n.library.from == From::Wheel)
    }

    /// Fetches source distributions into the store and reads them.
    async fn read(
        &self,
        resolver: &Resolver<'_>,
        pins: &Pins,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Vec<(String, Sdist)>, ResolveError> {
        let names: Vec<&str> = pins.keys().map(String::as_str).collect();
        progress(&format!("reading the source of {}", names.join(", ")));
        let files = resolver.files(pins).await?;
        let failed = |name: &str, why: String| ResolveError::Source {
            name: name.to_owned(),
            version: pins[name].version.to_string(),
            why,
        };
        let store = Store::open(Some(self.cache)).map_err(|e| failed(names[0], e.to_string()))?;
        let fetcher = Fetcher::new(RetryPolicy::default());
        let fetcher = fetcher.map_err(|e| failed(names[0], e.to_string()))?;
        let mut out = Vec::new();
        for name in names {
            let file = files.sdist(name)?;
            let path = match store.blob(&file.sha256) {
                Some(path) => path,
                None if self.offline => return Err(ResolveError::OfflineChoice(name.to_owned())),
                None => {
                    let address = files.address(&file.sha256).unwrap_or_default();
                    fetch(&store, &fetcher, &file, address)
                        .await
                        .map_err(|why| failed(name, why))?
                }
            };
            let metadata =
                sdist::read(&file.file, &path).map_err(|e| failed(name, e.to_string()))?;
            out.push((name.to_owned(), Sdist { file, metadata }));
        }
        Ok(out)
    }
}

async fn fetch(
    store: &Store,
    fetcher: &Fetcher,
    file: &PythonFile,
    address: &str,
) -> Result<std::path::PathBuf, String> {
    store.lease([&file.sha256]).map_err(|e| e.to_string())?;
    if let Ok(url) = reqwest::Url::parse(address)
        && let Ok(path) = url.to_file_path()
    {
        let source = std::fs::File::open(&path).map_err(|e| e.to_string())?;
        store
            .put(source, Some(&file.sha256))
            .map_err(|e| e.to_string())?;
        return store
            .blob(&file.sha256)
            .ok_or_else(|| "the store lost it".to_owned());
    }
    let download = Download {
        name: file.sha256.hex().to_owned(),
        urls: vec![address.to_owned()],
        sha256: file.sha256.clone(),
        size: Some(file.size).filter(|size| *size > 0),
    };
    let folder = store.dir("blobs/sha256").map_err(|e| e.to_string())?;
    let fetched = fetcher.file(&download, &folder, &|_| {}).await;
    let fetched = fetched.map_err(|e| e.to_string())?;
    store.verified(&file.sha256);
    Ok(fetched.path)
}

/// Returns the name that a requirement begins with.
fn distribution_of(requirement: &str) -> String {
    let end = requirement.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
    stackforge_types::wheel::normalized(&requirement[..end.unwrap_or(requirement.len())])
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

/// Whether uv found no source of something either, by its words for it.
fn lacks_source(explanation: &str) -> bool {
    explanation.contains("no source distribution")
}

/// Returns the distributions that uv has no wheel of, by its words for it: `x==1 has no usable wheels`, `all
/// versions of x have no wheels with a matching Python ABI tag`.
fn without_wheels(explanation: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let words: Vec<&str> = explanation.split_whitespace().collect();
    for (at, pair) in words.windows(2).enumerate() {
        if !["has", "have"].contains(&pair[0]) || pair[1] != "no" {
            continue;
        }
        let rest = words.get(at + 2..).unwrap_or_default();
        let of_wheels = rest.iter().take(2).any(|word| word.starts_with("wheels"));
        let Some(subject) = at.checked_sub(1).and_then(|i| words.get(i)) else {
            continue;
        };
        let end = subject.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
        let name = &subject[..end.unwrap_or(subject.len())];
        if of_wheels && !name.is_empty() {
            out.insert(stackforge_types::wheel::normalized(name));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_wheel_is_read_from_uvs_words() {
        let text = "Because all versions of wikipedia have no usable wheels and the stack asks for wikipedia, we can conclude that your requirements are unsatisfiable.\n\
            hint: Wheels are required for `wikipedia` because building from source is disabled for all packages\n\
            And because box2d-py==2.3.6 has no wheels with a matching Python ABI tag (e.g., `cp311`)\n\
            Because gym[accept-rom-license]==0.25.1 has no usable wheels\n\
            Because Antlr4_python3-runtime>=4.9,<=4.9.3 has no usable wheels and x has no dependencies";
        let found: Vec<String> = without_wheels(text).into_iter().collect();
        assert_eq!(
            found,
            ["antlr4-python3-runtime", "box2d-py", "gym", "wikipedia"]
        );
    }
}
