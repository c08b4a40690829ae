//! Decides which entries of a container some of the GPUs may load.
//!
//! A driver takes the newest machine code that the GPU runs; if there is none, it compiles PTX (CUDA C++
//! programming guide, "Application compatibility"). Equally fitting machine code, with and without a suffix,
//! all stays. All PTX that the GPU could run stays, since a driver may be too old for the newest.

use stackforge_binary::fatbin::{CodeKind, Entry};
use stackforge_gpu::{Coverage, coverage, ptx_runs, same, sass_runs};
use stackforge_stack::spec::Sm;

/// What to do with containers of which none of the GPUs runs anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    Empty,
    Whole,
}

/// Returns whether each of an object's entries stays. Entries that are neither machine code nor PTX stay.
pub fn wanted(entries: &[Entry], sms: &[Sm], rest: Rest) -> Vec<bool> {
    let mut all = Vec::with_capacity(entries.len());
    for container in entries.chunk_by(|a, b| a.container == b.container) {
        let own = of_container(container, sms);
        let none = !own.contains(&true) && rest == Rest::Whole;
        let stays = |(entry, own): (&Entry, bool)| {
            own || none || !matches!(entry.kind, CodeKind::Sass | CodeKind::Ptx)
        };
        all.extend(container.iter().zip(own).map(stays));
    }
    all
}

fn of_container(entries: &[Entry], sms: &[Sm]) -> Vec<bool> {
    let of = |kind| entries.iter().filter(move |e| e.kind == kind).map(|e| e.sm);
    let sass: Vec<Sm> = of(CodeKind::Sass).collect();
    let ptx: Vec<Sm> = of(CodeKind::Ptx).collect();
    let mut stays = vec![false; entries.len()];
    for device in sms.iter().map(|sm| sm.base()) {
        // The driver may follow either set of rules.
        for aligned in [false, true] {
            let best = coverage(&sass, &ptx, device, aligned);
            let is_needed = |entry: &Entry| match best {
                Coverage::Native(best) => {
                    entry.kind == CodeKind::Sass
                        && same(entry.sm, best)
                        && sass_runs(entry.sm, device, aligned)
                }
                Coverage::Jit(_) => entry.kind == CodeKind::Ptx && ptx_runs(entry.sm, device),
                Coverage::None => false,
            };
            for (stays, entry) in stays.iter_mut().zip(entries) {
                *stays |= is_needed(entry);
            }
        }
    }
    stays
}
