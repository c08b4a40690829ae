//! Checks extensions of torch against the installed torch.
//!
//! In: each object's [`Ties`]. Out: symbols of torch's namespaces that an object needs and no object of the
//! tree exports, by cause: the other C++11 ABI, or another torch. Only if the tree has torch.

use super::finding::{Finding, list_names};
use super::object::Item;
use super::ties::{NEW, Ties, before_old, hash};
use super::tree::split;
use super::world::World;
use stackforge_stack::diag::{Diagnostic, Severity, codes};
use stackforge_stack::diagnose::readable;
use std::collections::HashSet;

pub fn check(world: &World<'_>, findings: &mut Vec<Finding>) {
    let torch: Vec<&Item> = world.items.iter().filter(|i| is_torch(i)).collect();
    if torch.is_empty() {
        return;
    }
    let exports = world
        .items
        .iter()
        .flat_map(|i| i.ties.exports.iter().copied());
    let exports: HashSet<u64> = exports.collect();
    for item in world.items {
        let missing: Vec<&[u8]> = (item.ties.needs.iter())
            .map(AsRef::as_ref)
            .filter(|name| !exports.contains(&hash(name)))
            .collect();
        if missing.is_empty() {
            continue;
        }
        let other_abi = with_other_abi(&torch, &missing);
        let mut finding = missing_symbols(item, &missing, &other_abi);
        if world.is_optional(&item.path) {
            finding.diagnostic.severity = Severity::Note;
        }
        findings.push(finding);
    }
}

fn is_torch(item: &Item) -> bool {
    let file = split(&item.path).1;
    file.starts_with("libtorch") || file.starts_with("libc10")
}

fn missing_symbols(item: &Item, missing: &[&[u8]], other_abi: &[&[u8]]) -> Finding {
    let shown = |names: &[&[u8]]| {
        let names: Vec<String> = (names.iter())
            .map(|n| readable(&String::from_utf8_lossy(n)))
            .collect();
        list_names(&names, 3)
    };
    let path = &item.path;
    let diagnostic = if let Some(first) = other_abi.first() {
        let asks = if memchr::memmem::find(first, NEW).is_some() {
            "new"
        } else {
            "old"
        };
        Diagnostic::error(
            codes::CXX11_ABI,
            format!(
                "`{path}` was built with the {asks} C++11 ABI and torch with the other: it needs {}",
                shown(other_abi)
            ),
        )
    } else {
        let message = format!(
            "`{path}` needs what no object in the tree exports: {}",
            shown(missing)
        );
        Diagnostic::error(codes::TORCH_SYMBOL_MISSING, message)
    };
    Finding::new(path, diagnostic)
}

/// Returns the missing names that torch exports with the other `std::string`. A name's prefix before the
/// first string is the same in both ABIs.
fn with_other_abi<'n>(torch: &[&Item], missing: &[&'n [u8]]) -> Vec<&'n [u8]> {
    let all = |of: fn(&Ties) -> &Vec<u64>| -> HashSet<u64> {
        torch
            .iter()
            .flat_map(|i| of(&i.ties).iter().copied())
            .collect()
    };
    let (old, new) = (all(|t| &t.before_old), all(|t| &t.before_new));
    let other = |name: &&&[u8]| match memchr::memmem::find(name, NEW) {
        Some(at) => old.contains(&hash(&name[..at])),
        None => before_old(name).any(|start| new.contains(&start)),
    };
    missing.iter().filter(other).copied().collect()
}
