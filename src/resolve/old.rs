//! Decides what a new lock keeps of the old one.
//!
//! In: the old lock, the current inputs, and what may be upgraded. Out: versions that the resolver prefers,
//! and parts that are kept unchanged. Nothing that has changed is kept.

use super::answer::Pins;
use super::requirements::Need;
use super::{LockOptions, ResolveError, Upgrade};
use stackforge_stack::lock::{FORMAT, Lock, PlatformLock, SourceLock};
use stackforge_stack::spec::Stack;
use stackforge_types::Digest;
use stackforge_types::wheel::normalized;
use std::collections::{BTreeMap, BTreeSet};

/// The parts of the old lock to keep.
pub(super) struct Old<'a> {
    pub platform: Option<&'a PlatformLock>,
    /// The old section, if no input of the OS packages has changed.
    pub os_platform: Option<&'a PlatformLock>,
    /// Names of distributions and libraries that may be upgraded.
    released: BTreeSet<String>,
    all_released: bool,
}

impl<'a> Old<'a> {
    pub fn new(
        old: Option<&'a Lock>,
        stack: &Stack,
        inputs: &BTreeMap<String, String>,
        options: &LockOptions,
    ) -> Self {
        let platform = old
            .filter(|o| o.version == FORMAT)
            .and_then(|o| nearest(o, stack));
        let changes = old.map(|o| o.stale(stack, inputs)).unwrap_or_default();
        let mut released: BTreeSet<String> = changes
            .iter()
            .filter_map(|c| c.key.split_once('.'))
            .filter(|(kind, _)| ["libraries", "recipes"].contains(kind))
            .map(|(_, name)| name.to_owned())
            .collect();
        if let Upgrade::Libraries(names) = &options.upgrade {
            released.extend(names.iter().cloned());
        }
        let of_os = |key: &str| {
            let key = key.split('.').next().unwrap_or(key);
            !["libraries", "overrides", "indexes", "tools", "rules", "gpu"].contains(&key)
        };
        Self {
            platform,
            os_platform: platform
                .filter(|_| !options.upgrade_os && !changes.iter().any(|c| of_os(&c.key))),
            released,
            all_released: options.upgrade == Upgrade::All
                || changes.iter().any(|c| c.key == "indexes"),
        }
    }

    /// Returns (name, version) of everything that may stay.
    fn versions(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        versions(self.platform.filter(|_| !self.all_released))
    }

    /// Returns the names of what was compiled and may stay at its version.
    pub fn sources(&self) -> impl Iterator<Item = &'a str> {
        let platform = self.platform.filter(|_| !self.all_released);
        let builds = platform.into_iter().flat_map(|p| &p.builds);
        builds
            .map(|build| build.name.as_str())
            .filter(|name| !self.released.contains(*name))
    }

    /// Whether a library is in the old lock and may stay at its version.
    pub fn has(&self, need: &Need<'_>) -> bool {
        let mut versions = self.versions();
        let known = versions.any(|(name, _)| normalized(name) == need.distribution);
        known && !self.released.contains(need.name())
    }

    pub fn preferences(&self, needs: &[Need<'_>]) -> Vec<String> {
        let released: BTreeSet<&str> = needs
            .iter()
            .filter(|n| self.released.contains(n.name()))
            .map(|n| n.distribution.as_str())
            .collect();
        self.versions()
            .map(|(name, version)| (distribution(needs, name), version))
            .filter(|(name, _)| !released.contains(name.as_str()))
            .map(|(name, version)| format!("{name}=={version}"))
            .collect()
    }

    /// Returns the distributions that kept the old lock's version, and were not to be upgraded.
    pub fn kept_versions(&self, needs: &[Need<'_>], pins: &Pins) -> BTreeSet<String> {
        self.versions()
            .filter(|(name, _)| !self.released.contains(*name))
            .map(|(name, version)| (distribution(needs, name), version))
            .filter(|(name, version)| is_at(pins, name, version))
            .map(|(name, _)| name)
            .collect()
    }

    /// Fails if a version is not certain. Offline, uv takes the newest version in its cache, so only versions in
    /// the old lock or pinned by the stack are certain.
    pub fn only_known(&self, needs: &[Need<'_>], pins: &Pins) -> Result<(), ResolveError> {
        let known: BTreeSet<String> = versions(self.platform)
            .map(|(name, version)| (distribution(needs, name), version))
            .filter(|(name, version)| is_at(pins, name, version))
            .map(|(name, _)| name)
            .collect();
        let pinned = |name: &str| {
            let need = needs.iter().find(|n| n.distribution == name);
            need.is_some_and(|n| n.exact().is_some() || n.pinned.is_some())
        };
        let names: Vec<&str> = pins
            .keys()
            .map(String::as_str)
            .filter(|n| !known.contains(*n) && !pinned(n))
            .collect();
        match names.as_slice() {
            [] => Ok(()),
            names => Err(ResolveError::OfflineChoice(names.join("`, `"))),
        }
    }

    /// Keeps the old lock's size of each file, so that locking again gives the same lock: an index states sizes
    /// in some answers only. An upgrade may add a size.
    pub fn keep_sizes(&self, made: &mut PlatformLock) {
        let mut old = self.platform.cloned();
        let known: BTreeMap<&Digest, u64> = old
            .iter_mut()
            .flat_map(files)
            .map(|(sha256, size)| (sha256, *size))
            .collect();
        for (sha256, size) in files(made) {
            match known.get(sha256) {
                Some(0) if self.all_released => {}
                Some(known) => *size = *known,
                None => {}
            }
        }
    }

    pub fn unchanged<'n>(&self, needs: &[Need<'n>]) -> BTreeSet<&'n str> {
        let same = |n: &&Need<'n>| !self.all_released && !self.released.contains(n.name());
        needs.iter().filter(same).map(Need::name).collect()
    }
}

/// Returns the stack's section, else one with wheels that fit: versions stay when the base changes.
fn nearest<'a>(old: &'a Lock, stack: &Stack) -> Option<&'a PlatformLock> {
    let fits =
        |p: &&PlatformLock| p.platform == stack.platform.value && p.python == stack.python.value;
    old.section(stack)
        .or_else(|| old.platforms.iter().find(fits))
}

/// Returns digest and size of every file of a package index.
fn files(platform: &mut PlatformLock) -> impl Iterator<Item = (&Digest, &mut u64)> {
    let built = platform.builds.iter_mut().flat_map(|build| {
        let source = match &mut build.source {
            SourceLock::Sdist { sha256, size, .. } => Some((&*sha256, size)),
            SourceLock::Git { .. } => None,
        };
        let requires = build.requires.iter_mut();
        source
            .into_iter()
            .chain(requires.map(|file| (&file.sha256, &mut file.size)))
    });
    let wheels = platform.wheels.iter_mut();
    let wheels = wheels.map(|file| (&file.sha256, &mut file.size));
    wheels.chain(built)
}

fn versions<'a>(
    platform: Option<&'a PlatformLock>,
) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    platform.into_iter().flat_map(|p| {
        let wheels = p
            .wheels
            .iter()
            .map(|w| (w.name.as_str(), w.version.as_str()));
        wheels.chain(
            p.builds
                .iter()
                .map(|b| (b.name.as_str(), b.version.as_str())),
        )
    })
}

fn is_at(pins: &Pins, name: &str, version: &str) -> bool {
    pins.get(name)
        .is_some_and(|p| p.version.to_string() == version)
}

/// Returns the distribution's name: a compiled library is locked by the library's name.
fn distribution(needs: &[Need<'_>], name: &str) -> String {
    let need = needs.iter().find(|n| n.name() == name);
    need.map_or_else(|| normalized(name), |n| n.distribution.clone())
}

/// Returns the digest of a base's image in the old lock.
pub(super) fn old_digest(old: Option<&PlatformLock>, reference: &str) -> Option<Digest> {
    let base = &old?.base;
    let images = [&base.runtime, &base.devel].into_iter().flatten();
    images
        .filter(|i| i.reference == reference)
        .find_map(|i| i.digest.clone())
}
