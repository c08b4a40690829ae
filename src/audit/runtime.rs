//! glibc and libstdc++ floors of objects against the base's.

use super::closure::World;
use super::finding::Finding;
use crate::diag::{Diagnostic, codes};
use crate::elf::{Machine, Version};

pub fn check(world: &World<'_>, findings: &mut Vec<Finding>) {
    for machine in [Machine::X86_64, Machine::Aarch64] {
        let glibc = world.defines("libc.so.6", "GLIBC_", machine);
        let glibcxx = world.defines("libstdc++.so.6", "GLIBCXX_", machine);
        for item in world.items.iter().filter(|i| i.object.machine == machine) {
            let floors = item.object.floors();
            let pairs = [
                ("GLIBC", floors.glibc, &glibc),
                ("GLIBCXX", floors.glibcxx, &glibcxx),
            ];
            for (name, floor, has) in pairs {
                if let Some(message) = refused(&item.path, name, floor, has) {
                    let error = Diagnostic::error(codes::RUNTIME_TOO_OLD, message);
                    findings.push(Finding::new(&item.path, error));
                }
            }
        }
    }
}

fn refused(
    path: &str,
    name: &str,
    floor: Option<Version>,
    has: &Option<Version>,
) -> Option<String> {
    let (floor, has) = (floor?, has.as_ref()?);
    (floor > *has).then(|| format!("`{path}` needs {name}_{floor}, the base has {name}_{has}"))
}
