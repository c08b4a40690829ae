//! A second copy of one library.

use super::closure::World;
use super::finding::{Finding, some};
use super::tree::split;
use crate::diag::{Diagnostic, codes};
use std::collections::BTreeMap;

pub fn check(world: &World<'_>, findings: &mut Vec<Finding>) {
    let mut copies: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
    for item in world.items {
        // Modules of Python share names; only libraries have a SONAME that others ask for.
        if item.object.soname.is_some() && item.soname().starts_with("lib") {
            let key = (plain(item.soname()), item.object.machine.name());
            let paths = copies.entry(key).or_default();
            // In one directory they are the names of one library, links before they were packed.
            if paths.iter().all(|p| split(p).0 != split(&item.path).0) {
                paths.push(&item.path);
            }
        }
    }
    let copies: Vec<(String, Vec<&str>)> = (copies.into_iter())
        .filter(|(_, paths)| paths.len() > 1)
        .map(|((soname, _), paths)| (soname, paths))
        .collect();
    let (single, others): (Vec<_>, Vec<_>) =
        (copies.iter()).partition(|(soname, _)| world.loader().single.has(soname));
    for (soname, paths) in single {
        let message = format!(
            "`{soname}` is there {} times: {}",
            paths.len(),
            some(paths, 4)
        );
        let warning = Diagnostic::warning(codes::SECOND_COPY, message);
        findings.push(Finding::new(paths[0], warning));
    }
    // Most bring copies of compression and image libraries, which do not mind.
    if let Some((_, paths)) = others.first() {
        let names: Vec<&str> = others.iter().map(|(soname, _)| soname.as_str()).collect();
        let message = format!("there more than once: {}", some(&names, 4));
        let note = Diagnostic::note(codes::SECOND_COPY, message);
        findings.push(Finding::new(paths[0], note));
    }
}

/// A SONAME without the digest that auditwheel puts into it: `libgomp-a34b3233.so.1`.
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
