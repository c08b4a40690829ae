//! Checks the C runtime that objects need: minimum glibc and libstdc++ versions against the base's and the
//! wheels' tags, and executable stacks, which newer glibc refuses.

mod wheels;

use super::finding::{Finding, list_names};
use super::packages::package;
use super::world::World;
use stackforge_binary::elf::{Machine, Version};
use stackforge_stack::diag::{Diagnostic, codes};
use std::collections::BTreeMap;

/// The first glibc version that refuses an executable stack.
const REFUSES_STACK: &str = "2.41";

pub fn check(world: &World<'_>, findings: &mut Vec<Finding>) {
    for machine in [Machine::X86_64, Machine::Aarch64] {
        let glibc = world.defines("libc.so.6", "GLIBC_", machine);
        let glibcxx = world.defines("libstdc++.so.6", "GLIBCXX_", machine);
        let items = || world.items.iter().filter(|i| i.object.machine == machine);
        for (name, has) in [("GLIBC", &glibc), ("GLIBCXX", &glibcxx)] {
            let Some(has) = has else { continue };
            let mut packages: BTreeMap<&str, Vec<(Version, &str)>> = BTreeMap::new();
            for item in items() {
                let floors = item.object.floors();
                let floor = match name {
                    "GLIBC" => floors.glibc,
                    _ => floors.glibcxx,
                };
                if let Some(floor) = floor.filter(|f| f > has) {
                    let too_new = packages.entry(package(&item.path)).or_default();
                    too_new.push((floor, &item.path));
                }
            }
            findings.extend(packages.into_values().filter_map(|p| refused(name, has, p)));
        }
        let refuses = Version::parse(REFUSES_STACK).is_some_and(|v| glibc.is_some_and(|g| g >= v));
        let stacks: Vec<&str> = items()
            .filter(|i| i.object.executable_stack)
            .map(|i| i.path.as_str())
            .collect();
        findings.extend(executable(&stacks, refuses));
    }
    wheels::check(world, findings);
}

/// Reports a package once, at the object with the highest requirement.
fn refused(name: &str, has: &Version, mut too_new: Vec<(Version, &str)>) -> Option<Finding> {
    too_new.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let (floor, path) = too_new.first()?;
    let more = match too_new.len() - 1 {
        0 => String::new(),
        1 => "; another object of the package is too new as well".to_owned(),
        n => format!("; {n} more objects of the package are too new as well"),
    };
    let message = format!("`{path}` needs {name}_{floor}, the base has {name}_{has}{more}");
    let error = Diagnostic::error(codes::RUNTIME_TOO_OLD, message);
    Some(Finding::new(path, error))
}

fn executable(paths: &[&str], refuses: bool) -> Option<Finding> {
    let first = paths.first()?;
    let message = format!("{} asks for an executable stack", list_names(paths, 3));
    let diagnostic = if refuses {
        let message = format!("{message}, which the base's glibc refuses");
        Diagnostic::error(codes::EXECUTABLE_STACK, message)
    } else {
        let message = format!("{message}, which glibc {REFUSES_STACK} and newer refuse");
        Diagnostic::warning(codes::EXECUTABLE_STACK, message)
    };
    Some(Finding::new(first, diagnostic))
}
