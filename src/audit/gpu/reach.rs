//! Finds the GPUs that a target runs on, for the variants of an index.
//!
//! In: the objects of a tree, and the GPUs that it has to run on. Out: a [`Reach`]. A target runs if [`check`]
//! finds no error: a library's core runs, though single kernels may not.

use super::{Counts, Gpu, Verdicts, check, compiler, counting};
use crate::object::Item;
use crate::packages::of_nvidia;
use crate::world::World;
use serde::Serialize;
use stackforge_binary::elf::Machine;
use stackforge_stack::spec::Sm;
use stackforge_types::Suffix;
use std::collections::BTreeSet;

/// The GPUs that run a target, besides those that the audit was asked about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reach {
    /// The required GPUs for which the libraries have machine code. The suffix `a` means that newer GPUs of the
    /// family do not run it.
    pub native: Vec<Sm>,
    /// GPUs that run some libraries by machine code and others by PTX. Nothing follows for newer GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mixed: Vec<Sm>,
    /// The oldest driver for `mixed`, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed_driver: Option<String>,
    /// The lowest SM from which every GPU runs the target, because its driver compiles PTX of all libraries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptx: Option<Sm>,
    /// The oldest driver that compiles that PTX, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptx_driver: Option<String>,
}

impl Reach {
    /// `None` for a target without device code, or if no GPU was asked about.
    pub fn of(world: &World<'_>, verdicts: &Verdicts, gpus: &[Gpu]) -> Option<Self> {
        if verdicts.is_empty() || gpus.is_empty() {
            return None;
        }
        let required = gpus.iter().filter(|gpu| gpu.required).map(|gpu| gpu.sm);
        let required: BTreeSet<Sm> = required.collect();
        let native = |sm: &Sm| {
            runs(world, *sm, Counts::Sass)?;
            let family = runs(world, *sm, Counts::Family).is_some();
            let suffix = (!family).then_some(Suffix::Arch);
            Some(Sm { suffix, ..*sm })
        };
        let native: Vec<Sm> = required.iter().filter_map(native).collect();
        let code = world.items.iter().filter(|item| decides(item));
        let code = code.flat_map(|item| item.code.ptx()).map(|ptx| ptx.sm);
        let candidates: BTreeSet<Sm> = code.filter(|sm| sm.suffix.is_none()).collect();
        let mut candidates = candidates.into_iter();
        let ptx = candidates.find_map(|sm| Some((sm, runs(world, sm, Counts::Ptx)?)));
        let is_native = |sm: Sm| native.iter().any(|own| own.base() == sm);
        let covered = |sm: Sm| is_native(sm) || ptx.is_some_and(|(from, _)| from <= sm);
        let mixed = required.into_iter().filter(|sm| !covered(*sm));
        let mixed = mixed.filter_map(|sm| Some((sm, runs(world, sm, Counts::All)?)));
        let (mixed, isas): (Vec<Sm>, Vec<_>) = mixed.unzip();
        let driver = |isa: (u16, u16)| compiler(world.catalog, isa).map(str::to_owned);
        Some(Self {
            mixed_driver: isas.into_iter().max().and_then(driver),
            mixed,
            ptx: ptx.map(|(sm, _)| sm),
            ptx_driver: ptx.and_then(|(_, isa)| driver(isa)),
            native,
        })
    }
}

/// Whether the target depends on this object's device code. CUDA's own libraries choose among kernels
/// themselves, and a cubin is one of several alternatives.
fn decides(item: &Item) -> bool {
    !of_nvidia(&item.path) && item.object.machine != Machine::Cuda
}

/// Returns the version of the newest PTX that a GPU compiles if only some code is considered, 0.0 for none.
/// `None` if a required object does not run.
fn runs(world: &World<'_>, sm: Sm, counts: Counts) -> Option<(u16, u16)> {
    let gpu = Gpu {
        name: format!("sm_{}", sm.digits()),
        sm,
        required: true,
    };
    let gpus = [gpu];
    let verdicts = counting(world, world.items, &gpus, counts);
    let mut findings = Vec::new();
    check(world, &verdicts, &gpus, &mut findings);
    if findings.iter().any(|finding| finding.is_error()) {
        return None;
    }
    let deciding = verdicts
        .iter()
        .filter(|(index, _)| decides(&world.items[**index]));
    let isas = deciding.flat_map(|(_, verdicts)| verdicts.iter().filter_map(|v| v.isa));
    Some(isas.max().unwrap_or_default())
}
