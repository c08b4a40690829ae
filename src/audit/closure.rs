//! Finds the provider of each library that an object needs, in ld.so(8)'s order.
//!
//! In: a [`World`]: the objects, their system, the catalog. Out: a [`Provider`] for every NEEDED entry. The
//! loader looks among the libraries that are already loaded (by SONAME), then in DT_RPATH of the object and
//! of those that load it (unless there is a DT_RUNPATH), LD_LIBRARY_PATH of an image's configuration,
//! DT_RUNPATH, the configured directories, the default ones. The catalog knows which libraries Python
//! packages load before.

use super::object::Item;
use super::tree::{normal, split};
use super::world::{Found, World};
use stackforge_binary::elf::{Machine, SearchPath};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provider {
    /// The object with this index in the tree.
    Object(usize, Through),
    /// The file of the system at this path.
    System(String),
    /// The base, whose files are not known.
    Base,
    /// The driver of the machine that runs the object.
    Host,
    Missing,
}

/// How an object of the tree is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Through {
    Rpath,
    /// DT_RPATH of this object, which loads the one that needs the library.
    LoadersRpath(usize),
    Runpath,
    /// LD_LIBRARY_PATH of the image's configuration.
    LibraryPath,
    /// A directory that the system's loader searches.
    Directory,
    /// Already loaded by this object, which loads the one that needs the library.
    Loaded(usize),
    /// Already loaded by this package when it is imported.
    Preload(String),
    /// On no known search path: something has to load the object by its path first.
    Unsearched,
}

/// Providers of each object, in the order of its NEEDED entries.
pub struct Closure(pub Vec<Vec<Provider>>);

impl Found {
    fn through(self, through: Through) -> Provider {
        match self {
            Self::Object(index) => Provider::Object(index, through),
            Self::System(path) => Provider::System(path),
        }
    }
}

fn preload(world: &World<'_>, soname: &str, machine: Machine) -> Option<Provider> {
    let loads = |index: &usize| {
        let item = &world.items[*index];
        let directory = split(&item.path).0;
        let mut preloads = world.loader().preloads.iter();
        let preload = preloads.find(|p| p.covers(directory))?;
        let through = Through::Preload(preload.by.clone());
        (item.object.machine == machine).then_some(Provider::Object(*index, through))
    };
    world.named(soname).iter().find_map(loads)
}

impl Closure {
    pub fn of(world: &World<'_>) -> Self {
        let alone = |item: &Item| {
            let directories = world.directories(item.object.machine);
            let needed = item.object.needed.iter();
            needed
                .map(|name| by_itself(world, item, name, &directories))
                .collect()
        };
        let mut closure = Self(world.items.iter().map(alone).collect());
        // Each round may find libraries that load further objects; chains of loaders are short.
        while closure.inherit(world) {}
        for (index, item) in world.items.iter().enumerate() {
            for (n, name) in item.object.needed.iter().enumerate() {
                if closure.0[index][n] == Provider::Missing {
                    closure.0[index][n] = implicit_provider(world, item, name);
                }
            }
        }
        closure
    }

    /// Looks for missing libraries through the objects that load the object. Returns whether any was found.
    fn inherit(&mut self, world: &World<'_>) -> bool {
        let mut loaders: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.0.len()];
        for (index, providers) in self.0.iter().enumerate() {
            for provider in providers {
                if let Provider::Object(provided, _) = provider {
                    loaders[*provided].insert(index);
                }
            }
        }
        let mut found = Vec::new();
        for (index, item) in world.items.iter().enumerate() {
            if !self.0[index].contains(&Provider::Missing) {
                continue;
            }
            let above = ancestors(&loaders, index);
            for (n, name) in item.object.needed.iter().enumerate() {
                if self.0[index][n] == Provider::Missing
                    && let Some(provider) = self.through_loaders(world, item, name, &above)
                {
                    found.push((index, n, provider));
                }
            }
        }
        let any = !found.is_empty();
        for (index, n, provider) in found {
            self.0[index][n] = provider;
        }
        any
    }

    fn through_loaders(
        &self,
        world: &World<'_>,
        item: &Item,
        name: &str,
        above: &[usize],
    ) -> Option<Provider> {
        let machine = item.object.machine;
        for loader in above {
            for provider in &self.0[*loader] {
                if let Provider::Object(index, _) = provider
                    && world.items[*index].soname() == name
                {
                    return Some(Provider::Object(*index, Through::Loaded(*loader)));
                }
            }
        }
        if item.object.runpath.is_some() {
            return None;
        }
        above.iter().find_map(|loader| {
            let loading = &world.items[*loader];
            let directories = rpath(world, loading)?;
            let found = world.search(directories.into_iter(), name, machine)?;
            Some(found.through(Through::LoadersRpath(*loader)))
        })
    }
}

/// Returns all objects that load an object, the nearest first.
fn ancestors(loaders: &[BTreeSet<usize>], of: usize) -> Vec<usize> {
    let mut seen = BTreeSet::from([of]);
    let mut above: Vec<usize> = Vec::new();
    let mut next = 0;
    let mut current = of;
    loop {
        above.extend(loaders[current].iter().filter(|l| seen.insert(**l)));
        let Some(further) = above.get(next) else {
            return above;
        };
        current = *further;
        next += 1;
    }
}

/// Returns DT_RPATH, which is ignored if there is a DT_RUNPATH.
fn rpath(world: &World<'_>, item: &Item) -> Option<Vec<String>> {
    let object = &item.object;
    let path = object.rpath.as_ref().filter(|_| object.runpath.is_none())?;
    Some(resolved(world, item, path))
}

fn resolved(world: &World<'_>, item: &Item, path: &SearchPath) -> Vec<String> {
    let origin = world.origin(item);
    let machine = item.object.machine.name();
    let resolved = path.resolved(&origin).filter(|d| !d.is_empty());
    resolved.flat_map(|d| tokens(&d, machine)).collect()
}

/// Replaces the loader's tokens in a directory. `$LIB` was fixed when the loader was built: Debian's
/// multiarch directory, or `lib64` elsewhere.
fn tokens(directory: &str, machine: &str) -> Vec<String> {
    let replaced = |token: &str, by: &str, d: &str| {
        d.replace(&format!("${{{token}}}"), by)
            .replace(&format!("${token}"), by)
    };
    let directory = replaced("PLATFORM", machine, directory);
    let multiarch = format!("lib/{machine}-linux-gnu");
    let mut all: Vec<String> = [multiarch.as_str(), "lib64"]
        .map(|lib| replaced("LIB", lib, &directory))
        .into();
    all.dedup();
    all
}

fn by_itself(world: &World<'_>, item: &Item, name: &str, directories: &[String]) -> Provider {
    let machine = item.object.machine;
    if name.contains('/') {
        let found = world.at(&normal(name), machine);
        return found.map_or(Provider::Missing, |f| f.through(Through::Directory));
    }
    if let Some(rpath) = rpath(world, item)
        && let Some(found) = world.search(rpath.into_iter(), name, machine)
    {
        return found.through(Through::Rpath);
    }
    let library_path = world.system.library_path.iter().cloned();
    if let Some(found) = world.search(library_path, name, machine) {
        return found.through(Through::LibraryPath);
    }
    if let Some(runpath) = &item.object.runpath {
        let runpath = resolved(world, item, runpath);
        if let Some(found) = world.search(runpath.into_iter(), name, machine) {
            return found.through(Through::Runpath);
        }
    }
    if item.object.no_default_directories {
        return Provider::Missing;
    }
    match world.search(directories.iter().cloned(), name, machine) {
        Some(found) => found.through(Through::Directory),
        None => Provider::Missing,
    }
}

/// Returns the provider of a library that no search finds: loaded before, or provided from outside of the
/// tree. A package's copy of one of the base's libraries serves only that package.
fn implicit_provider(world: &World<'_>, item: &Item, name: &str) -> Provider {
    let machine = item.object.machine;
    let base = !world.system.is_known() && world.loader().base.has(name);
    if let Some(provider) = preload(world, name, machine) {
        provider
    } else if world.loader().host.has(name) {
        Provider::Host
    } else if base {
        Provider::Base
    } else if let Some(index) = world.unsearched(item, name) {
        Provider::Object(index, Through::Unsearched)
    } else {
        Provider::Missing
    }
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn tokens_of_the_loader_are_replaced() {
        let both = ["/o/lib/x86_64-linux-gnu/x86_64", "/o/lib64/x86_64"];
        assert_eq!(tokens("/o/${LIB}/$PLATFORM", "x86_64"), both);
        assert_eq!(tokens("/o/$LIB/$PLATFORM", "x86_64"), both);
        assert_eq!(tokens("/o/lib", "aarch64"), ["/o/lib"]);
    }
}
