//! Chooses versions, and of each distribution the file that is installed or built.
//!
//! In: the stack's question. Out: a [`Selection`]. What was built for numpy 1 is loaded by no numpy 2, and few
//! distributions of those years say so: where such a one is chosen, numpy is held below 2.

use super::answer::{self, Pins};
use super::direct::DirectFiles;
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
use std::collections::BTreeMap;

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
    pub objects: system::Reader<'a>,
}

impl<'a> Selector<'a> {
    pub fn new(
        needs: &'a [Need<'a>],
        direct: &'a DirectFiles,
        old: &'a Old<'a>,
        catalog: &'a Catalog,
        options: &'a LockOptions,
    ) -> Self {
        let (cache, offline) = (options.cache.as_path(), options.offline);
        Self {
            sources: Sources {
                needs,
                old,
                catalog,
                cache,
                offline,
            },
            needs,
            direct,
            objects: system::Reader {
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
        let selection = self.for_numpy(resolver, question, progress).await?;
        question
            .constraints
            .extend(selection.bounds.iter().cloned());
        Ok(selection)
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
        let files = &selection.files;
        let old = self.objects.for_numpy_1(&users, files, progress).await;
        let version = |name: &str| selection.pins.get(name).map(|pin| &pin.version);
        old.into_iter()
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
