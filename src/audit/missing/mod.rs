//! Finds libraries that nothing provides.
//!
//! In: the closure. Out: findings by package, one for all objects that miss the same libraries. If the target
//! is not a complete environment, a missing library may be elsewhere: a note. Objects for another machine
//! than most are never loaded, and optional objects of a package are no error. Nor are those that the
//! distribution ships beside all that it wants installed with them, unless the stack's own libraries load them.

mod cuda;
mod search;

use super::closure::{Closure, Provider};
use super::finding::{Finding, list_names};
use super::object::Item;
use super::os_packages::OsPackages;
use super::packages::{of_nvidia, package};
use super::tree::split;
use super::world::World;
pub use cuda::Cuda;
use cuda::join;
use stackforge_binary::elf::Machine;
use stackforge_debian::soname::likely_package;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::fix::Fix;
use std::collections::{BTreeMap, BTreeSet};

pub fn check(world: &World<'_>, closure: &Closure, findings: &mut Vec<Finding>) {
    let mut missing = missing(world, closure);
    let shipped = shipped_without(world, closure, &mut missing);
    let cuda = Cuda::of(world);
    if world.environment {
        for ((_, names), objects) in by_package(world, &missing) {
            let (other, unknown): (Vec<&str>, Vec<&str>) =
                names.iter().partition(|name| cuda.other(name).is_some());
            let first = &world.items[objects[0]];
            for name in other {
                let Some((own, present)) = cuda.other(name) else {
                    continue;
                };
                let message = format!(
                    "`{}` needs `{name}` of CUDA {own}, and CUDA {} is there{}",
                    first.path,
                    join(&present),
                    more(first, objects.len() - 1)
                );
                let error = Diagnostic::error(codes::OTHER_CUDA_MAJOR, message);
                findings.push(Finding::new(&first.path, error));
            }
            findings.extend(nothing_provides(world, first, objects.len() - 1, &unknown));
        }
        findings.extend(without(world, &missing));
        findings.extend(shipped);
    } else {
        for (item, names) in world.items.iter().zip(&missing) {
            elsewhere(item, names, findings);
        }
    }
    search::unsearched(world, closure, findings);
    search::left_over(world, findings);
    cuda.check(world, closure, findings);
}

/// Returns the libraries that each object misses.
fn missing<'a>(world: &World<'a>, closure: &Closure) -> Vec<Vec<&'a str>> {
    let all: Vec<Vec<&str>> = (world.items.iter().zip(&closure.0))
        .map(|(item, providers)| {
            let needed = item.object.needed.iter().zip(providers);
            let missing = needed.filter(|(_, provider)| **provider == Provider::Missing);
            missing.map(|(name, _)| name.as_str()).collect()
        })
        .collect();
    if !world.environment {
        return all;
    }
    let groups = alternatives(world);
    let machine = usual_machine(world);
    let provided = closure.0.iter().flatten();
    let linked: BTreeSet<usize> = provided
        .filter_map(|provider| match provider {
            Provider::Object(index, _) => Some(*index),
            _ => None,
        })
        .collect();
    // An object that another one links is loaded in addition to its alternative: `libtorch_cuda.so` and
    // `libtorch_cpu.so`.
    let needed = |index: usize| {
        let file = split(&world.items[index].path).1;
        linked.contains(&index) && world.loader().accelerators.stem(file).is_some()
    };
    // One loadable alternative is enough.
    let spared = |index: usize| {
        let group = groups.iter().find(|g| g.contains(&index));
        let foreign = machine.is_some_and(|m| world.items[index].object.machine != m);
        let other = group.is_some_and(|g| g.iter().any(|i| all[*i].is_empty()));
        foreign || other && !needed(index)
    };
    let kept = |(index, names): (usize, &Vec<&'a str>)| {
        if spared(index) {
            Vec::new()
        } else {
            names.clone()
        }
    };
    all.iter().enumerate().map(kept).collect()
}

/// Takes out what objects of the distribution's packages miss, and reports it in a note for each package. Those
/// that something else than such a package loads stay.
fn shipped_without(
    world: &World<'_>,
    closure: &Closure,
    missing: &mut [Vec<&str>],
) -> Vec<Finding> {
    if !world.environment || missing.iter().all(Vec::is_empty) {
        return Vec::new();
    }
    let packages = OsPackages::of(&world.tree.texts);
    let mut owners = BTreeMap::new();
    for (index, item) in world.items.iter().enumerate() {
        if !missing[index].is_empty()
            && let Some(package) = packages.complete(&item.path)
        {
            owners.insert(index, package);
        }
    }
    if owners.is_empty() {
        return Vec::new();
    }
    let loaded = loaded_by_the_stack(world, closure);
    let mut notes: BTreeMap<&str, (usize, BTreeSet<&str>, usize)> = BTreeMap::new();
    for (index, package) in owners {
        if loaded.contains(&index) {
            continue;
        }
        let (_, names, objects) = notes
            .entry(package)
            .or_insert_with(|| (index, BTreeSet::new(), 0));
        names.extend(std::mem::take(&mut missing[index]));
        *objects += 1;
    }
    let note = |(package, (first, names, objects)): (&str, (usize, BTreeSet<&str>, usize))| {
        let path = &world.items[first].path;
        let names: Vec<&str> = names.into_iter().collect();
        let message = format!(
            "`{path}` of the package `{package}` needs {}, which the package does not depend on{}",
            list_names(&names, 5),
            more(&world.items[first], objects - 1)
        );
        let help = "nothing, unless you use this part of it: then add the package that has the library to `packages`";
        let note = Diagnostic::note(codes::NEEDED_MISSING, message).help(help);
        Finding::new(path, note)
    };
    notes.into_iter().map(note).collect()
}

/// Returns the objects that are loaded by one that lies outside of the distribution's directories.
fn loaded_by_the_stack(world: &World<'_>, closure: &Closure) -> BTreeSet<usize> {
    let of_system = |path: &str| {
        let below = path.strip_prefix("usr/").unwrap_or(path);
        let mut folders = ["bin/", "sbin/", "lib/", "lib64/", "libexec/"].iter();
        folders.any(|folder| below.starts_with(folder))
    };
    let outside = |index: &usize| !of_system(&world.items[*index].path);
    let mut open: Vec<usize> = (0..world.items.len()).filter(outside).collect();
    let mut loaded: BTreeSet<usize> = open.iter().copied().collect();
    while let Some(index) = open.pop() {
        for provider in &closure.0[index] {
            if let Provider::Object(next, _) = provider
                && loaded.insert(*next)
            {
                open.push(*next);
            }
        }
    }
    loaded
}

/// Returns the machine that most objects are for.
pub fn usual_machine(world: &World<'_>) -> Option<Machine> {
    let count = |machine| {
        let objects = world.items.iter().map(|i| i.object.machine);
        objects.filter(|m| *m == machine).count()
    };
    let (x86, arm) = (count(Machine::X86_64), count(Machine::Aarch64));
    match x86.cmp(&arm) {
        std::cmp::Ordering::Greater => Some(Machine::X86_64),
        std::cmp::Ordering::Less => Some(Machine::Aarch64),
        std::cmp::Ordering::Equal => None,
    }
}

/// Groups objects by package and by what they miss.
fn by_package<'a>(
    world: &'a World<'_>,
    missing: &'a [Vec<&'a str>],
) -> BTreeMap<(&'a str, &'a Vec<&'a str>), Vec<usize>> {
    let mut packages: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, names) in missing.iter().enumerate() {
        let path = &world.items[index].path;
        if !names.is_empty() && !world.is_optional(path) {
            let key = (package(path), names);
            packages.entry(key).or_default().push(index);
        }
    }
    packages
}

/// Reports what optional objects miss, in one note.
fn without(world: &World<'_>, missing: &[Vec<&str>]) -> Option<Finding> {
    let optional = |(item, names): (&'_ Item, &Vec<&str>)| {
        (!names.is_empty() && world.is_optional(&item.path)).then(|| item.path.clone())
    };
    let paths: Vec<String> = (world.items.iter().zip(missing))
        .filter_map(optional)
        .collect();
    let message = format!(
        "libraries are missing for what packages can do without: {}",
        list_names(&paths, 3)
    );
    let note = Diagnostic::note(codes::NEEDED_MISSING, message);
    Some(Finding::new(paths.first()?, note))
}

fn nothing_provides(
    world: &World<'_>,
    first: &Item,
    others: usize,
    names: &[&str],
) -> Option<Finding> {
    if names.is_empty() {
        return None;
    }
    let message = format!(
        "`{}` needs {}, which nothing provides{}",
        first.path,
        list_names(names, 20),
        more(first, others)
    );
    let code = codes::NEEDED_MISSING;
    let mut diagnostic = if of_nvidia(&first.path) {
        Diagnostic::warning(code, message)
    } else {
        Diagnostic::error(code, message)
    };
    let of_cuda_torch = |n: &&str| n.starts_with("libtorch_cuda") || n.starts_with("libc10_cuda");
    if names.iter().any(of_cuda_torch) && !world.named("libtorch_cpu.so").is_empty() {
        diagnostic = diagnostic.help(
            "the torch that is there is built without CUDA: install the release of torch for this platform that has CUDA, and what was made for it",
        );
    } else if let Some(packages) = likely_packages(names) {
        let listed = packages.join(", ");
        diagnostic = diagnostic.help(format!(
            "add the OS package that has it to the stack, most likely `packages: [{listed}]`"
        ));
        diagnostic = diagnostic.fix(Fix::AddPackages { names: packages });
    }
    Some(Finding::new(&first.path, diagnostic))
}

/// Returns the OS packages that the libraries most likely lie in. `None` if one of them is CUDA's or torch's, or
/// its name says nothing.
fn likely_packages(names: &[&str]) -> Option<Vec<String>> {
    let package = |name: &&str| {
        let of_wheels = ["libtorch", "libc10", "libcu", "libnv", "libnccl", "libnpp"];
        let foreign = of_wheels.iter().any(|start| name.starts_with(start));
        likely_package(name).filter(|_| !foreign)
    };
    let packages: Option<BTreeSet<String>> = names.iter().map(package).collect();
    Some(packages?.into_iter().collect())
}

fn more(first: &Item, others: usize) -> String {
    let package = package(&first.path);
    match others {
        0 => String::new(),
        1 => format!("; so does another object of {package}"),
        n => format!("; so do {n} more objects of {package}"),
    }
}

fn elsewhere(item: &Item, names: &[&str], findings: &mut Vec<Finding>) {
    if names.is_empty() {
        return;
    }
    let what = match names.len() {
        1 => "which is",
        _ => "which are",
    };
    let message = format!(
        "`{}` needs {}, {what} not in the tree",
        item.path,
        list_names(names, 20)
    );
    let note = Diagnostic::note(codes::NEEDED_ELSEWHERE, message);
    findings.push(Finding::new(&item.path, note));
}

/// Returns groups of objects of which a package loads only one: their names differ only in the accelerator,
/// or they have one name in folders of different accelerators.
pub fn alternatives(world: &World<'_>) -> Vec<BTreeSet<usize>> {
    let accelerators = &world.loader().accelerators;
    let mut groups: BTreeMap<(String, &str), BTreeSet<usize>> = BTreeMap::new();
    for (index, item) in world.items.iter().enumerate() {
        let (directory, file) = split(&item.path);
        if let Some(stem) = accelerators.stem(file) {
            let key = (directory.to_owned(), stem);
            groups.entry(key).or_default().insert(index);
        } else if directory.split('/').any(|f| accelerators.names(f)) {
            let folders = directory
                .split('/')
                .map(|f| if accelerators.names(f) { "*" } else { f });
            let key = (folders.collect::<Vec<&str>>().join("/"), file);
            groups.entry(key).or_default().insert(index);
        }
    }
    groups.into_values().filter(|g| g.len() > 1).collect()
}
