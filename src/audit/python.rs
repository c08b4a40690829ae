//! Checks extension modules against the Python that imports them.

use super::finding::Finding;
use super::tree::{Tree, split};
use super::world::World;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::spec::PythonVersion;
use std::collections::BTreeSet;

/// Returns the Python of a tree, if it is known: from a wheel's tags, or from the only `pythonX.Y` in a
/// directory's paths.
pub fn version_of(tree: &Tree) -> Option<PythonVersion> {
    if tree.python.is_some() {
        return tree.python;
    }
    let inside = tree.paths.iter().map(String::as_str);
    let named: BTreeSet<PythonVersion> = inside
        .chain([tree.name.as_str()])
        .flat_map(|path| path.split('/'))
        .filter_map(|part| part.strip_prefix("python")?.parse().ok())
        .collect();
    match named.len() {
        1 => named.into_iter().next(),
        _ => None,
    }
}

pub fn check(world: &World<'_>, python: Option<PythonVersion>, findings: &mut Vec<Finding>) {
    let Some(python) = python else { return };
    // A package may have the same module for several Pythons.
    let fitting: BTreeSet<&str> = (world.items.iter())
        .filter_map(|item| module(&item.path))
        .filter(|(_, tag)| *tag == python)
        .map(|(module, _)| module)
        .collect();
    for item in world.items {
        let Some((module, tag)) = module(&item.path) else {
            continue;
        };
        if tag != python && !fitting.contains(module) {
            let message = format!("`{}` is for Python {tag}, not {python}", item.path);
            let error = Diagnostic::error(codes::OTHER_PYTHON, message);
            findings.push(Finding::new(&item.path, error));
        }
    }
}

/// Returns an extension module's path without its suffix, and the CPython that the suffix names. `None` for
/// `.abi3.so` and `.so`, which name none.
fn module(path: &str) -> Option<(&str, PythonVersion)> {
    let file = split(path).1;
    let (name, suffix) = file.split_once(".cpython-3")?;
    let tag = suffix.strip_suffix(".so")?.split('-').next()?;
    let minor = tag.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let module = &path[..path.len() - file.len() + name.len()];
    Some((module, format!("3.{minor}").parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn suffixes_name_a_python_or_none() {
        let of = |path: &str| module(path).map(|(m, p)| format!("{m} {p}"));
        let full = of("a/_C.cpython-312-x86_64-linux-gnu.so");
        assert_eq!(full.as_deref(), Some("a/_C 3.12"));
        assert_eq!(
            of("_C.cpython-313t-aarch64-linux-gnu.so").as_deref(),
            Some("_C 3.13")
        );
        assert_eq!(of("a/_C.cpython-312.so").as_deref(), Some("a/_C 3.12"));
        assert_eq!(of("a/_C.abi3.so"), None);
        assert_eq!(of("a/libx.so.1"), None);
        assert_eq!(of("a/_C.cpython-3x.so"), None);
    }

    proptest! {
        #[test]
        fn any_path_has_a_module_or_none(path in "[a/.é]{0,6}(.cpython-3)?[0-9t]{0,4}[-.so]{0,9}") {
            if let Some((module, _)) = module(&path) {
                prop_assert!(path.starts_with(module));
            }
        }
    }
}
