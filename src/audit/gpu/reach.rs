//! On which GPUs all of a target runs, as the variants of an index have to say it.
//!
//! In: the objects of a tree, the GPUs that it has to run on. Out: a [`Reach`]. What has to run is what
//! [`check`] calls an error when it does not.

use super::{Counts, Gpu, Verdicts, check, counting, toolkit};
use crate::audit::closure::World;
use crate::spec::Sm;
use serde::Serialize;
use std::collections::BTreeSet;

/// What runs a target, beside the GPUs that it was asked about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reach {
    /// Of the GPUs that it has to run on, those that find machine code for all of it.
    pub native: Vec<Sm>,
    /// From this SM on every GPU runs all of it: its driver compiles the PTX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptx: Option<Sm>,
    /// The oldest driver that compiles that PTX, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptx_driver: Option<String>,
    /// The oldest driver for GPUs that run some of it natively and some by PTX, where there are such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed_driver: Option<String>,
}

impl Reach {
    /// None for what has no device code.
    pub fn of(world: &World<'_>, verdicts: &Verdicts, gpus: &[Gpu]) -> Option<Self> {
        if verdicts.is_empty() {
            return None;
        }
        let meant = gpus.iter().filter(|gpu| gpu.meant).map(|gpu| gpu.sm);
        let meant: BTreeSet<Sm> = meant.collect();
        let native = |sm: &Sm| runs(world, *sm, Counts::Sass).is_some();
        let native: Vec<Sm> = meant.iter().copied().filter(native).collect();
        let code = world.items.iter().flat_map(|item| item.code.ptx());
        let code = code.map(|ptx| ptx.sm).filter(|sm| sm.suffix.is_none());
        let mut candidates = code.collect::<BTreeSet<Sm>>().into_iter();
        let ptx = candidates.find_map(|sm| Some((sm, runs(world, sm, Counts::Ptx)?)));
        let covered = |sm: Sm| native.contains(&sm) || ptx.is_some_and(|(from, _)| from <= sm);
        let mixed = meant.iter().filter(|sm| !covered(**sm));
        let mixed = mixed.filter_map(|sm| runs(world, *sm, Counts::All)).max();
        let driver = |isa: (u16, u16)| toolkit(world.catalog, isa)?.driver.toolkit.clone();
        Some(Self {
            ptx: ptx.map(|(sm, _)| sm),
            ptx_driver: ptx.and_then(|(_, isa)| driver(isa)),
            mixed_driver: mixed.and_then(driver),
            native,
        })
    }
}

/// Version of the newest PTX that a GPU compiles when only some code counts, 0.0 for none; None if
/// something that has to run does not.
fn runs(world: &World<'_>, sm: Sm, counts: Counts) -> Option<(u16, u16)> {
    let gpu = Gpu {
        name: format!("sm_{}", sm.digits()),
        sm,
        meant: true,
    };
    let gpus = [gpu];
    let verdicts = counting(world, world.items, &gpus, counts);
    let mut findings = Vec::new();
    check(world, &verdicts, &gpus, &mut findings);
    if findings.iter().any(|finding| finding.is_error()) {
        return None;
    }
    let isas = verdicts.values().flatten().filter_map(|v| v.isa);
    Some(isas.max().unwrap_or_default())
}
