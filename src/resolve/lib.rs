//! Locks a stack: exact versions, files, digests, revisions.
//!
//! In: a stack with its target, the catalog, the old lock. Out: a [`Lock`] that leaves nothing open, or
//! findings at the stack's lines. uv resolves Python packages and Debian's indices are read here; this
//! module decides what to ask, and refuses choices that uv makes silently. No package's code runs, and no
//! host's name enters a lock.

mod answer;
mod builds;
mod contents;
mod direct;
mod error;
mod git;
mod indexes;
mod inputs;
mod loosen;
mod missing_modules;
mod offer;
mod offers;
mod old;
mod os;
mod package;
mod policy;
mod project;
mod python;
mod reach;
mod redact;
mod requirements;
mod sdist;
mod select;
mod settings;
pub mod simple;
mod source;
mod system;
mod uv;
mod wheel_or_source;

use builds::{BuildFacts, Toolkit, cuda_of, ordered};
use indexes::{Indexes, Origin};
use old::{Old, old_digest};
use policy::StackResolution;
use project::{Question, UvSettings};
use python::Resolver;
use requirements::{Need, needs};
use select::{Selection, Selector};
use stackforge_stack::catalog::Catalog;
use stackforge_stack::lock::{BaseLock, FORMAT, Lock, PinnedImage, PlatformLock, PythonFile};
use stackforge_stack::rules::Choice;
use stackforge_stack::spec::Stack;
use stackforge_stack::target::{Base, Target};
use stackforge_types::Digest;
use stackforge_types::wheel::{WheelTarget, normalized};
use std::collections::BTreeMap;
use std::path::PathBuf;
use system::Taken;
use uv::Uv;

pub use error::{OsPackagesError, ResolveError};
pub use indexes::IndexAddress;
pub use indexes::index_settings;
pub use inputs::inputs;
pub use loosen::{Loosened, loosened};
pub use package::{Package, PackageError, Pin, Published, Unread, locked_files, package};
pub use reach::{index_address, index_answers};

/// What may get a newer version than in the old lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upgrade {
    /// Only what changes of the stack require.
    None,
    All,
    /// These libraries of the stack.
    Libraries(Vec<String>),
}

#[derive(Debug, Clone)]
pub struct LockOptions {
    pub upgrade: Upgrade,
    /// Whether to choose OS packages anew.
    pub upgrade_os: bool,
    /// Whether to lock, with digests, the OS packages that a registry's base lacks. This fetches the base.
    pub pull: bool,
    /// Root of the store, which keeps programs and indices.
    pub cache: PathBuf,
    pub offline: bool,
    /// Mirrors of Debian's archives; if empty, the host's own.
    pub debian_mirrors: Vec<String>,
}

/// Functions that ask registries about bases.
pub struct Bases<D, R> {
    /// Returns the digest of a reference, if its registry answers.
    pub digest_of: D,
    /// Fetches an image and returns its root file system.
    pub root_of: R,
}

/// A lock, and what it says otherwise than somebody who reads the stack would expect, a sentence each.
#[derive(Debug)]
pub struct Locked {
    pub lock: Lock,
    pub notes: Vec<String>,
}

/// Locks a stack.
pub async fn lock<D, R>(
    stack: &Stack,
    catalog: &Catalog,
    target: &Target<'_>,
    old: Option<&Lock>,
    options: &LockOptions,
    bases: Bases<D, R>,
    progress: &mut dyn FnMut(&str),
) -> Result<Locked, ResolveError>
where
    D: AsyncFn(&str) -> Option<Digest>,
    R: AsyncFn(&PinnedImage) -> Result<PathBuf, ResolveError>,
{
    let inputs = inputs(stack, catalog, target);
    let old = Old::new(old, stack, &inputs, options);
    let workplace = Workplace::of(stack, catalog, options, progress).await?;
    let stubs = workplace.stubs();
    let mut resolver = workplace.resolver(stack, target, options.offline);
    let mut needs = needs(stack, target);
    let choice = Choice::of(stack, target, catalog);
    wheel_or_source::decide(&mut needs, &resolver, &choice).await?;
    let reader = direct::Reader {
        stack,
        old: &old,
        cache: &options.cache,
        offline: options.offline,
    };
    let direct = reader.read(&needs, progress).await?;
    resolver.settings.add(&needs, &direct, &stubs)?;
    let mut question = Question {
        requirements: needs
            .iter()
            .map(Need::line)
            .chain(asked_by_app(stack, false))
            .collect(),
        preferences: old.preferences(&needs),
        constraints: stack
            .constraints
            .iter()
            .map(|c| c.value.clone())
            .chain(asked_by_app(stack, true))
            .collect(),
        ..Question::default()
    };
    // Of an unknown base nothing is known.
    let image = target.base.image();
    let on_cuda = image.is_none_or(|image| image.cuda.is_some());
    let selector = Selector::new(&needs, &direct, &old, catalog, options, on_cuda);
    let Selection {
        pins,
        plain,
        files,
        wheels,
        sdists,
        bounds,
        mut notes,
    } = selector
        .select(&mut resolver, &mut question, progress)
        .await?;
    let base_cuda = target.base.image().and_then(|i| i.cuda.clone());
    let resolution = StackResolution {
        needs: &needs,
        question: &question,
        pins: &pins,
        bounds: &bounds,
        kept: old.kept_versions(&needs, &pins),
        platform: stack.platform.value,
        torch_of_base: base_cuda.is_some() && wheel_or_source::is_for_one_system(&wheels, "torch"),
    };
    notes.extend(policy::check(&resolver, &resolution).await?);

    let cuda = cuda_of(&pins).or(base_cuda);
    let facts = BuildFacts {
        catalog,
        image: target.base.image(),
        cuda: cuda.as_deref(),
        pins: &pins,
        old: old.platform,
        unchanged: old.unchanged(&needs),
        offline: options.offline,
    };
    let mut builds = Vec::new();
    let mut devel = false;
    for need in ordered(&needs)? {
        progress(&format!("choosing what builds {}", need.name()));
        devel |= facts.toolkit(need)? == Toolkit::Base;
        let sdist = sdists.get(&need.distribution);
        builds.push(facts.lock(&resolver, need, sdist).await?);
    }
    for (name, sdist) in &plain {
        progress(&format!("choosing what builds {name}"));
        let library = stack.library(name);
        builds.push(facts.lock_sdist(&resolver, name, sdist, library).await?);
    }

    let project = stack.app.as_ref().and_then(|app| app.project.as_ref());
    let app_requires = match project {
        Some(project) => {
            progress("choosing what builds the app");
            facts.lock_project(&resolver, project).await?
        }
        None => Vec::new(),
    };

    let mut base = base_lock(stack, target, devel, old.platform, options, bases.digest_of).await;
    let by_file = options.pull || old.platform.is_some_and(os::was_read);
    let taken = if stack.os_libraries && (by_file || os::is_made_here(target)) {
        let contents = selector.contents.contents(&wheels, &files, progress).await;
        let mut taken = system::taken(&wheels, &builds, &pins, &contents, catalog);
        // A base with CUDA has its libraries.
        if on_cuda {
            taken.lacking.clear();
        }
        taken
    } else {
        Taken::nothing()
    };
    progress("choosing OS packages");
    let os = OsQuestion {
        stack,
        catalog,
        target,
        old: &old,
        base: &base,
        names: os::names(stack, target, &needs, &plain, catalog),
        taken: &taken,
        wheels: &wheels,
        options,
    };
    let packages = match os.kept_packages().await? {
        Some(kept) => kept,
        None => os.lock(&bases.root_of, progress).await?,
    };
    base.packages = packages.base;
    let mut lacking = taken.lacking.clone();
    lacking.extend(system::nowhere(&packages.nowhere, &catalog.loader));
    let mut section = PlatformLock {
        platform: stack.platform.value,
        python: stack.python.value,
        cuda,
        inputs: BTreeMap::new(),
        base,
        wheels,
        builds,
        tools: tools(catalog, &resolver.settings.target),
        packages: packages.runtime,
        builder_packages: packages.builder,
        lacking,
        app_requires,
    };
    old.keep_sizes(&mut section);
    let lock = Lock {
        version: FORMAT,
        stack: stack.stack.value.to_string(),
        inputs,
        platforms: vec![section],
    };
    Ok(Locked { lock, notes })
}

/// uv, and a directory for what it is asked about one stack.
struct Workplace {
    uv: Uv,
    indexes: Indexes,
    work: tempfile::TempDir,
}

impl Workplace {
    async fn of(
        stack: &Stack,
        catalog: &Catalog,
        options: &LockOptions,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, ResolveError> {
        let indexes = Indexes::of(stack);
        let own = indexes.origin == Origin::Stack;
        let uv = Uv::find(catalog, &options.cache, options.offline, own, progress).await?;
        let io = |source| ResolveError::Io {
            doing: "create a directory in",
            path: std::env::temp_dir(),
            source,
        };
        let work = tempfile::tempdir().map_err(io)?;
        Ok(Self { uv, indexes, work })
    }

    fn resolver(&self, stack: &Stack, target: &Target<'_>, offline: bool) -> Resolver<'_> {
        Resolver {
            uv: &self.uv,
            settings: uv_settings(stack, target, &self.indexes, offline),
            work: self.work.path(),
        }
    }

    /// Directory for sdists that have metadata alone.
    fn stubs(&self) -> PathBuf {
        self.work.path().join("stubs")
    }
}

/// Returns the requirements, or the constraints, of the stack's app.
fn asked_by_app(stack: &Stack, constraints: bool) -> impl Iterator<Item = String> {
    let asked = stack.app.iter().flat_map(|app| &app.asked);
    let asked = asked.filter(move |a| a.is_constraint == constraints);
    asked.map(|a| a.requirement.clone())
}

/// What decides which OS packages are locked.
struct OsQuestion<'a> {
    stack: &'a Stack,
    catalog: &'a Catalog,
    target: &'a Target<'a>,
    old: &'a Old<'a>,
    base: &'a BaseLock,
    names: os::Names,
    taken: &'a Taken,
    wheels: &'a [PythonFile],
    options: &'a LockOptions,
}

impl OsQuestion<'_> {
    /// Returns the old lock's packages, if its base is still the one that is locked, and they have what the wheels
    /// take from the system.
    async fn kept_packages(&self) -> Result<Option<os::OsPackages>, ResolveError> {
        let images = (&self.base.runtime, &self.base.devel);
        let same_base = |p: &&PlatformLock| (&p.base.runtime, &p.base.devel) == images;
        let Some(old) = self.old.os_platform.filter(same_base) else {
            return Ok(None);
        };
        let Some(kept) = os::kept_packages(old, &self.names, self.options.pull) else {
            return Ok(None);
        };
        let wanted = os::Wanted {
            stack: self.stack,
            target: self.target,
            old,
            names: &self.names,
            taken: self.taken,
            wheels: self.wheels,
            options: self.options,
        };
        let nowhere = os::fits_needs(&kept, &wanted).await?;
        Ok(nowhere.map(|nowhere| os::OsPackages { nowhere, ..kept }))
    }

    /// Chooses packages: by file, over what is installed in the base, where that is asked for or was done before.
    async fn lock<R>(
        &self,
        root_of: &R,
        progress: &mut dyn FnMut(&str),
    ) -> Result<os::OsPackages, ResolveError>
    where
        R: AsyncFn(&PinnedImage) -> Result<PathBuf, ResolveError>,
    {
        let (names, needs) = (&self.names, &self.taken.needs);
        // A lock by digest never goes back to a lock by names.
        let by_file = self.options.pull || self.old.platform.is_some_and(os::was_read);
        let packages = match &self.base.runtime {
            Some(runtime) if by_file && !self.options.offline => {
                progress("fetching the base, for what is installed in it");
                let root = root_of(runtime).await?;
                let devel = match &self.base.devel {
                    Some(devel) => Some(root_of(devel).await?),
                    None => None,
                };
                let devel = devel.as_deref();
                os::lock_over(self.stack, &root, devel, names, needs, self.options).await
            }
            _ => os::lock(self.stack, self.target, names, needs, self.options).await,
        };
        packages.map_err(|e| e.with_former_names(self.catalog))
    }
}

fn uv_settings(stack: &Stack, target: &Target<'_>, indexes: &Indexes, offline: bool) -> UvSettings {
    let own_index = |l: &stackforge_stack::spec::Library| {
        let recipe = target.recipes.get(l.name.value.as_str());
        let name = recipe.map_or(l.name.value.as_str(), |r| r.distribution.as_str());
        Some((normalized(name), l.index.clone()?))
    };
    UvSettings {
        target: WheelTarget {
            python: stack.python.value,
            platform: stack.platform.value,
            glibc: target.glibc(),
        },
        overrides: stack.overrides.iter().map(|o| o.value.clone()).collect(),
        sources: stack.libraries.iter().filter_map(own_index).collect(),
        metadata: Vec::new(),
        compiled: Vec::new(),
        sdists_too: false,
        stubs: None,
        index_options: indexes.options(),
        own_config: indexes.origin == Origin::Stack || indexes.config.is_some(),
        config: match indexes.origin {
            Origin::Stack => toml::Table::new(),
            _ => indexes.config.clone().unwrap_or_default(),
        },
        offline,
    }
}

/// Returns uv for the image's platform, since builder stages run it.
fn tools(catalog: &Catalog, target: &WheelTarget) -> Vec<PythonFile> {
    PythonFile::of_tool(catalog, "uv", target)
        .into_iter()
        .collect()
}

async fn base_lock(
    stack: &Stack,
    target: &Target<'_>,
    devel: bool,
    old: Option<&PlatformLock>,
    options: &LockOptions,
    digest_of: impl AsyncFn(&str) -> Option<Digest>,
) -> BaseLock {
    let mut lock = BaseLock {
        name: stack.base.value.clone(),
        runtime: None,
        devel: None,
        packages: Vec::new(),
    };
    match &target.base {
        Base::Raw { reference, digest } => {
            lock.runtime = Some(PinnedImage {
                reference: reference.clone(),
                digest: Some(digest.clone()),
            });
        }
        Base::Known(image) => {
            let Some(reference) = &image.reference else {
                return lock;
            };
            let pinned = async |name: &str, role: &str| {
                let known = [name, role]
                    .iter()
                    .find_map(|k| reference.digests.get(*k).cloned());
                let before = || old_digest(old, name).filter(|_| !options.upgrade_os);
                let digest = match known.or_else(before) {
                    Some(digest) => Some(digest),
                    None if options.offline => None,
                    None => digest_of(name).await,
                };
                Some(PinnedImage {
                    reference: name.to_owned(),
                    digest,
                })
            };
            lock.runtime = pinned(&reference.runtime, "runtime").await;
            if devel {
                lock.devel = pinned(&reference.devel, "devel").await;
            }
        }
    }
    lock
}
