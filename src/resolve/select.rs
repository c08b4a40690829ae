//! Chooses versions, and of each distribution the file that is installed or built.
//!
//! In: the stack's question. Out: a [`Selection`]. What was built for numpy 1 is loaded by no numpy 2, and few
//! distributions of those years say so: where such a one is chosen, numpy is held below 2.

use super::answer::{self, Pins};
use super::contents;
use super::direct::DirectFiles;
use super::missing_modules::{self, MissingModule};
use super::old::Old;
use super::project::Question;
use super::python::Resolver;
use super::requirements::{Need, PackageSource};
use super::sdist;
use super::source::{Resolved, Sources};
use super::system;
use super::{LockOptions, ResolveError};
use pep440_rs::Version;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::lock::PythonFile;
use stackforge_stack::spec::PythonVersion;
use std::collections::{BTreeMap, BTreeSet};

/// How often what is added is looked at for what it lacks itself.
const MOST_TIMES: usize = 3;
/// The last Python that numpy 1 has wheels for.
const LAST_OF_NUMPY_1: (u8, u8) = (3, 12);

/// Versions and their files.
pub(super) struct Selection {
    pub pins: Pins,
    /// Source distributions that no recipe builds.
    pub plain: sdist::Sdists,
    pub files: answer::Files,
    /// Wheels of the image.
    pub wheels: Vec<PythonFile>,
    /// Source distributions that recipes build.
    pub sdists: Sdists,
    /// Bounds that the question did not have.
    pub bounds: Vec<String>,
    /// What somebody who reads the stack would not expect, a sentence each.
    pub notes: Vec<String>,
}

pub(super) struct Selector<'a> {
    pub sources: Sources<'a>,
    pub needs: &'a [Need<'a>],
    pub direct: &'a DirectFiles,
    pub contents: contents::Reader<'a>,
}

impl<'a> Selector<'a> {
    pub fn new(
        needs: &'a [Need<'a>],
        direct: &'a DirectFiles,
        old: &'a Old<'a>,
        catalog: &'a Catalog,
        options: &'a LockOptions,
        cuda: bool,
    ) -> Self {
        let (cache, offline) = (options.cache.as_path(), options.offline);
        Self {
            sources: Sources {
                needs,
                old,
                catalog,
                cache,
                offline,
                cuda,
            },
            needs,
            direct,
            contents: contents::Reader {
                catalog,
                cache,
                offline,
            },
        }
    }
}

impl Selector<'_> {
    /// Answers the question, to which constraints may be added; leaves in `resolver` what the answer needs.
    pub async fn select(
        &self,
        resolver: &mut Resolver<'_>,
        question: &mut Question,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Selection, ResolveError> {
        let settings = resolver.settings.clone();
        let python = settings.target.python;
        let mut selection = self.for_numpy(resolver, question, progress).await?;
        let mut tried: BTreeSet<String> = BTreeSet::new();
        let mut added: Vec<MissingModule> = Vec::new();
        for _ in 0..MOST_TIMES {
            let mut missing = self.missing(&selection, python, progress).await;
            missing.retain(|missing| tried.insert(missing.requirement.clone()));
            if missing.is_empty() {
                break;
            }
            // All at once, and one after another where they do not go together.
            let mut left = vec![&missing[..]];
            while let Some(some) = left.pop() {
                let mut more = question.clone();
                let lines = some.iter().map(|missing| missing.requirement.clone());
                more.requirements.extend(lines);
                // What is added changes nothing else, and uv has nothing to look for.
                let mut held = more.clone();
                held.constraints.extend(others(&selection.pins, some));
                let answered = std::mem::replace(&mut resolver.settings, settings.clone());
                match self.for_numpy(resolver, &mut held, progress).await {
                    Ok(with) => {
                        (selection, *question) = (with, more);
                        added.extend(some.iter().cloned());
                    }
                    Err(ResolveError::Unsatisfiable { .. }) => {
                        resolver.settings = answered;
                        left.extend(some.chunks(1).filter(|one| one.len() < some.len()));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        for missing in added {
            self.attribute(&mut selection, missing);
        }
        question
            .constraints
            .extend(selection.bounds.iter().cloned());
        Ok(selection)
    }

    /// Returns what chosen distributions import and none of them brings.
    async fn missing(
        &self,
        selection: &Selection,
        python: PythonVersion,
        progress: &mut dyn FnMut(&str),
    ) -> Vec<MissingModule> {
        let sources = selection.plain.values().map(|sdist| &sdist.file);
        let files = selection.wheels.iter().chain(sources);
        let contents = self.contents.contents(files, &selection.files, progress);
        let catalog = self.contents.catalog;
        let known = |module: &str| catalog.requirement_of(module, python);
        missing_modules::missing(&contents.await, &selection.pins, known)
    }

    /// Says of what was added for its importers by whom it is required.
    fn attribute(&self, selection: &mut Selection, missing: MissingModule) {
        let name = missing.distribution();
        let MissingModule {
            module,
            requirement,
            by,
        } = missing;
        let importers: Vec<String> = by.into_iter().collect();
        selection.notes.push(format!(
            "{requirement} is taken: {} imports {module} and does not require it",
            importers.join(", ")
        ));
        let named = self.needs.iter().any(|need| need.distribution == name);
        let Some(pin) = selection.pins.get_mut(&name).filter(|_| !named) else {
            return;
        };
        pin.named = false;
        pin.via.extend(importers);
        pin.via.sort();
        pin.via.dedup();
        let wheel = selection.wheels.iter_mut().find(|w| w.name == name);
        if let Some(wheel) = wheel {
            wheel.via = pin.locked_via();
        }
    }

    async fn for_numpy(
        &self,
        resolver: &mut Resolver<'_>,
        question: &mut Question,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Selection, ResolveError> {
        let before = resolver.settings.clone();
        let first = self.once(resolver, question, progress).await?;
        let old = self.built_for_numpy_1(resolver, &first, progress).await;
        if old.is_empty() {
            return Ok(first);
        }
        let settings = std::mem::replace(&mut resolver.settings, before);
        let mut bounded = question.clone();
        bounded.constraints.push("numpy<2".to_owned());
        match self.once(resolver, &bounded, progress).await {
            Ok(mut second) => {
                let numpy = second.pins.get("numpy").map(|pin| pin.version.to_string());
                second.notes.push(format!(
                    "numpy {} is taken, not {}: numpy 2 does not load what was built for numpy 1: {}",
                    numpy.unwrap_or_default(),
                    first.pins["numpy"].version,
                    old.join(", ")
                ));
                *question = bounded;
                Ok(second)
            }
            // Something asks for numpy 2.
            Err(ResolveError::Unsatisfiable { .. }) => {
                resolver.settings = settings;
                Ok(first)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the chosen wheels that the chosen numpy does not load, with their versions.
    async fn built_for_numpy_1(
        &self,
        resolver: &Resolver<'_>,
        selection: &Selection,
        progress: &mut dyn FnMut(&str),
    ) -> Vec<String> {
        let python = resolver.settings.target.python;
        let numpy = selection.pins.get("numpy");
        let Some(numpy) = numpy.filter(|pin| pin.version >= Version::new([2])) else {
            return Vec::new();
        };
        if (python.major, python.minor) > LAST_OF_NUMPY_1 {
            return Vec::new();
        }
        let wheels = selection.wheels.iter();
        let users: Vec<&PythonFile> = wheels.filter(|w| numpy.via.contains(&w.name)).collect();
        let compiled = users.into_iter().filter(|w| contents::has_objects(w));
        let contents = self.contents.contents(compiled, &selection.files, progress);
        let contents = contents.await;
        let version = |name: &str| selection.pins.get(name).map(|pin| &pin.version);
        system::for_numpy_1(&contents)
            .filter_map(|name| Some(format!("{name} {}", version(name)?)))
            .collect()
    }

    async fn once(
        &self,
        resolver: &mut Resolver<'_>,
        question: &Question,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Selection, ResolveError> {
        progress("resolving versions");
        let Resolved {
            pins,
            sdists: mut plain,
            bounds,
            notes,
        } = self.sources.resolve(resolver, question, progress).await?;
        plain.extend(self.direct.sdists(self.needs));
        if self.sources.offline {
            self.sources.old.only_known(self.needs, &pins)?;
        }
        progress(&format!("choosing files of {} distributions", pins.len()));
        let files = resolver.files(&pins).await?;
        let (wheels, sdists) = chosen(resolver, self.needs, &plain, self.direct, &pins, &files)?;
        Ok(Selection {
            pins,
            plain,
            files,
            wheels,
            sdists,
            bounds,
            notes,
        })
    }
}

/// Returns constraints that hold everything but what is added.
fn others(pins: &Pins, added: &[MissingModule]) -> Vec<String> {
    let added: BTreeSet<String> = added.iter().map(MissingModule::distribution).collect();
    let others = pins.iter().filter(|(name, _)| !added.contains(*name));
    others
        .map(|(name, pin)| format!("{name}=={}", pin.version))
        .collect()
}

pub(super) type Sdists = BTreeMap<String, PythonFile>;

/// Returns the wheel of each distribution, and the sdists of those that are compiled.
fn chosen(
    resolver: &Resolver<'_>,
    needs: &[Need<'_>],
    plain: &sdist::Sdists,
    direct: &DirectFiles,
    pins: &Pins,
    files: &answer::Files,
) -> Result<(Vec<PythonFile>, Sdists), ResolveError> {
    let mut wheels = Vec::new();
    let mut sdists = Sdists::new();
    for (name, pin) in pins {
        match needs
            .iter()
            .find(|n| n.distribution == *name)
            .map(|n| &n.source)
        {
            _ if plain.contains_key(name) => {}
            Some(PackageSource::Git { .. }) => {}
            Some(PackageSource::Sdist) => {
                let sdist = match direct.get(name) {
                    Some(named) => named.file.clone(),
                    None => files.sdist(name)?,
                };
                sdists.insert(name.clone(), sdist);
            }
            _ => {
                let mut wheel = match direct.get(name) {
                    Some(named) => named.file.clone(),
                    None => files.wheel(name, &resolver.settings.target)?,
                };
                wheel.via = pin.locked_via();
                wheels.push(wheel);
            }
        }
    }
    Ok((wheels, sdists))
}
