//! Checks the search paths of objects: libraries on no search path, and directories of the machine that
//! built the objects.

use crate::closure::{Closure, Provider, Through};
use crate::finding::{Finding, list_names};
use crate::packages::package;
use crate::tree::split;
use crate::world::World;
use stackforge_stack::catalog::BuildDirectory;
use stackforge_stack::diag::{Diagnostic, codes};
use std::collections::{BTreeMap, BTreeSet};

/// Reports libraries that exist but are on no search path. A package may load its own by their path; another
/// package's have to be imported first.
pub fn unsearched(world: &World<'_>, closure: &Closure, findings: &mut Vec<Finding>) {
    let mut packages: BTreeMap<(&str, &str), [BTreeSet<&str>; 2]> = BTreeMap::new();
    for (item, providers) in world.items.iter().zip(&closure.0) {
        for provider in providers {
            if let Provider::Object(index, Through::Unsearched) = provider {
                let path = world.items[*index].path.as_str();
                let key = (package(&item.path), package(path));
                let [objects, found] = packages.entry(key).or_default();
                objects.insert(&item.path);
                found.insert(path);
            }
        }
    }
    for ((of, by), [objects, found]) in packages {
        let objects: Vec<&str> = objects.into_iter().collect();
        let found: Vec<&str> = found.into_iter().collect();
        let message = format!(
            "no search leads {} to {}: something has to load it before",
            list_names(&objects, 3),
            list_names(&found, 3)
        );
        let help = if found[0] == by {
            // The library is in no package, so the loader has to be told its directory.
            format!(
                "add `/{}` to LD_LIBRARY_PATH, or to `/etc/ld.so.conf` and run `ldconfig`",
                split(by).0
            )
        } else {
            format!("import {by} before {of}")
        };
        let diagnostic = if of == by {
            Diagnostic::note(codes::NEEDED_MISSING, message)
        } else {
            Diagnostic::warning(codes::NEEDED_MISSING, message).help(help)
        };
        findings.push(Finding::new(objects[0], diagnostic));
    }
}

/// Reports search paths that lead to directories of a build machine, by package.
pub fn left_over(world: &World<'_>, findings: &mut Vec<Finding>) {
    let mut packages: BTreeMap<(&str, BuildDirectory), Left<'_>> = BTreeMap::new();
    for item in world.items {
        let object = &item.object;
        let path = object.runpath.as_ref().or(object.rpath.as_ref());
        for directory in path.into_iter().flat_map(|p| p.directories()) {
            let Some(kind) = world.loader().build_directories.kind_of(directory) else {
                continue;
            };
            // The directory exists on this system, as that of a conda prefix in its own image.
            if world.has_directory(directory) {
                continue;
            }
            let left = packages.entry((package(&item.path), kind)).or_default();
            left.objects.insert(&item.path);
            left.directories.insert(directory);
        }
    }
    for ((_, kind), left) in packages {
        let objects: Vec<&str> = left.objects.into_iter().collect();
        let directories: Vec<&str> = left.directories.into_iter().collect();
        let why = match kind {
            BuildDirectory::Shared => "where anyone can put a library",
            BuildDirectory::Private => "left over from the machine that built it",
        };
        let message = format!(
            "{} searches {}, {why}",
            list_names(&objects, 3),
            list_names(&directories, 3)
        );
        // A user of the package cannot change this, and a missing directory is harmless.
        let installed = world.environment && kind == BuildDirectory::Private;
        let diagnostic = if installed {
            Diagnostic::note(codes::BUILD_SEARCH_PATH, message)
        } else {
            Diagnostic::warning(codes::BUILD_SEARCH_PATH, message)
        };
        findings.push(Finding::new(objects[0], diagnostic));
    }
}

#[derive(Default)]
struct Left<'a> {
    objects: BTreeSet<&'a str>,
    directories: BTreeSet<&'a str>,
}
