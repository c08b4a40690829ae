//! Finds libraries of more than one major release of CUDA.

use crate::closure::{Closure, Provider};
use crate::finding::{Finding, list_names};
use crate::world::World;
use stackforge_stack::diag::{Diagnostic, codes};
use std::collections::{BTreeMap, BTreeSet};

/// CUDA's major releases, told apart by SONAMEs that only one of them has.
pub struct Cuda<'a> {
    majors: BTreeMap<&'a str, u32>,
    /// The component of each SONAME: `cudart`.
    components: BTreeMap<&'a str, &'a str>,
    /// CUDA's objects in the tree, by major release.
    by_major: BTreeMap<u32, Vec<usize>>,
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
        let mut by_major: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, item) in world.items.iter().enumerate() {
            if let Some(major) = majors.get(item.soname()) {
                by_major.entry(*major).or_default().push(index);
            }
        }
        let sonames = world.items.iter().map(|item| item.soname());
        let present = sonames.filter(|name| majors.contains_key(name)).collect();
        Self {
            majors,
            components,
            present,
            by_major,
        }
    }

    /// Returns the only major release that has a library with this SONAME.
    pub fn major(&self, soname: &str) -> Option<u32> {
        self.majors.get(soname).copied()
    }

    /// Returns the major release of a missing library, and the releases of which the tree has that component.
    pub fn other(&self, name: &str) -> Option<(u32, Vec<u32>)> {
        let own = *self.majors.get(name)?;
        let component = self.components.get(name);
        let same = |other: &&&str| self.components.get(**other) == component;
        let majors: BTreeSet<u32> = (self.present.iter())
            .filter(same)
            .filter_map(|other| self.majors.get(other).copied())
            .collect();
        let majors: Vec<u32> = majors.into_iter().collect();
        (!majors.is_empty() && !majors.contains(&own)).then_some((own, majors))
    }

    pub fn check(&self, world: &World<'_>, closure: &Closure, findings: &mut Vec<Finding>) {
        if self.by_major.len() < 2 {
            return;
        }
        let linked = |objects: &Vec<usize>| !users(closure, objects).is_empty();
        let both = self
            .by_major
            .values()
            .filter(|objects| linked(objects))
            .count()
            > 1;
        for (major, objects) in &self.by_major {
            let path = |i: &usize| world.items[*i].path.as_str();
            let users = users(closure, objects);
            // A library that no object links, such as a profiler's own copy, is loaded only on purpose.
            if !both && !users.is_empty() {
                continue;
            }
            let users: Vec<&str> = users.iter().map(path).collect();
            let used = match users.as_slice() {
                [] => "nothing in the tree links them".to_owned(),
                users => format!("for {}", list_names(users, 3)),
            };
            let others: Vec<u32> = self
                .by_major
                .keys()
                .copied()
                .filter(|m| m != major)
                .collect();
            let names: Vec<&str> = objects.iter().map(path).collect();
            let message = format!(
                "libraries of CUDA {major} beside CUDA {}: {} ({used})",
                join(&others),
                list_names(&names, 3)
            );
            let diagnostic = if users.is_empty() {
                Diagnostic::note(codes::OTHER_CUDA_MAJOR, message)
            } else {
                Diagnostic::warning(codes::OTHER_CUDA_MAJOR, message)
            };
            findings.push(Finding::new(names[0], diagnostic));
        }
    }
}

/// Returns the objects that link one of `objects` and are not among them.
fn users(closure: &Closure, objects: &[usize]) -> Vec<usize> {
    let uses = |providers: &Vec<Provider>| {
        let mut providers = providers.iter();
        providers.any(|p| matches!(p, Provider::Object(i, _) if objects.contains(i)))
    };
    (closure.0.iter().enumerate())
        .filter(|(index, providers)| !objects.contains(index) && uses(providers))
        .map(|(index, _)| index)
        .collect()
}

pub fn join(majors: &[u32]) -> String {
    let all: Vec<String> = majors.iter().map(u32::to_string).collect();
    all.join(" and ")
}
