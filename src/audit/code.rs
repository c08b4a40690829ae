//! The device code of one object by module; a module has the same kernels for one or more SMs.

use stackforge_binary::elf::Object;
use stackforge_binary::fatbin::{self, CodeKind, Entry, FatbinError, Place};
use stackforge_binary::source::Source;
use stackforge_stack::spec::Sm;
use std::collections::{BTreeMap, BTreeSet};

/// PTX for an SM, and the ISA version that a driver has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ptx {
    pub sm: Sm,
    pub isa: (u16, u16),
}

/// The code that the kernels of one source file were compiled to.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Module {
    pub sass: BTreeSet<Sm>,
    pub ptx: BTreeSet<Ptx>,
}

/// The number of modules for each set of SMs.
#[derive(Debug, Clone, Default)]
pub struct Code(pub BTreeMap<Module, usize>);

impl Code {
    /// Reads the modules of an object. Keeps only one besides those that differ, since an object may have a
    /// container for every eighty bytes.
    pub fn read(object: &Object, source: &mut dyn Source) -> Result<Self, FatbinError> {
        Self::from_entries(fatbin::entries(object, source))
    }

    pub fn from_entries(
        entries: impl IntoIterator<Item = Result<Entry, FatbinError>>,
    ) -> Result<Self, FatbinError> {
        let mut loaded = Containers::default();
        let mut relocatable = Containers::default();
        for entry in entries {
            let entry = entry?;
            let containers = match entry.place {
                Place::Relocatable => &mut relocatable,
                Place::Linked | Place::Bare => &mut loaded,
            };
            let module = containers.module(entry.container);
            match entry.kind {
                CodeKind::Sass => {
                    module.sass.insert(entry.sm);
                }
                CodeKind::Ptx => {
                    let (sm, isa) = (entry.sm, entry.version);
                    module.ptx.insert(Ptx { sm, isa });
                }
                CodeKind::Nvvm | CodeKind::Other(_) => {}
            }
        }
        let (loaded, relocatable) = (loaded.finish(), relocatable.finish());
        let (modules, linkable) = if loaded.is_empty() {
            (relocatable, BTreeSet::new())
        } else {
            (loaded, common_ptx(&relocatable))
        };
        let mut counts = BTreeMap::new();
        for (mut module, count) in modules {
            if module.ptx.is_empty() {
                module.ptx.clone_from(&linkable);
            }
            if !module.sass.is_empty() || !module.ptx.is_empty() {
                *counts.entry(module).or_default() += count;
            }
        }
        Ok(Self(counts))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn sass(&self) -> BTreeSet<Sm> {
        self.0.keys().flat_map(|m| m.sass.iter().copied()).collect()
    }

    pub fn ptx(&self) -> BTreeSet<Ptx> {
        self.0.keys().flat_map(|m| m.ptx.iter().copied()).collect()
    }
}

/// Counts the modules of successive containers.
#[derive(Default)]
struct Containers {
    counts: BTreeMap<Module, usize>,
    /// Offset and module of the last container.
    last: Option<(u64, Module)>,
}

impl Containers {
    fn module(&mut self, container: u64) -> &mut Module {
        if self.last.as_ref().is_none_or(|(at, _)| *at != container) {
            self.close();
        }
        let (_, module) = self
            .last
            .get_or_insert_with(|| (container, Module::default()));
        module
    }

    fn close(&mut self) {
        if let Some((_, module)) = self.last.take() {
            *self.counts.entry(module).or_default() += 1;
        }
    }

    fn finish(mut self) -> BTreeMap<Module, usize> {
        self.close();
        self.counts
    }
}

/// Returns the PTX that most relocatable modules have: if no linked SASS fits, the driver compiles and links
/// it when the object is loaded (nvcc's manual, "JIT linking").
fn common_ptx(relocatable: &BTreeMap<Module, usize>) -> BTreeSet<Ptx> {
    let mut counts: BTreeMap<&BTreeSet<Ptx>, usize> = BTreeMap::new();
    for (module, count) in relocatable {
        *counts.entry(&module.ptx).or_default() += count;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(ptx, _)| ptx.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackforge_binary::samples::object::Build;

    /// Returns an entry without code.
    fn entry(kind: u8, sm: u8) -> [u8; 64] {
        let mut entry = [0; 64];
        entry[..8].copy_from_slice(&[kind, 0, 1, 1, 64, 0, 0, 0]);
        entry[28] = sm;
        entry
    }

    fn container(entries: &[[u8; 64]]) -> Vec<u8> {
        let mut out = b"\x50\xed\x55\xba\x01\x00\x10\x00".to_vec();
        out.extend((64 * entries.len() as u64).to_le_bytes());
        out.extend(entries.as_flattened());
        out
    }

    fn code(sections: &[(&'static str, Vec<u8>)]) -> Vec<(Vec<String>, usize, usize)> {
        let build = Build {
            sections: sections.to_vec(),
            ..Build::default()
        };
        let bytes = build.bytes();
        let object = Object::read("x", &mut &bytes[..], &fatbin::SECTIONS).unwrap();
        let code = Code::read(&object, &mut &bytes[..]).unwrap();
        let shown = |m: &Module| m.sass.iter().map(Sm::digits).collect();
        let all = code.0.iter();
        all.map(|(m, n)| (shown(m), m.ptx.len(), *n)).collect()
    }

    #[test]
    fn modules_that_are_alike_are_counted() {
        let (ptx, sass) = (1, 2);
        let two = container(&[entry(sass, 80), entry(sass, 90)]);
        let one = container(&[entry(sass, 90), entry(ptx, 90)]);
        let linked = [&two[..], &one, &two, &container(&[])].concat();
        let names = |sms: &[&str]| sms.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            code(&[(".nv_fatbin", linked.clone())]),
            [(names(&["80", "90"]), 0, 2), (names(&["90"]), 1, 1)]
        );
        // Linkable PTX serves modules that have none.
        let relocatable = [&one[..], &one, &two].concat();
        let both = [
            (".nv_fatbin", linked),
            ("__nv_relfatbin", relocatable.clone()),
        ];
        assert_eq!(
            code(&both),
            [(names(&["80", "90"]), 1, 2), (names(&["90"]), 1, 1)]
        );
        assert_eq!(
            code(&[("__nv_relfatbin", relocatable)]),
            [(names(&["80", "90"]), 0, 1), (names(&["90"]), 1, 2)]
        );
    }
}
