//! Checks objects against the tags of their wheels.
//!
//! In: `WHEEL` and `RECORD` of every installed distribution. Out: objects that need a newer glibc than the
//! `manylinux` tag promises, and objects for another processor than the tag's or, without a tag, than most.
//! Bundles for several processors are not reported.

use crate::finding::{Finding, list_names};
use crate::missing::usual_machine;
use crate::object::Item;
use crate::tree::{normal, split};
use crate::world::World;
use stackforge_binary::elf::{Machine, ObjectType, Version};
use stackforge_stack::diag::{Diagnostic, codes};
use std::collections::{BTreeMap, BTreeSet};

/// An installed distribution's own metadata.
struct Wheel<'a> {
    /// Name and version: `torch-2.13.0`.
    name: &'a str,
    /// Directory that the paths in RECORD are relative to.
    root: &'a str,
    machine: Option<Machine>,
    /// The lowest glibc version that one of its tags promises to be enough.
    glibc: Option<Version>,
}

pub fn check(world: &World<'_>, findings: &mut Vec<Finding>) {
    let items: BTreeMap<String, &Item> = (world.items.iter())
        .map(|item| (normal(&item.path), item))
        .collect();
    let mut owned: BTreeSet<&str> = BTreeSet::new();
    for (path, text) in &world.tree.texts {
        let Some(wheel) = wheel(path, text) else {
            continue;
        };
        let objects = objects(world, &wheel, &items);
        owned.extend(objects.iter().map(|i| i.path.as_str()));
        findings.extend(wheel.promise(world, &objects));
        if let Some(machine) = wheel.machine {
            let what = format!("its wheel `{}` is for {}", wheel.name, machine.name());
            findings.extend(foreign(world, &objects, machine, &what));
        }
    }
    if let Some(machine) = usual_machine(world).filter(|_| world.environment) {
        let left: Vec<&Item> = (world.items.iter())
            .filter(|i| !owned.contains(i.path.as_str()))
            .collect();
        let what = format!("everything around it is for {}", machine.name());
        findings.extend(foreign(world, &left, machine, &what));
    }
}

/// Reads a distribution from its `WHEEL` file. `None` for other files.
fn wheel<'a>(path: &'a str, text: &str) -> Option<Wheel<'a>> {
    let folder = path.strip_suffix("/WHEEL")?;
    let name = split(folder).1.strip_suffix(".dist-info")?;
    let tags = || {
        let lines = text.lines().filter_map(|l| l.strip_prefix("Tag:"));
        lines.filter_map(|tag| tag.trim().rsplit('-').next())
    };
    let promised = |tag| glibc(tag);
    let machines: BTreeSet<&str> = tags().filter_map(machine).map(Machine::name).collect();
    let single = machines.len() == 1;
    Some(Wheel {
        name,
        root: split(folder).0,
        machine: tags().find_map(machine).filter(|_| single),
        glibc: tags().filter_map(promised).min(),
    })
}

fn machine(platform: &str) -> Option<Machine> {
    if platform.ends_with("_x86_64") {
        Some(Machine::X86_64)
    } else if platform.ends_with("_aarch64") {
        Some(Machine::Aarch64)
    } else {
        None
    }
}

/// Returns the glibc version of a platform tag (PEP 600, and the names of older PEPs).
fn glibc(platform: &str) -> Option<Version> {
    let rest = platform.strip_prefix("manylinux")?;
    let version = match rest.split_once('_')? {
        ("1", _) => "2.5".to_owned(),
        ("2010", _) => "2.12".to_owned(),
        ("2014", _) => "2.17".to_owned(),
        ("", rest) => {
            let mut parts = rest.split('_');
            format!("{}.{}", parts.next()?, parts.next()?)
        }
        _ => return None,
    };
    Version::parse(&version)
}

/// Returns the objects that a distribution's RECORD lists.
fn objects<'a>(
    world: &World<'_>,
    wheel: &Wheel<'_>,
    items: &BTreeMap<String, &'a Item>,
) -> Vec<&'a Item> {
    let path = match wheel.root {
        "" => format!("{}.dist-info/RECORD", wheel.name),
        root => format!("{root}/{}.dist-info/RECORD", wheel.name),
    };
    let Some(text) = world.tree.texts.get(&path) else {
        return Vec::new();
    };
    let listed = text.lines().filter_map(|line| {
        // A line is path, digest and size; a path with a comma is quoted.
        let path = line.rsplitn(3, ',').nth(2)?.trim_matches('"');
        items
            .get(&normal(&format!("{}/{path}", wheel.root)))
            .copied()
    });
    listed.collect()
}

impl Wheel<'_> {
    fn promise(&self, world: &World<'_>, objects: &[&Item]) -> Option<Finding> {
        let promised = self.glibc.as_ref()?;
        let mut newer: Vec<(Version, &str)> = (objects.iter())
            .filter_map(|i| Some((i.object.floors().glibc?, i.path.as_str())))
            .filter(|(floor, _)| floor > promised)
            .collect();
        newer.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let (floor, first) = newer.first()?;
        let paths: Vec<&str> = newer.iter().map(|(_, path)| *path).collect();
        let message = format!(
            "`{}` is tagged for glibc {promised}, and {} needs {floor}",
            self.name,
            list_names(&paths, 3)
        );
        // If the base is known, a too old glibc is reported elsewhere: here only the tag is wrong.
        let diagnostic = if world.system.is_known() {
            Diagnostic::note(codes::WHEEL_BREAKS_TAG, message)
        } else {
            Diagnostic::warning(codes::WHEEL_BREAKS_TAG, message)
        };
        Some(Finding::new(first, diagnostic))
    }
}

/// Reports libraries for another processor, unless one of the same name is for `machine`.
fn foreign(world: &World<'_>, objects: &[&Item], machine: Machine, what: &str) -> Option<Finding> {
    let library = |i: &&&Item| {
        let other = [Machine::X86_64, Machine::Aarch64].contains(&i.object.machine);
        let file = split(&i.path).1;
        other
            && i.object.machine != machine
            && i.object.kind == ObjectType::Shared
            && (file.ends_with(".so") || file.contains(".so."))
    };
    let twin = |i: &&&Item| {
        let file = split(&i.path).1;
        let mut same = world.items.iter().filter(|o| o.object.machine == machine);
        same.any(|o| split(&o.path).1 == file)
    };
    let found: Vec<&&Item> = (objects.iter())
        .filter(library)
        .filter(|i| !twin(i))
        .collect();
    let first = found.first()?;
    let paths: Vec<&str> = found.iter().map(|i| i.path.as_str()).collect();
    let own = first.object.machine.name();
    let message = format!("{} is for {own}, and {what}", list_names(&paths, 3));
    let error = Diagnostic::error(codes::OTHER_MACHINE, message);
    Some(Finding::new(&first.path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_promise_a_glibc() {
        let of = |tag: &str| glibc(tag).map(|v| v.to_string());
        assert_eq!(of("manylinux_2_28_aarch64").as_deref(), Some("2.28"));
        assert_eq!(of("manylinux2014_x86_64").as_deref(), Some("2.17"));
        assert_eq!(of("manylinux1_x86_64").as_deref(), Some("2.5"));
        assert_eq!(of("linux_x86_64"), None);
        assert_eq!(of("musllinux_1_2_x86_64"), None);
        assert_eq!(of("manylinux_x"), None);
        assert_eq!(of("any"), None);
    }
}
