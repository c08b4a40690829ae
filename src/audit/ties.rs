//! The symbols that tie an object to torch.
//!
//! In: an object. Out: [`Ties`]: names of the symbols of torch's namespaces that it needs, and hashes of those that
//! it exports, since objects may come from a stream that is read once.

use stackforge_binary::elf::{self, ElfError, Linkage, Object, mentions};
use stackforge_binary::source::Source;
use stackforge_stack::diagnose::readable;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The Itanium C++ ABI's code for the old `std::string`, and the namespace of the new one.
const OLD: &[u8] = b"Ss";
pub(super) const NEW: &[u8] = b"NSt7__cxx11";

/// Most bytes of kept names for one object, whose string table may have gigabytes.
const MOST_NAMES: usize = 16 << 20;

/// The symbols that tie an object to torch.
#[derive(Debug, Default)]
pub struct Ties {
    /// Mangled names of the symbols that it needs.
    pub(super) needs: Vec<Box<[u8]>>,
    /// Hashes of the names of the symbols that it exports.
    pub(super) exports: Vec<u64>,
    /// Hashes of the exported names' prefixes before the first new string (here) and before each old one.
    pub(super) before_new: Vec<u64>,
    pub(super) before_old: Vec<u64>,
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
pub(super) fn before_old(name: &[u8]) -> impl Iterator<Item = u64> {
    memchr::memmem::find_iter(name, OLD).map(|at| hash(&name[..at]))
}

/// Whether a name mentions one of torch's namespaces. `at` is also the name of many members, as of
/// `std::vector`, so it has to start a nested name.
fn of_torch(mangled: &[u8]) -> bool {
    let holds = |text: &[u8]| memchr::memmem::find(mangled, text).is_some();
    mentions(mangled, &["c10", "torch"])
        || mangled.starts_with(b"_Z") && (holds(b"N2at") || holds(b"NK2at"))
}

pub(super) fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
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
