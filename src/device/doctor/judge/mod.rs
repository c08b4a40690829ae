//! Makes findings: what is wrong with this machine, and what to do about it.

use super::fit::{self, Fit};
use super::network::Answer;
use super::{Engine, Live, Machine};
use crate::{Device, Toolkit, Torch};
use stackforge_stack::catalog::{Catalog, numbers};
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_types::Sm;
use std::collections::BTreeSet;

/// Free bytes that the build of one variant may need: the README of
/// https://github.com/barstoolbluz/build-vllm names 30 GB.
const LEAST_FREE: u64 = 30_000_000_000;

pub(super) fn judge(machine: &Machine, catalog: &Catalog) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    let device = &machine.device;
    findings.extend(driver(machine));
    findings.extend(jetson(device, catalog));
    findings.extend(unknown_gpus(machine));
    findings.extend(old_driver(machine, catalog));
    findings.extend(first_nvcc(machine, catalog));
    findings.extend(device.torches.iter().filter_map(|t| torch(t, machine)));
    if let Some(live) = &machine.live {
        findings.extend(engine(live, machine));
        findings.extend(of_release(&live.engine));
        findings.extend(storage(&live.engine));
        findings.extend(resources(live, device, catalog));
        findings.extend(network(live));
    }
    findings
}

fn driver(machine: &Machine) -> Option<Diagnostic> {
    let device = &machine.device;
    if let Some(fault) = &device.nvml {
        let versions = match device.driver.as_ref().map(|d| (&d.module, &d.library)) {
            Some((Some(module), Some(library))) if module != library => {
                format!(": the module is {module}, the library {library}")
            }
            _ => String::new(),
        };
        return Some(Diagnostic::error(
            codes::DRIVER_SILENT,
            format!("{fault}{versions}"),
        ));
    }
    let driven = device.driver.as_ref().is_some_and(|d| d.module.is_some())
        || !device.gpus.is_empty()
        || device.l4t.is_some();
    (!driven && !device.pci.is_empty()).then(|| {
        Diagnostic::error(
            codes::GPU_WITHOUT_DRIVER,
            format!(
                "{} on the PCI bus ({}) and no driver of NVIDIA's is loaded",
                match device.pci.len() {
                    1 => "an NVIDIA GPU is".to_owned(),
                    n => format!("{n} NVIDIA GPUs are"),
                },
                device.pci.join(", ")
            ),
        )
    })
}

fn jetson(device: &Device, catalog: &Catalog) -> Option<Diagnostic> {
    let l4t = device.l4t.as_deref()?;
    let release = device.jetson(catalog);
    if release.is_some_and(|r| !r.bases.is_empty()) {
        return None;
    }
    let d = Diagnostic::warning(
        codes::JETSON_RELEASE,
        format!("no base of the catalog runs on L4T {l4t}"),
    );
    let known: Vec<&str> = catalog
        .jetson
        .iter()
        .filter(|r| !r.bases.is_empty())
        .flat_map(|r| r.l4t.iter().map(String::as_str))
        .collect();
    Some(match release.and_then(|r| r.note.as_deref()) {
        Some(note) => d.help(note),
        None => d.help(format!(
            "update JetPack to one with L4T {}, or describe a base under `.stackforge/images/`",
            known.join(", ")
        )),
    })
}

fn unknown_gpus(machine: &Machine) -> Vec<Diagnostic> {
    let unknown: BTreeSet<(&str, Option<Sm>)> = machine
        .gpus
        .iter()
        .filter(|g| g.gpu.is_none())
        .map(|g| (g.name.as_str(), g.sm))
        .collect();
    let finding = |(name, sm): (&str, Option<Sm>)| {
        let d = Diagnostic::warning(
            codes::GPU_NOT_IN_CATALOG,
            format!("the catalog does not know `{name}`"),
        );
        match sm {
            Some(sm) => d.help(format!(
                "write `gpu: [sm_{}]` in a stack for it",
                sm.digits()
            )),
            None => d.help("find its compute capability in NVIDIA's list and write it as `sm_90`"),
        }
    };
    unknown.into_iter().map(finding).collect()
}

/// Reports a CUDA version that knows the GPU but needs a newer driver.
fn old_driver(machine: &Machine, catalog: &Catalog) -> Option<Diagnostic> {
    let device = &machine.device;
    let version = device.driver.as_ref()?.version()?;
    let sms: Vec<Sm> = machine.gpus.iter().filter_map(|g| g.sm).collect();
    if device.l4t.is_some() || sms.is_empty() {
        return None;
    }
    let fits = |t| fit::toolkit(t, device, catalog) != Fit::No;
    let known = || {
        let knows =
            |t: &&stackforge_stack::catalog::Toolkit| t.sms.iter().any(|sm| sms.contains(sm));
        catalog.toolkits.iter().filter(knows)
    };
    let refused = known()
        .filter(|t| !fits(*t))
        .max_by_key(|t| numbers(&t.version))?;
    let floor = refused.driver.minor.as_deref()?;
    let major = refused.version.split('.').next()?;
    let message =
        format!("driver {version} runs no CUDA {major}: that needs driver {floor} or newer");
    let own = fit::bases(catalog, device, &sms);
    let names: Vec<&str> = own
        .iter()
        .filter(|i| i.cuda.is_some())
        .map(|i| i.image.as_str())
        .collect();
    Some(match names.as_slice() {
        [] => Diagnostic::error(codes::OLD_DRIVER, message)
            .help(format!("install driver {floor} or newer")),
        names => Diagnostic::warning(codes::OLD_DRIVER, message).help(format!(
            "install driver {floor} or newer, or build on {} with a torch for that CUDA",
            names.join(", ")
        )),
    })
}

fn major(version: &str) -> Option<u32> {
    numbers(version).first().copied()
}

/// Checks the nvcc that builds outside of containers use against torch, the driver and the GPU.
fn first_nvcc(machine: &Machine, catalog: &Catalog) -> Option<Diagnostic> {
    let device = &machine.device;
    let first = device.toolkits.iter().find(|t| t.first)?;
    let version = first.version.as_deref()?;
    let who = format!(
        "`{}` (CUDA {version}) comes first in PATH",
        first.nvcc.display()
    );
    let use_another = |fits: &dyn Fn(&str) -> bool, wanted: String| {
        let other = |t: &&Toolkit| !t.first && t.version.as_deref().is_some_and(fits);
        let bin = device
            .toolkits
            .iter()
            .find(other)
            .and_then(|t| t.nvcc.parent());
        match bin {
            Some(bin) => format!("put `{}` first in PATH", bin.display()),
            None => format!("install the toolkit of CUDA {wanted} and put its `bin` first in PATH"),
        }
    };
    let misfit = |what: String, help: String| {
        Some(Diagnostic::warning(codes::TOOLKIT_MISFIT, format!("{who}, {what}")).help(help))
    };
    let torch = device.torches.iter().find_map(|t| {
        let cuda = t.cuda.as_deref()?;
        (major(cuda) != major(version)).then_some((t, cuda))
    });
    if let Some((torch, cuda)) = torch {
        return misfit(
            format!("but torch {} is for CUDA {cuda}", torch.version),
            use_another(&|v| major(v) == major(cuda), cuda.to_owned()),
        );
    }
    let driver = machine.driver_cuda.as_deref();
    if let Some(cuda) = driver.filter(|cuda| major(version) > major(cuda)) {
        return misfit(
            format!("but the driver is for CUDA {cuda}: what it compiles does not start here"),
            use_another(&|v| major(v) <= major(cuda), cuda.to_owned()),
        );
    }
    let known = catalog.toolkit(version)?;
    let lacks = |sm: &Sm| !known.sms.contains(&sm.base());
    let sm = machine.gpus.iter().filter_map(|g| g.sm).find(lacks)?;
    let range = &catalog.sms.iter().find(|f| f.sm == sm.base())?.cuda;
    let fits = |v: &str| {
        catalog
            .toolkit(v)
            .is_some_and(|t| t.sms.contains(&sm.base()))
    };
    misfit(
        format!("but makes no code for sm_{}", sm.digits()),
        use_another(
            &fits,
            match &range.last {
                Some(last) => format!("{} to {last}", range.first),
                None => format!("{} or newer", range.first),
            },
        ),
    )
}

fn torch(torch: &Torch, machine: &Machine) -> Option<Diagnostic> {
    let cuda = torch.cuda.as_deref()?;
    let driver = machine.driver_cuda.as_deref()?;
    (major(cuda) > major(driver)).then(|| {
        Diagnostic::warning(
            codes::TORCH_DRIVER,
            format!(
                "torch {} in `{}` is for CUDA {cuda} and the driver for CUDA {driver}: it finds no GPU",
                torch.version,
                torch.site.display()
            ),
        )
    })
}

fn engine(live: &Live, machine: &Machine) -> Option<Diagnostic> {
    let engine = &live.engine;
    if let Some(silent) = &engine.silent {
        let d = Diagnostic::warning(
            codes::ENGINE_MISSING,
            format!("no container engine: {silent}"),
        );
        return Some(match &engine.help {
            Some(help) => d.help(help.clone()),
            None => d,
        });
    }
    let has = |name: &str| live.programs.iter().any(|p| p.name == name);
    let devices = !machine.device.containers.cdi.is_empty();
    // Docker finds the hook on PATH when a container asks for GPUs.
    let gives = engine.runtimes.iter().any(|r| r.contains("nvidia"))
        || has("nvidia-container-runtime-hook")
        || (engine.cdi && devices);
    if machine.gpus.is_empty() || !engine.local || gives {
        return None;
    }
    let server = engine.server.as_deref().unwrap_or_default();
    Some(
        Diagnostic::warning(
            codes::GPU_UNAVAILABLE,
            format!("{server} cannot give containers the GPU: no NVIDIA runtime and no CDI device"),
        )
        .help(if has("nvidia-ctk") { "run `nvidia-ctk runtime configure --runtime=docker` as root and restart the engine" } else { "install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker` as root and restart the engine" }),
    )
}

/// Reports faults of the engine's release.
fn of_release(engine: &Engine) -> Vec<Diagnostic> {
    let server = engine.server.as_deref().unwrap_or_default();
    let too_old = engine.too_old.iter();
    let too_old = too_old.map(|(what, help)| {
        Diagnostic::warning(codes::ENGINE_TOO_OLD, what.clone()).help(help.clone())
    });
    let faults = engine.faults.iter().map(|fault| {
        Diagnostic::note(codes::ENGINE_FAULT, format!("{server}: {}", fault.what))
            .help(format!("{} ({})", fault.help, fault.source))
    });
    too_old.chain(faults).collect()
}

/// Reports a storage driver that makes every build slow.
fn storage(engine: &Engine) -> Option<Diagnostic> {
    let slow = ["fuse-overlayfs", "vfs"];
    let slow = slow
        .into_iter()
        .find(|slow| engine.storage_driver == *slow)?;
    let server = engine.server.as_deref().unwrap_or_default();
    let what = format!("{server} keeps layers with {slow}, which makes builds slow");
    let setting = match (engine.buildkit, engine.in_containerd) {
        (false, _) => "`driver = \"overlay\"` in its storage.conf",
        (true, true) => "`\"storage-driver\": \"overlayfs\"` in its daemon.json",
        (true, false) => "`\"storage-driver\": \"overlay2\"` in its daemon.json",
    };
    Some(Diagnostic::note(codes::SLOW_STORAGE, what).help(format!(
        "set {setting} where the file system allows it (existing images have to be made again), or build with \
         `--engine native`"
    )))
}

fn resources(live: &Live, device: &Device, catalog: &Catalog) -> Vec<Diagnostic> {
    let mut findings: Vec<Diagnostic> = live
        .disks
        .iter()
        .filter_map(|disk| Some((disk, disk.free.filter(|free| *free < LEAST_FREE)?)))
        .map(|(disk, free)| {
            Diagnostic::warning(
                codes::LITTLE_SPACE,
                format!(
                    "`{}`, where the {} keeps its data, has {} GB left: a stack takes about {}",
                    disk.path.display(),
                    disk.holds,
                    free / 1_000_000_000,
                    LEAST_FREE / 1_000_000_000
                ),
            )
        })
        .collect();
    let memory = live.engine.memory.filter(|_| !live.engine.local);
    let Some(memory) = memory.or(device.memory.available) else {
        return findings;
    };
    let gigabytes = memory as f64 / 1e9;
    let heavy: Vec<String> = catalog
        .recipes
        .values()
        .filter_map(|r| Some((r, r.build.as_ref()?.jobs.memory_gb)))
        .filter(|(_, needs)| *needs > gigabytes)
        .map(|(r, needs)| format!("{} ({needs} GB)", r.library))
        .collect();
    if !heavy.is_empty() {
        findings.push(Diagnostic::warning(
            codes::LITTLE_MEMORY,
            format!(
                "{gigabytes:.1} GB of memory are free, less than one compiler job of {}",
                heavy.join(", ")
            ),
        ));
    }
    findings
}

fn network(live: &Live) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    if let Answer::Unreachable { why } = &live.network.index {
        findings.push(Diagnostic::warning(
            codes::UNREACHABLE,
            format!("the package index does not answer: {why}"),
        ));
    }
    match &live.network.debian {
        Answer::Unreachable { why } => findings.push(Diagnostic::warning(
            codes::UNREACHABLE,
            format!("the Debian mirror does not answer: {why}"),
        )),
        Answer::NotConfigured { why } => findings.push(
            Diagnostic::warning(codes::MIRROR_UNKNOWN, why.clone())
                .help("set STACKFORGE_DEBIAN_MIRROR; only bases made from Debian packages need it"),
        ),
        _ => {}
    }
    let has = |name: &str| live.programs.iter().any(|p| p.name == name);
    if !has("uv") && !has("python3") {
        findings.push(
            Diagnostic::warning(
                codes::RESOLVER_FAILED,
                "neither `uv` nor `python3` is on PATH: `stackforge lock` needs one",
            )
            .help("put a uv on PATH, or install Python 3 with pip"),
        );
    }
    findings
}

#[cfg(test)]
mod tests;
