//! Reports what does not run on the required GPUs, by package.
//!
//! A library with core objects (the catalog's `core`) is useless if one of them does not run: an error,
//! whatever else of it runs. Without known core objects it is an error if none of its objects runs.
//! Everything else is a warning that names the object. CUDA's own libraries choose kernels, and compile
//! some, for the GPU at run time, so their gaps are notes.

use super::{Gpu, Modules, RunMode, Verdicts};
use crate::finding::{Finding, list_names};
use crate::missing::alternatives;
use crate::packages::{of_nvidia, package};
use crate::tree::split;
use crate::world::World;
use stackforge_binary::elf::Machine;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::spec::Sm;
use std::collections::{BTreeMap, BTreeSet};

/// Objects that a message names at most.
const NAMED: usize = 3;

pub fn check(world: &World<'_>, verdicts: &Verdicts, gpus: &[Gpu], findings: &mut Vec<Finding>) {
    let groups = alternatives(world);
    for (n, gpu) in gpus.iter().enumerate().filter(|(_, g)| g.required) {
        let runs = |index: &usize| verdicts[index][n].how != RunMode::None;
        // Of alternative objects only one is loaded.
        let served = |index: &usize| {
            let group = groups.iter().find(|g| g.contains(index));
            runs(index)
                || group.is_some_and(|g| g.iter().any(|i| verdicts.contains_key(i) && runs(i)))
        };
        for ((package, cubins), objects) in &packages(world, verdicts) {
            let missing: Vec<usize> = objects.iter().copied().filter(|i| !served(i)).collect();
            let part = Part {
                world,
                gpu,
                package,
                cubins: *cubins,
            };
            findings.extend(part.uncovered(objects, &missing));
            let forgotten = |i: &usize| (*i, verdicts[i][n].modules);
            let running = objects.iter().filter(|i| runs(i)).map(forgotten);
            findings.extend(part.forgotten(running.collect()));
        }
    }
}

/// Groups objects with device code by package. Cubins form their own group, since each is for one SM.
fn packages<'a>(
    world: &'a World<'_>,
    verdicts: &Verdicts,
) -> BTreeMap<(&'a str, bool), Vec<usize>> {
    let mut packages: BTreeMap<(&str, bool), Vec<usize>> = BTreeMap::new();
    for index in verdicts.keys() {
        let item = &world.items[*index];
        let key = (package(&item.path), item.object.machine == Machine::Cuda);
        packages.entry(key).or_default().push(*index);
    }
    packages
}

/// A package's objects, judged for one GPU.
struct Part<'a> {
    world: &'a World<'a>,
    gpu: &'a Gpu,
    package: &'a str,
    cubins: bool,
}

impl Part<'_> {
    fn path(&self, index: usize) -> &str {
        &self.world.items[index].path
    }

    /// Lists objects as in `a`, `b` and 3 more, and the code that they have.
    fn named(&self, objects: &[usize]) -> (String, String) {
        let code = objects.iter().map(|i| &self.world.items[*i].code);
        let has: BTreeSet<Sm> = code
            .flat_map(|c| {
                c.sass()
                    .into_iter()
                    .chain(c.ptx().into_iter().map(|p| p.sm))
            })
            .collect();
        let has: Vec<String> = has.iter().map(|sm| format!("sm_{}", sm.digits())).collect();
        let paths: Vec<&str> = objects.iter().map(|i| self.path(*i)).collect();
        (list_names(&paths, NAMED), has.join(", "))
    }

    fn uncovered(&self, objects: &[usize], missing: &[usize]) -> Option<Finding> {
        let first = *missing.first()?;
        let whole = missing.len() == objects.len();
        let gpu = self.gpu.shown();
        if self.cubins {
            let (_, has) = self.named(missing);
            let message = format!(
                "none of the {} cubins of {} is for {gpu}, they are for {has}",
                missing.len(),
                self.package
            );
            let warning = Diagnostic::warning(codes::SM_NOT_COVERED, message)
                .help("kernels that it has no cubin for are compiled when they are first called, or do not run");
            return whole.then(|| Finding::new(self.path(first), warning));
        }
        if of_nvidia(self.path(first)) {
            let (paths, has) = self.named(missing);
            let message =
                format!("{paths} has no code for {gpu} before it compiles some, only for {has}");
            let note = Diagnostic::note(codes::SM_NOT_COVERED, message);
            return Some(Finding::new(self.path(first), note));
        }
        let is_core = |i: &usize| {
            self.world
                .catalog
                .is_core(self.package, split(self.path(*i)).1)
        };
        let core: Vec<usize> = missing.iter().copied().filter(is_core).collect();
        let refused = if objects.iter().any(is_core) {
            core.as_slice()
        } else if whole {
            missing
        } else {
            &[]
        };
        Some(match refused.first() {
            Some(first) => {
                let (paths, has) = self.named(refused);
                let package = self.package;
                let message = if package == self.path(*first) {
                    format!("{paths} does not run on {gpu}: it has code for {has} only")
                } else {
                    format!("{package} does not run on {gpu}: {paths} has code for {has} only")
                };
                let error = Diagnostic::error(codes::SM_NOT_COVERED, message);
                Finding::new(self.path(*first), error)
            }
            None => {
                let (paths, has) = self.named(missing);
                let message = format!(
                    "{} runs on {gpu}, but not {paths}, which has code for {has} only",
                    self.package
                );
                let warning = Diagnostic::warning(codes::SM_NOT_COVERED, message)
                    .help("fine where nothing calls these kernels; else build the library from source for the SM");
                Finding::new(self.path(first), warning)
            }
        })
    }

    /// Reports kernels for older GPUs only, in objects that otherwise run.
    fn forgotten(&self, running: Vec<(usize, Modules)>) -> Option<Finding> {
        let mut with: Vec<(usize, Modules)> = running
            .into_iter()
            .filter(|(i, m)| m.forgotten > 0 && !of_nvidia(self.path(*i)))
            .collect();
        with.sort_by_key(|(_, m)| std::cmp::Reverse(m.forgotten));
        let (first, _) = *with.first()?;
        let each: Vec<String> = (with.iter().take(NAMED))
            .map(|(i, m)| {
                let all = m.native + m.jit + m.none;
                format!(
                    "{} of the {all} modules of `{}`",
                    m.forgotten,
                    self.path(*i)
                )
            })
            .collect();
        let more = match with.len().checked_sub(NAMED) {
            None | Some(0) => String::new(),
            Some(more) => format!(", and some of {more} more objects"),
        };
        let message = format!(
            "{} runs on {}, but {}{more} have code for older GPUs only",
            self.package,
            self.gpu.shown(),
            each.join(", ")
        );
        let help = "it works unless it calls one of these kernels; a build for the SM has all";
        let warning = Diagnostic::warning(codes::SM_NOT_COVERED, message).help(help);
        Some(Finding::new(self.path(first), warning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_folders_below_site_packages() {
        assert_eq!(
            package("lib/python3.12/site-packages/torch/lib/a.so"),
            "torch"
        );
        assert_eq!(package("xformers/_C.so"), "xformers");
        assert_eq!(package("opt/x-1-py3-none-any.whl/x/_C.so"), "x");
        assert_eq!(
            package("nvidia/cu13/lib/libcublas.so.13"),
            "nvidia/cu13/lib/libcublas.so.13"
        );
        assert_eq!(package("_C.so"), "_C.so");
    }
}
