//! Finds second copies of one library.
//!
//! The loader reuses a library that is loaded under the same SONAME, wherever its file is, so two files with
//! one SONAME are one library in a process. With another SONAME, such as auditwheel gives, both are loaded.

use super::finding::{Finding, list_names};
use super::object::Item;
use super::tree::split;
use super::world::World;
use stackforge_stack::diag::{Diagnostic, codes};
use std::collections::{BTreeMap, BTreeSet};

pub fn check(world: &World<'_>, findings: &mut Vec<Finding>) {
    let mut copies: BTreeMap<(String, &str), Vec<&Item>> = BTreeMap::new();
    for item in world.items {
        // Python modules may share a file name; only libraries have a SONAME that other objects need.
        if item.object.soname.is_some() && item.soname().starts_with("lib") {
            let key = (plain(item.soname()), item.object.machine.name());
            let group = copies.entry(key).or_default();
            // Files in one directory are names of one library: symbolic links before they were put into a wheel.
            if (group.iter()).all(|i| split(&i.path).0 != split(&item.path).0) {
                group.push(item);
            }
        }
    }
    copies.retain(|_, items| items.len() > 1);
    let both_load = |soname: &str, items: &[&Item]| {
        let names: BTreeSet<&str> = items.iter().map(|i| i.soname()).collect();
        names.len() > 1 && world.loader().single.has(soname)
    };
    let (mut single, mut others) = (Vec::new(), Vec::new());
    for ((soname, _), items) in &copies {
        let paths: Vec<&str> = items.iter().map(|i| i.path.as_str()).collect();
        if both_load(soname, items) {
            single.push((soname, paths))
        } else {
            others.push((soname, paths))
        }
    }
    for (soname, paths) in single {
        let message = format!(
            "`{soname}` is there {} times: {}",
            paths.len(),
            list_names(&paths, 4)
        );
        let warning = Diagnostic::warning(codes::SECOND_COPY, message);
        findings.push(Finding::new(paths[0], warning));
    }
    // Copies of compression and image libraries do not interfere with each other.
    if let Some((_, paths)) = others.first() {
        let names: Vec<&str> = others.iter().map(|(soname, _)| soname.as_str()).collect();
        let message = format!("there more than once: {}", list_names(&names, 4));
        let note = Diagnostic::note(codes::SECOND_COPY, message);
        findings.push(Finding::new(paths[0], note));
    }
}

/// Removes auditwheel's digest from a SONAME: `libgomp.so.1` for `libgomp-a34b3233.so.1`.
fn plain(soname: &str) -> String {
    let without = || {
        let (stem, rest) = soname.split_once(".so")?;
        let (name, digest) = stem.rsplit_once('-')?;
        let hex = digest
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (hex && digest.len() == 8).then(|| format!("{name}.so{rest}"))
    };
    without().unwrap_or_else(|| soname.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_taken_off() {
        assert_eq!(plain("libgomp-a34b3233.so.1"), "libgomp.so.1");
        assert_eq!(plain("libcudart-d0da41ae.so.11.0"), "libcudart.so.11.0");
        assert_eq!(plain("libfoo-bar.so"), "libfoo-bar.so");
        assert_eq!(plain("libc10.so"), "libc10.so");
    }
}
