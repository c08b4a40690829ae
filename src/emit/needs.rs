//! Cores and memory that a job asks for, from what its compiles are known to need.

use crate::matrix::Variant;

/// Compilers at once that a job is given cores and memory for. More of them shorten a build
/// and make its job harder to place; the emitted file is the place to change it.
const JOBS: u32 = 8;
/// Cores of a build that compiles nothing: layers are unpacked and validated.
const WITHOUT_COMPILE: u32 = 4;
/// Memory beside the compilers: the engine, the page cache of its layers, the validation.
const ENGINE_GB: u32 = 8;

pub(super) struct Needs {
    pub(super) jobs: u32,
    pub(super) memory_gb: u32,
}

/// What the most demanding of the variants needs.
pub(super) fn of<'a>(variants: impl Iterator<Item = &'a Variant>) -> Needs {
    let compiles = variants.filter_map(|v| v.jobs.as_ref()).map(|j| {
        let jobs = j.max.unwrap_or(JOBS).clamp(1, JOBS);
        // A catalog's figure; beyond u32 a cast stays at its end.
        (jobs, (f64::from(jobs) * j.memory_gb).ceil() as u32)
    });
    let (jobs, memory) = compiles
        .reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
        .unwrap_or((WITHOUT_COMPILE, 0));
    Needs {
        jobs,
        memory_gb: memory.saturating_add(ENGINE_GB),
    }
}
