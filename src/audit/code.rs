//! The device code of one object, by module: the same kernels for one or more SMs.

use crate::elf::Object;
use crate::fatbin::{self, FatbinError, Kind, Place};
use crate::source::Source;
use crate::spec::Sm;
use std::collections::{BTreeMap, BTreeSet};

/// PTX for an SM, and the version of the ISA that a driver has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ptx {
    pub sm: Sm,
    pub isa: (u16, u16),
}

/// What the kernels of one source file were compiled to.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Module {
    pub sass: BTreeSet<Sm>,
    pub ptx: BTreeSet<Ptx>,
}

/// How many modules were compiled to the same SMs.
#[derive(Debug, Clone, Default)]
pub struct Code(pub BTreeMap<Module, usize>);

impl Code {
    pub fn read(object: &Object, source: &mut dyn Source) -> Result<Self, FatbinError> {
        let mut loaded: BTreeMap<u64, Module> = BTreeMap::new();
        let mut relocatable: BTreeMap<u64, Module> = BTreeMap::new();
        for entry in fatbin::entries(object, source) {
            let entry = entry?;
            let modules = match entry.place {
                Place::Relocatable => &mut relocatable,
                Place::Linked | Place::Bare => &mut loaded,
            };
            let module = modules.entry(entry.container).or_default();
            match entry.kind {
                Kind::Sass => {
                    module.sass.insert(entry.sm);
                }
                Kind::Ptx => {
                    let (sm, isa) = (entry.sm, entry.version);
                    module.ptx.insert(Ptx { sm, isa });
                }
                Kind::Nvvm | Kind::Other(_) => {}
            }
        }
        let linkable = common_ptx(relocatable.values());
        for module in loaded.values_mut().filter(|m| m.ptx.is_empty()) {
            module.ptx.clone_from(&linkable);
        }
        let modules = match loaded.is_empty() {
            true => relocatable,
            false => loaded,
        };
        let mut counts = BTreeMap::new();
        for module in modules.into_values() {
            if !module.sass.is_empty() || !module.ptx.is_empty() {
                *counts.entry(module).or_default() += 1;
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

/// PTX that most relocatable modules have: where no linked SASS fits, the driver compiles and links
/// it when the object is loaded (nvcc's manual, "JIT linking").
fn common_ptx<'a>(relocatable: impl Iterator<Item = &'a Module>) -> BTreeSet<Ptx> {
    let mut counts: BTreeMap<&BTreeSet<Ptx>, usize> = BTreeMap::new();
    for module in relocatable {
        *counts.entry(&module.ptx).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(ptx, _)| ptx.clone()).unwrap_or_default()
}
