//! Libraries that nothing provides, and CUDA of more than one major release.

use super::closure::{Closure, Provider, Through, World};
use super::finding::{Finding, some};
use super::gpu::{of_nvidia, package};
use super::inventory::Item;
use super::tree::split;
use crate::diag::{Diagnostic, codes};
use std::collections::{BTreeMap, BTreeSet};

pub fn check(world: &World<'_>, closure: &Closure, findings: &mut Vec<Finding>) {
    let cuda = Cuda::of(world);
    let missing: Vec<Vec<&str>> = (world.items.iter().zip(&closure.0))
        .map(|(item, providers)| {
            let needed = item.object.needed.iter().zip(providers);
            let missing = needed.filter(|(_, provider)| **provider == Provider::Missing);
            missing.map(|(name, _)| name.as_str()).collect()
        })
        .collect();
    let groups = alternatives(world);
    // One alternative that loads is enough.
    let spared = |index: usize| {
        let group = groups.iter().find(|g| g.contains(&index));
        group.is_some_and(|g| g.iter().any(|i| missing[*i].is_empty()))
    };
    for (index, item) in world.items.iter().enumerate() {
        let names = &missing[index];
        let (other, unknown): (Vec<&str>, Vec<&str>) =
            names.iter().partition(|name| cuda.other(name).is_some());
        if !world.environment || spared(index) {
            elsewhere(item, names, findings);
            continue;
        }
        for name in other {
            findings.extend(cuda.other(name).map(|(own, there)| {
                let message = format!(
                    "`{}` needs `{name}` of CUDA {own}, and CUDA {} is there",
                    item.path,
                    join(&there)
                );
                Finding::new(
                    &item.path,
                    Diagnostic::error(codes::OTHER_CUDA_MAJOR, message),
                )
            }));
        }
        if !unknown.is_empty() {
            let message = format!(
                "`{}` needs {}, which nothing provides",
                item.path,
                some(&unknown, 20)
            );
            // CUDA's own libraries have plugins for networks that they load where these are there.
            let diagnostic = match of_nvidia(&item.path) {
                true => Diagnostic::warning(codes::NEEDED_MISSING, message),
                false => Diagnostic::error(codes::NEEDED_MISSING, message),
            };
            findings.push(Finding::new(&item.path, diagnostic));
        }
    }
    unsearched(world, closure, findings);
    cuda.check(world, closure, findings);
}

fn elsewhere(item: &Item, names: &[&str], findings: &mut Vec<Finding>) {
    if names.is_empty() {
        return;
    }
    let what = if names.len() == 1 {
        "which is"
    } else {
        "which are"
    };
    let message = format!(
        "`{}` needs {}, {what} not in the tree",
        item.path,
        some(names, 20)
    );
    let note = Diagnostic::note(codes::NEEDED_ELSEWHERE, message);
    findings.push(Finding::new(&item.path, note));
}

/// Libraries that are there and on no search path: a package may load its own by their path; those
/// of another have to be imported before.
fn unsearched(world: &World<'_>, closure: &Closure, findings: &mut Vec<Finding>) {
    for (item, providers) in world.items.iter().zip(&closure.0) {
        for provider in providers {
            let Provider::Object(index, Through::Unsearched) = provider else {
                continue;
            };
            let path = &world.items[*index].path;
            let message = format!(
                "`{}` finds `{path}` only after something has loaded it: no search leads there",
                item.path
            );
            let diagnostic = match package(path) == package(&item.path) {
                true => Diagnostic::note(codes::NEEDED_MISSING, message),
                false => Diagnostic::warning(codes::NEEDED_MISSING, message)
                    .help("import the package that holds it first"),
            };
            findings.push(Finding::new(&item.path, diagnostic));
        }
    }
}

/// Objects of which a package loads one: the same name but for the accelerator.
pub fn alternatives(world: &World<'_>) -> Vec<BTreeSet<usize>> {
    let mut groups: BTreeMap<(&str, &str), BTreeSet<usize>> = BTreeMap::new();
    for (index, item) in world.items.iter().enumerate() {
        let (directory, file) = split(&item.path);
        if let Some(stem) = world.loader().accelerators.stem(file) {
            groups.entry((directory, stem)).or_default().insert(index);
        }
    }
    groups.into_values().filter(|g| g.len() > 1).collect()
}

/// Releases of CUDA, by the SONAMEs that only one major release has.
pub(super) struct Cuda<'a> {
    majors: BTreeMap<&'a str, u32>,
    /// Component of each of them: `cudart`.
    components: BTreeMap<&'a str, &'a str>,
    /// Objects of the tree that are CUDA's, by major.
    there: BTreeMap<u32, Vec<usize>>,
    /// SONAMEs of those objects.
    present: BTreeSet<&'a str>,
}

impl<'a> Cuda<'a> {
    pub fn of(world: &World<'a>) -> Self {
        let mut of_name: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        let mut components = BTreeMap::new();
        for toolkit in &world.catalog.toolkits {
            let major: Option<u32> = toolkit
                .version
                .split('.')
                .next()
                .and_then(|m| m.parse().ok());
            for (component, soname) in &toolkit.sonames {
                components.insert(soname.as_str(), component.as_str());
                of_name.entry(soname).or_default().extend(major);
            }
        }
        let majors: BTreeMap<&str, u32> = (of_name.into_iter())
            .filter(|(_, majors)| majors.len() == 1)
            .filter_map(|(name, majors)| Some((name, majors.into_iter().next()?)))
            .collect();
        let mut there: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, item) in world.items.iter().enumerate() {
            if let Some(major) = majors.get(item.soname()) {
                there.entry(*major).or_default().push(index);
            }
        }
        let sonames = world.items.iter().map(|item| item.soname());
        let present = sonames.filter(|name| majors.contains_key(name)).collect();
        Self {
            majors,
            components,
            present,
            there,
        }
    }

    /// The major release that alone has a library of that SONAME.
    pub fn major(&self, soname: &str) -> Option<u32> {
        self.majors.get(soname).copied()
    }

    /// The major release of a library that is not there, and those of which it is.
    fn other(&self, name: &str) -> Option<(u32, Vec<u32>)> {
        let own = *self.majors.get(name)?;
        let component = self.components.get(name);
        let same = |other: &&&str| self.components.get(**other) == component;
        let there: BTreeSet<u32> = (self.present.iter())
            .filter(same)
            .filter_map(|other| self.majors.get(other).copied())
            .collect();
        let there: Vec<u32> = there.into_iter().collect();
        (!there.is_empty() && !there.contains(&own)).then_some((own, there))
    }

    fn check(&self, world: &World<'_>, closure: &Closure, findings: &mut Vec<Finding>) {
        if self.there.len() < 2 {
            return;
        }
        for (major, objects) in &self.there {
            let path = |i: &usize| world.items[*i].path.as_str();
            let uses = |providers: &Vec<Provider>| {
                providers
                    .iter()
                    .any(|p| matches!(p, Provider::Object(i, _) if objects.contains(i)))
            };
            let users: Vec<&str> = (closure.0.iter().enumerate())
                .filter(|(index, providers)| !objects.contains(index) && uses(providers))
                .map(|(index, _)| path(&index))
                .collect();
            let used = match users.as_slice() {
                [] => "nothing in the tree links them".to_owned(),
                users => format!("for {}", some(users, 3)),
            };
            let others: Vec<u32> = self.there.keys().copied().filter(|m| m != major).collect();
            let names: Vec<&str> = objects.iter().map(path).collect();
            let message = format!(
                "libraries of CUDA {major} beside CUDA {}: {} ({used})",
                join(&others),
                some(&names, 3)
            );
            // What nothing links, such as a profiler's own copy, is loaded by choice.
            let diagnostic = match users.is_empty() {
                true => Diagnostic::note(codes::OTHER_CUDA_MAJOR, message),
                false => Diagnostic::warning(codes::OTHER_CUDA_MAJOR, message),
            };
            findings.push(Finding::new(names[0], diagnostic));
        }
    }
}

fn join(majors: &[u32]) -> String {
    let all: Vec<String> = majors.iter().map(u32::to_string).collect();
    all.join(" and ")
}
