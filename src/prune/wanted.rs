//! Which entries of a container some of the GPUs may load.
//!
//! A driver takes machine code where it finds some that the GPU runs, of it the newest, and else
//! compiles PTX (CUDA C++ programming guide, "Application compatibility"). Of machine code that fits
//! equally, with a suffix and without, all stays; of PTX all that the GPU could run, as a driver may
//! be too old for the newest.

use crate::rules::{Coverage, coverage, ptx_runs, same, sass_runs};
use crate::spec::Sm;
use stackforge_binary::fatbin::{Entry, Kind};

/// What becomes of containers that none of the GPUs runs anything of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    Empty,
    Whole,
}

/// Whether each of an object's entries stays. What is neither machine code nor PTX does.
pub fn wanted(entries: &[Entry], sms: &[Sm], rest: Rest) -> Vec<bool> {
    let mut all = Vec::with_capacity(entries.len());
    for container in entries.chunk_by(|a, b| a.container == b.container) {
        let own = of_container(container, sms);
        let none = !own.contains(&true) && rest == Rest::Whole;
        let stays = |(entry, own): (&Entry, bool)| {
            own || none || !matches!(entry.kind, Kind::Sass | Kind::Ptx)
        };
        all.extend(container.iter().zip(own).map(stays));
    }
    all
}

fn of_container(entries: &[Entry], sms: &[Sm]) -> Vec<bool> {
    let of = |kind| entries.iter().filter(move |e| e.kind == kind).map(|e| e.sm);
    let sass: Vec<Sm> = of(Kind::Sass).collect();
    let ptx: Vec<Sm> = of(Kind::Ptx).collect();
    let mut stays = vec![false; entries.len()];
    for device in sms.iter().map(|sm| sm.base()) {
        // Whichever rules the driver follows.
        for aligned in [false, true] {
            let best = coverage(&sass, &ptx, device, aligned);
            let taken = |entry: &Entry| match best {
                Coverage::Native(best) => {
                    entry.kind == Kind::Sass
                        && same(entry.sm, best)
                        && sass_runs(entry.sm, device, aligned)
                }
                Coverage::Jit(_) => entry.kind == Kind::Ptx && ptx_runs(entry.sm, device),
                Coverage::None => false,
            };
            for (stays, entry) in stays.iter_mut().zip(entries) {
                *stays |= taken(entry);
            }
        }
    }
    stays
}
