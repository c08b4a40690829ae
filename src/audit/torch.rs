//! Checks extensions of torch against the installed torch.
//!
//! In: each object's [`Ties`]. Out: symbols of torch's namespaces that an object needs and no object of the
//! tree exports, by cause: the other C++11 ABI, or another torch. Only if the tree has torch. Names are kept
//! for the symbols that objects need and hashes for those that they export, since objects may come from a
//! stream that is read once.

use super::closure::World;
use super::finding::{Finding, some};
use super::inventory::Item;
use super::tree::split;
use stackforge_binary::elf::{self, ElfError, Linkage, Object, mentions};
use stackforge_binary::source::Source;
use stackforge_stack::diag::{Diagnostic, Severity, codes};
use stackforge_stack::diagnose::readable;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The Itanium C++ ABI's code for the old `std::string`, and the namespace of the new one.
const OLD: &[u8] = b"Ss";
const NEW: &[u8] = b"NSt7__cxx11";

/// Most bytes of kept names for one object, whose string table may have gigabytes.
const MOST_NAMES: usize = 16 << 20;

/// The symbols that tie an object to torch.
#[derive(Debug, Default)]
pub struct Ties {
    /// Mangled names of the symbols that it needs.
    needs: Vec<Box<[u8]>>,
    /// Hashes of the names of the symbols that it exports.
    exports: Vec<u64>,
    /// Hashes of the exported names' prefixes before the first new string (here) and before each old one.
    before_new: Vec<u64>,
    before_old: Vec<u64>,
}

impl Ties {
    pub fn read(object: &Object, source: &mut dyn Source) -> Result<Self, ElfError> {
        let mut ties = Self::default();
        let mut kept = 0;
        object.symbols(source, |symbol| {
            if !of_torch(symbol.name) {
                return;
            }
            match symbol.linkage {
                Linkage::Undefined => {
                    kept += symbol.name.len();
                    if kept <= MOST_NAMES {
                        ties.needs.push(symbol.name.into());
                    }
                }
                Linkage::Exported => ties.export(symbol.name),
                Linkage::WeakUndefined => {}
            }
        })?;
        if kept > MOST_NAMES {
            let (what, limit) = ("set of names that torch has to define", MOST_NAMES as u64);
            return Err(ElfError {
                object: object.name.clone(),
                offset: 0,
                problem: elf::Problem::TooLarge { what, limit },
            });
        }
        Ok(ties)
    }

    /// Returns whether it passes new C++11 strings to torch. `None` if the needed names do not show it.
    pub fn new_abi(&self) -> Option<bool> {
        let holds = |text: &[u8]| {
            self.needs
                .iter()
                .any(|n| memchr::memmem::find(n, text).is_some())
        };
        if holds(NEW) {
            return Some(true);
        }
        // The two letters alone prove nothing: the demangled name has to contain a string type.
        let old = |name: &[u8]| {
            let text = readable(&String::from_utf8_lossy(name));
            text.contains("std::string") || text.contains("std::basic_string<char")
        };
        self.needs.iter().any(|n| old(n)).then_some(false)
    }

    fn export(&mut self, name: &[u8]) {
        self.exports.push(hash(name));
        match memchr::memmem::find(name, NEW) {
            Some(at) => self.before_new.push(hash(&name[..at])),
            None => self.before_old.extend(before_old(name)),
        }
    }
}

/// Hashes the prefix before each `Ss`, since the letters may also occur without meaning a string.
fn before_old(name: &[u8]) -> impl Iterator<Item = u64> {
    memchr::memmem::find_iter(name, OLD).map(|at| hash(&name[..at]))
}

/// Whether a name mentions one of torch's namespaces. `at` is also the name of many members, as of
/// `std::vector`, so it has to start a nested name.
fn of_torch(mangled: &[u8]) -> bool {
    let holds = |text: &[u8]| memchr::memmem::find(mangled, text).is_some();
    mentions(mangled, &["c10", "torch"])
        || mangled.starts_with(b"_Z") && (holds(b"N2at") || holds(b"NK2at"))
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

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
        let mut finding = tell(item, &missing, &other_abi);
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

fn tell(item: &Item, missing: &[&[u8]], other_abi: &[&[u8]]) -> Finding {
    let shown = |names: &[&[u8]]| {
        let names: Vec<String> = (names.iter())
            .map(|n| readable(&String::from_utf8_lossy(n)))
            .collect();
        some(&names, 3)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torchs_names_are_told_from_members_called_alike() {
        for (name, ours) in [
            ("_ZN3c105ErrorD1Ev", true),
            ("_ZNK2at10TensorBase4sizeEv", true),
            ("_Z16THPVariable_WrapN2at10TensorBaseE", true),
            (
                "_ZNKSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE2atEm",
                false,
            ),
            ("_ZNSt6vectorIiSaIiEE2atEm", false),
            ("torch_cuda", false),
        ] {
            assert_eq!(of_torch(name.as_bytes()), ours, "{name}");
        }
    }
}
