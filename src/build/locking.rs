//! Locks a project: resolves each section of its stack and writes the lock file if it changed.
//!
//! In: a [`Project`], the store, the user's configuration. Out: a [`NewLock`], the lock beside the one that it replaces.
//! Never: writes a lock that lacks a section, or a file whose text is the same.

use stackforge_distribute::pull::{self, PullError};
use stackforge_engine::docker::Docker;
use stackforge_image::store::{Store, StoreError, save};
use stackforge_plan::project::{Project, ProjectError};
use stackforge_resolve::{Bases, LockOptions, Locked, OsPackagesError, ResolveError, Upgrade};
use stackforge_stack::config::Config;
use stackforge_stack::diag::{Diagnostic, Explained as _, Report, Source, codes};
use stackforge_stack::lock::{Lock, PinnedImage, PlatformLock};
use stackforge_stack::rules::Machine;
use stackforge_stack::spec::Stack;
use stackforge_stack::target::Target;
use stackforge_transfer::registry::Reference;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

/// Why there is no new lock.
#[derive(Debug, thiserror::Error)]
pub enum LockingError {
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A section cannot be resolved; findings stand at the lines of its stack.
    #[error("{error}")]
    Section {
        error: ResolveError,
        stack: Box<Stack>,
    },
    #[error("{0} has nothing to lock")]
    NothingToLock(String),
    #[error("{0}")]
    Unserializable(String),
    #[error("write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl LockingError {
    /// Returns the exit status.
    pub fn exit(&self) -> u8 {
        match self {
            Self::Project(e) => e.exit(),
            Self::Store(e) => e.exit(),
            Self::Section { error, stack } => error.exit(stack),
            Self::NothingToLock(_) => codes::LOCK_MISSING.exit(),
            Self::Unserializable(_) => codes::LOCK_INVALID.exit(),
            Self::Write { .. } => codes::STORE_IO.exit(),
        }
    }

    /// Returns the findings, at the lines of the stack that cause them.
    pub fn report(self) -> Report {
        let code = match self {
            Self::Project(e) => return e.report(),
            Self::Section { error, stack } => return error.report(&stack),
            Self::Store(e) => return Report::new(Source::default(), vec![e.diagnostic()]),
            Self::NothingToLock(_) => codes::LOCK_MISSING,
            Self::Unserializable(_) => codes::LOCK_INVALID,
            Self::Write { .. } => codes::STORE_IO,
        };
        let finding = Diagnostic::error(code, self.to_string());
        Report::new(Source::default(), vec![finding])
    }
}

/// What a project is locked with.
#[derive(Clone, Copy)]
pub struct Locking<'a> {
    pub project: &'a Project,
    pub store: &'a Store,
    pub config: &'a Config,
}

/// A lock that was just made.
#[derive(Debug, Clone)]
pub struct NewLock {
    /// The one that it replaces.
    pub old: Option<Lock>,
    pub lock: Lock,
    /// Whether its text differs from the file's before.
    pub changed: bool,
    /// What somebody who reads the stack would not expect, a sentence each.
    pub notes: Vec<String>,
}

impl Locking<'_> {
    /// Returns how a project is locked where nobody says otherwise: what is locked stays.
    pub fn options(&self, offline: bool) -> LockOptions {
        LockOptions {
            upgrade: Upgrade::None,
            upgrade_os: false,
            pull: false,
            cache: self.store.root().to_owned(),
            offline,
            debian_mirrors: self.config.debian.clone(),
        }
    }

    /// Locks each section and writes the file if it changes. `on_line` is called with what happens.
    ///
    /// # Errors
    /// If a section cannot be resolved or the file cannot be written. The file stays as it was then.
    pub async fn lock(
        &self,
        old: Option<Lock>,
        options: &LockOptions,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<NewLock, LockingError> {
        let sections = self.project.sections()?;
        self.store.prepare()?;
        let mut locks = Vec::new();
        let mut notes: Vec<String> = Vec::new();
        for section in &sections {
            let stack = section.stack();
            if sections.len() > 1 {
                on_line(&format!("{}:", place(stack)));
            }
            let locked = self.section(stack, old.as_ref(), options, on_line).await?;
            locks.push(locked.lock);
            for note in locked.notes {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        let nothing = || LockingError::NothingToLock(self.project.name().to_string());
        let lock = Lock::join(locks).ok_or_else(nothing)?;
        Ok(NewLock {
            changed: self.write(&lock)?,
            old,
            lock,
            notes,
        })
    }

    /// Writes the file, and returns whether it changed.
    fn write(&self, lock: &Lock) -> Result<bool, LockingError> {
        let text = lock.to_toml();
        let text = text.map_err(|e| LockingError::Unserializable(e.to_string()))?;
        let path = &self.project.lock_path;
        if std::fs::read_to_string(path).ok().as_ref() == Some(&text) {
            return Ok(false);
        }
        let written = save(path, text.as_bytes());
        written.map_err(|source| LockingError::Write {
            path: path.clone(),
            source,
        })?;
        Ok(true)
    }

    async fn section(
        &self,
        stack: &Stack,
        old: Option<&Lock>,
        options: &LockOptions,
        mut on_line: &mut dyn FnMut(&str),
    ) -> Result<Locked, LockingError> {
        let catalog = &self.project.catalog;
        let target = Target::of(stack, catalog).map_err(ProjectError::Refused)?;
        let digest_of = async |reference: &str| {
            let docker = Docker::connect(None).await.ok()?;
            let reference = self.config.image(reference);
            docker.registry_digest(&reference).await.ok()
        };
        let root_of = async |base: &PinnedImage| {
            let fetched = self.base_root(stack, base).await;
            fetched.map_err(|e| OsPackagesError::Base(Box::new(e)).into())
        };
        let bases = Bases { digest_of, root_of };
        let locked =
            stackforge_resolve::lock(stack, catalog, &target, old, options, bases, &mut on_line);
        locked.await.map_err(|error| LockingError::Section {
            error,
            stack: Box::new(stack.clone()),
        })
    }

    /// Fetches a registry's base and returns its root file system in the store.
    async fn base_root(&self, stack: &Stack, base: &PinnedImage) -> Result<PathBuf, PullError> {
        let name = self.config.image(&base.reference);
        let name = match &base.digest {
            Some(digest) => format!("{name}@{digest}"),
            None => name,
        };
        let reference: Reference = name.parse()?;
        let (store, config) = (self.store, self.config);
        let image = pull::pull(&reference, stack.platform.value, true, store, config, None).await?;
        tokio::task::block_in_place(|| pull::tree(&image, store))
    }
}

fn place(section: &Stack) -> String {
    format!(
        "{} on {}, Python {}",
        section.platform.value, section.base.value, section.python.value
    )
}

impl NewLock {
    /// Judges a project by all rules with this lock, and returns the warnings.
    ///
    /// # Errors
    /// If the stack cannot work with what was locked.
    pub fn judged(&self, project: &Project) -> Result<Vec<Diagnostic>, ProjectError> {
        let Some(stack) = project.file.single() else {
            project.judged(Some(&self.lock), &Machine::default())?;
            return Ok(Vec::new());
        };
        let checked = project.check(stack, self.lock.section(stack), Machine::default())?;
        project.admitted(checked.findings)
    }

    /// Returns what changed, as in `torch 2.12.1 → 2.13.0`. Sections of one lock mostly change alike: each change
    /// stands once.
    pub fn differences(&self) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for section in &self.lock.platforms {
            let old = self.old.as_ref().and_then(|old| before(old, section));
            for line in of_section(old, section) {
                if !out.contains(&line) {
                    out.push(line);
                }
            }
        }
        out
    }

    /// Returns packages that wheels need and the stack does not name, with the reason.
    pub fn os_libraries(&self) -> BTreeMap<&str, String> {
        let packages = self.lock.platforms.iter().flat_map(|p| &p.packages);
        packages
            .filter_map(|p| Some((p.name.as_str(), p.why()?)))
            .collect()
    }
}

/// Returns the section of the old lock that a new one replaces.
fn before<'a>(old: &'a Lock, new: &PlatformLock) -> Option<&'a PlatformLock> {
    let of_platform = || old.platforms.iter().filter(|p| p.platform == new.platform);
    let same = |p: &&PlatformLock| (&p.base.name, p.python) == (&new.base.name, new.python);
    of_platform().find(same).or_else(|| of_platform().next())
}

fn of_section(old: Option<&PlatformLock>, new: &PlatformLock) -> Vec<String> {
    let Some(old) = old else { return Vec::new() };
    let versions = |p: &PlatformLock| -> BTreeMap<String, String> {
        let wheels = p.wheels.iter().map(|w| (w.name.clone(), w.version.clone()));
        let builds = p.builds.iter().map(|b| (b.name.clone(), b.version.clone()));
        wheels.chain(builds).collect()
    };
    let (before, now) = (versions(old), versions(new));
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    names
        .into_iter()
        .filter_map(|n| match (before.get(n), now.get(n)) {
            (Some(a), Some(b)) if a != b => Some(format!("{n} {a} → {b}")),
            (None, Some(b)) => Some(format!("{n} {b} added")),
            (Some(a), None) => Some(format!("{n} {a} removed")),
            _ => None,
        })
        .collect()
}
