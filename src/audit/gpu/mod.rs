//! Decides whether GPUs run the device code of each object.
//!
//! In: the code by module, and GPUs. Out: a [`Verdict`] for each object and GPU, and findings by package. Most
//! of an object's modules decide: a few kernels for further SMs do not support a GPU, and a few kernels
//! without an SM do not spoil the others.

mod findings;
mod reach;

use super::code::{Code, Module, Ptx};
use super::object::Item;
use super::packages::of_nvidia;
use super::world::World;
use serde::Serialize;
use stackforge_gpu::{Coverage, aligned, coverage};
use stackforge_stack::catalog::{Catalog, Toolkit, numbers};
use stackforge_stack::spec::Sm;
use stackforge_types::Suffix;
use std::collections::{BTreeMap, BTreeSet};

pub use findings::check;
pub use reach::Reach;

/// A GPU that code is judged for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Name of the GPU, as the user typed it.
    pub name: String,
    pub sm: Sm,
    /// Whether the target has to run there: if it does not, that is a finding.
    pub required: bool,
}

impl Gpu {
    /// For people: `h100 (sm_90)`.
    fn shown(&self) -> String {
        shown(&self.name, self.sm)
    }
}

/// Returns a GPU's name with its SM.
pub(super) fn shown(name: &str, sm: Sm) -> String {
    let sm = format!("sm_{}", sm.digits());
    if name == sm {
        sm
    } else {
        format!("{name} ({sm})")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunMode {
    /// No code runs: `no kernel image is available for execution on the device`.
    None,
    /// The driver compiles PTX.
    Jit,
    Native,
}

/// How a GPU runs an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub gpu: String,
    pub sm: Sm,
    pub how: RunMode,
    /// SMs of the code that runs.
    pub code: BTreeSet<Sm>,
    pub modules: Modules,
    /// Driver that is needed to compile the PTX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// ISA version of the newest PTX that runs.
    #[serde(skip)]
    isa: Option<(u16, u16)>,
}

/// Which code to consider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    All,
    /// Machine code only.
    Sass,
    /// Only machine code that newer GPUs of the family run too.
    Family,
    /// Only code that every newer GPU runs: PTX without a suffix.
    Ptx,
}

/// Number of modules by how they run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Modules {
    pub native: usize,
    pub jit: usize,
    pub none: usize,
    /// Modules of `none` that were made for several older GPUs, not for one special GPU.
    #[serde(skip)]
    forgotten: usize,
}

/// Verdicts on each object with device code, by the object's index.
pub type Verdicts = BTreeMap<usize, Vec<Verdict>>;

/// Judges `items`, which are the objects of the tree or of wheels in it.
pub fn verdicts(world: &World<'_>, items: &[Item], gpus: &[Gpu]) -> Verdicts {
    counting(world, items, gpus, Counts::All)
}

fn counting(world: &World<'_>, items: &[Item], gpus: &[Gpu], counts: Counts) -> Verdicts {
    let aligned = aligned(cuda(world));
    let with_code = items.iter().enumerate().filter(|(_, i)| !i.code.is_empty());
    with_code
        .map(|(index, item)| {
            let judge = |gpu| verdict(world.catalog, &item.code, gpu, aligned, counts);
            (index, gpus.iter().map(judge).collect())
        })
        .collect()
}

/// Returns the CUDA version of the runtime's package in the tree.
fn cuda(world: &World<'_>) -> (u32, u32) {
    let runtime = world.tree.paths.iter().find_map(|path| {
        let top = path.rsplit_once(".dist-info/")?.0;
        let (name, version) = top.rsplit('/').next()?.split_once('-')?;
        name.starts_with("nvidia_cuda_runtime").then_some(version)
    });
    let mut parts = runtime
        .unwrap_or("")
        .split('.')
        .map(|p| p.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn verdict(catalog: &Catalog, code: &Code, gpu: &Gpu, aligned: bool, counts: Counts) -> Verdict {
    let mut modules = Modules::default();
    let mut native = BTreeSet::new();
    let mut jit: BTreeSet<Ptx> = BTreeSet::new();
    for (module, count) in &code.0 {
        match runs(module, gpu.sm, aligned, counts) {
            Coverage::Native(sm) => {
                modules.native += count;
                native.insert(sm);
            }
            Coverage::Jit(sm) => {
                modules.jit += count;
                jit.extend(module.ptx.iter().filter(|p| p.sm == sm));
            }
            Coverage::None => {
                modules.none += count;
                if older(module, gpu.sm) {
                    modules.forgotten += count;
                }
            }
        }
    }
    let how = run_mode(&modules, best(code, aligned));
    let isa = jit.iter().map(|p| p.isa).max();
    Verdict {
        gpu: gpu.name.clone(),
        sm: gpu.sm,
        how,
        code: native.into_iter().chain(jit.iter().map(|p| p.sm)).collect(),
        modules,
        driver: isa.map(|isa| driver(catalog, isa)),
        isa,
    }
}

fn run_mode(modules: &Modules, best: usize) -> RunMode {
    let running = modules.native + modules.jit;
    if 2 * running < best || running == 0 {
        RunMode::None
    } else if modules.native >= modules.jit {
        RunMode::Native
    } else {
        RunMode::Jit
    }
}

/// Returns an audit's verdict on an object of a wheel for an SM: how all of its code runs, how its machine
/// code runs, and whether some code is for older GPUs only; first by CUDA's rules before 13.2, then by those
/// since. Pruning must not change this.
pub fn verdicts_for_sm(
    catalog: &Catalog,
    path: &str,
    code: &Code,
    sm: Sm,
) -> [(RunMode, RunMode, bool); 2] {
    let gpu = Gpu {
        name: String::new(),
        sm,
        required: true,
    };
    [false, true].map(|aligned| {
        let judge = |counts| verdict(catalog, code, &gpu, aligned, counts);
        let all = judge(Counts::All);
        let runs = all.how != RunMode::None;
        let forgotten = runs && all.modules.forgotten > 0 && !of_nvidia(path);
        (all.how, judge(Counts::Sass).how, forgotten)
    })
}

fn runs(module: &Module, device: Sm, aligned: bool, counts: Counts) -> Coverage {
    let sass = module.sass.iter().copied().filter(|sm| match counts {
        Counts::All | Counts::Sass => true,
        Counts::Family => sm.suffix != Some(Suffix::Arch),
        Counts::Ptx => false,
    });
    let sass: Vec<Sm> = sass.collect();
    let ptx = module.ptx.iter().map(|p| p.sm).filter(|sm| match counts {
        Counts::All => true,
        Counts::Sass | Counts::Family => false,
        Counts::Ptx => sm.suffix.is_none(),
    });
    let ptx: Vec<Sm> = ptx.collect();
    coverage(&sass, &ptx, device, aligned)
}

/// Returns the number of modules that run on the GPU that the code serves best.
fn best(code: &Code, aligned: bool) -> usize {
    let devices: BTreeSet<Sm> = code
        .sass()
        .into_iter()
        .chain(code.ptx().iter().map(|p| p.sm))
        .collect();
    let running = |device: &Sm| {
        let modules = code.0.iter();
        let running =
            modules.filter(|(m, _)| runs(m, device.base(), aligned, Counts::All) != Coverage::None);
        running.map(|(_, count)| count).sum()
    };
    devices.iter().map(running).max().unwrap_or(0)
}

/// Whether a module is made for all GPUs of its time, all older than `device`. Special kernels have code for
/// one SM only (FP8 for 8.9) or an SM with a suffix.
fn older(module: &Module, device: Sm) -> bool {
    let sms = module.sass.iter().chain(module.ptx.iter().map(|p| &p.sm));
    let plain: BTreeSet<&Sm> = sms.filter(|sm| sm.suffix.is_none()).collect();
    plain.len() > 1 && plain.iter().any(|sm| sm.base() < device)
}

/// Describes the driver that knows an ISA version, by the toolkit that introduced it.
fn driver(catalog: &Catalog, isa: (u16, u16)) -> String {
    match toolkit(catalog, isa).map(|t| (&t.version, &t.driver.toolkit)) {
        Some((version, Some(driver))) => format!("{driver} (CUDA {version})"),
        Some((version, None)) => format!("of CUDA {version}"),
        None => format!("that knows PTX {}.{}", isa.0, isa.1),
    }
}

/// Returns the toolkit that introduced an ISA version.
fn toolkit(catalog: &Catalog, isa: (u16, u16)) -> Option<&Toolkit> {
    let isa = format!("{}.{}", isa.0, isa.1);
    let mut toolkits = catalog.toolkits.iter();
    toolkits.find(|t| t.ptx.as_ref() == Some(&isa))
}

/// Returns the oldest driver that is known to compile an ISA version: that of the first toolkit, with this
/// ISA or a newer one, whose driver is known.
fn compiler(catalog: &Catalog, isa: (u16, u16)) -> Option<&str> {
    let wanted = [u32::from(isa.0), u32::from(isa.1)];
    let known = catalog.toolkits.iter().filter_map(|toolkit| {
        let ptx = numbers(toolkit.ptx.as_deref()?);
        let driver = toolkit.driver.toolkit.as_deref()?;
        (ptx[..] >= wanted[..]).then_some((ptx, numbers(driver), driver))
    });
    known.min().map(|(_, _, driver)| driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(sass: &[&str], ptx: &[&str]) -> Module {
        let sm = |s: &&str| s.parse::<Sm>().unwrap();
        Module {
            sass: sass.iter().map(sm).collect(),
            ptx: ptx
                .iter()
                .map(sm)
                .map(|sm| Ptx { sm, isa: (8, 7) })
                .collect(),
        }
    }

    fn judged(code: &[(Module, usize)], device: &str) -> Verdict {
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let gpu = Gpu {
            name: "x".into(),
            sm: device.parse().unwrap(),
            required: true,
        };
        let code = Code(code.iter().cloned().collect());
        verdict(&catalog, &code, &gpu, false, Counts::All)
    }

    #[test]
    fn most_modules_decide() {
        let code = [
            (module(&["7.5", "8.0", "9.0"], &["9.0"]), 90),
            (module(&["9.0a"], &[]), 4),
            (module(&["11.0a"], &[]), 1),
        ];
        let hopper = judged(&code, "9.0");
        assert_eq!((hopper.how, hopper.modules.native), (RunMode::Native, 94));
        assert_eq!(hopper.modules.forgotten, 0, "Thor's kernel is not Hopper's");
        let thor = judged(&code, "11.0");
        assert_eq!(
            (thor.how, thor.modules.jit, thor.modules.native),
            (RunMode::Jit, 90, 1)
        );
        assert_eq!(thor.driver.as_deref(), Some("570.26 (CUDA 12.8)"));
        assert_eq!(judged(&code, "7.0").how, RunMode::None);
    }

    #[test]
    fn a_single_kernel_supports_no_gpu_and_spoils_none() {
        let sass_only = [
            (module(&["8.0", "9.0"], &[]), 90),
            (module(&["11.0"], &[]), 1),
        ];
        let thor = judged(&sass_only, "11.0");
        assert_eq!((thor.how, thor.modules.native), (RunMode::None, 1));
        let one_missing = [
            (module(&["8.0", "9.0"], &[]), 90),
            (module(&["7.5", "8.0"], &[]), 1),
            (module(&["8.9"], &[]), 1),
        ];
        let hopper = judged(&one_missing, "9.0");
        assert_eq!((hopper.how, hopper.modules.forgotten), (RunMode::Native, 1));
    }
}
