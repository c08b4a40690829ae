//! Computes the cores and memory that a job requests, from the known needs of its compiles.

use stackforge_stack::matrix::Variant;

/// Parallel compilers for which a job requests cores and memory. More of them make a build shorter and its job
/// harder to place; users can change the emitted file.
const JOBS: u32 = 8;
/// Cores of a build that compiles nothing but unpacks and validates layers.
const WITHOUT_COMPILE: u32 = 4;
/// Memory besides the compilers', in GB: the engine, the page cache of its layers, the validation.
const ENGINE_GB: u32 = 8;

pub(super) struct Needs {
    pub(super) jobs: u32,
    pub(super) memory_gb: u32,
}

/// Returns the needs of the most demanding variant.
pub(super) fn most_demanding<'a>(variants: impl Iterator<Item = &'a Variant>) -> Needs {
    let compiles = variants.filter_map(|v| v.jobs.as_ref()).map(|j| {
        let jobs = j.max.unwrap_or(JOBS).clamp(1, JOBS);
        // Figures come from the catalog; a cast of one beyond u32 saturates.
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
