//! Writes a report as text: a section for each subject, one fact per line.

use super::network::Answer;
use super::{Live, Machine, Report};
use crate::{Device, Toolkit};
use stackforge_sandbox::{Capabilities, Identity};
use stackforge_types::printable;
use std::fmt::Write as _;

/// Returns everything but the findings.
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    let machine = &report.machine;
    section(&mut out, "machine", system(machine));
    section(&mut out, "GPU", gpus(machine));
    section(&mut out, "CUDA", cuda(machine));
    section(&mut out, "containers", containers(machine));
    section(&mut out, "memory and disk", memory(machine));
    if let Some(live) = &machine.live {
        section(&mut out, "network", network(live));
    }
    section(&mut out, "can build", can_build(report));
    section(&mut out, "can run", can_run(report));
    out
}

/// Name and value of each line.
type Lines = Vec<(String, String)>;

fn section(out: &mut String, title: &str, lines: Lines) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{title}");
    for (name, value) in lines {
        let line = format!("  {name:<12}{value}");
        let _ = writeln!(out, "{}", printable::line(line.trim_end()));
    }
}

fn line(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

fn or_unknown(value: Option<&str>) -> String {
    value.unwrap_or("not known").to_owned()
}

fn joined<T: AsRef<str>>(parts: impl IntoIterator<Item = Option<T>>) -> String {
    let parts: Vec<T> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        "not known".to_owned()
    } else {
        parts
            .iter()
            .map(AsRef::as_ref)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn size(bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) => format!("{:.1} GiB", bytes as f64 / f64::from(1u32 << 30)),
        None => "not known".to_owned(),
    }
}

fn system(machine: &Machine) -> Lines {
    let Device {
        platform,
        system,
        board,
        l4t,
        cpu,
        ..
    } = &machine.device;
    let mut lines = Lines::new();
    if machine.live.is_none() {
        lines.push(line("read", "its files only: nothing that runs was asked"));
    }
    lines.push(line("platform", joined([platform.map(|p| p.to_string())])));
    let libc = system.libc.as_ref().map(|v| format!("glibc {v}"));
    let kernel = system.kernel.as_ref().map(|v| format!("Linux {v}"));
    lines.push(line("system", joined([system.name.clone(), libc, kernel])));
    if let Some(board) = board {
        lines.push(line("board", or_unknown(board.model.as_deref())));
    }
    if let Some(l4t) = l4t {
        let jetpack = machine.jetpack.as_ref().map(|j| format!("JetPack {j}"));
        lines.push(line("L4T", joined([Some(l4t.clone()), jetpack])));
    }
    let count = (cpu.count > 0).then(|| format!("{} processors", cpu.count));
    lines.push(line("CPU", joined([cpu.model.clone(), count])));
    lines.push(line(
        "ISA",
        if machine.isas.is_empty() {
            "none of the catalog's".to_owned()
        } else {
            machine.isas.join(", ")
        },
    ));
    lines
}

fn gpus(machine: &Machine) -> Lines {
    let mut lines = Lines::new();
    for (index, gpu) in machine.gpus.iter().enumerate() {
        let sm = gpu.sm.map(|sm| format!("sm_{}", sm.digits()));
        let memory = gpu.memory.map(|m| size(Some(m)));
        let own = gpu.gpu.as_ref().map(|g| format!("`{g}` in a stack"));
        let name = Some(gpu.name.clone());
        lines.push(line(&index.to_string(), joined([name, sm, memory, own])));
        for device in gpu.mig.iter().flatten() {
            lines.push(line("", format!("MIG {device}")));
        }
        if gpu.mig.as_ref().is_some_and(Vec::is_empty) {
            lines.push(line("", "MIG is on and has no devices"));
        }
    }
    if lines.is_empty() {
        let pci = &machine.device.pci;
        lines.push(line(
            "none",
            if pci.is_empty() {
                String::new()
            } else {
                format!("known; on the PCI bus {}", pci.join(", "))
            },
        ));
    }
    lines
}

/// Returns the three versions that are called CUDA's, each with what it decides.
fn cuda(machine: &Machine) -> Lines {
    let device = &machine.device;
    let mut lines = Lines::new();
    lines.push(match &device.driver {
        Some(driver) => {
            let open = driver
                .open
                .map(|open| if open { "open module" } else { "closed module" });
            let idle = driver.module.is_none() && device.gpus.is_empty();
            let runs = machine
                .driver_cuda
                .as_ref()
                .map(|c| format!("for CUDA {c}"));
            line(
                "driver",
                joined([
                    driver.version().map(str::to_owned),
                    runs,
                    open.map(str::to_owned),
                    idle.then(|| "not loaded".to_owned()),
                ]),
            )
        }
        None => match (&device.l4t, &machine.driver_cuda) {
            (Some(_), Some(cuda)) => line("driver", format!("part of L4T, for CUDA {cuda}")),
            _ => line("driver", "none"),
        },
    });
    lines.extend(device.toolkits.iter().map(toolkit));
    if device.toolkits.is_empty() {
        lines.push(line("toolkit", "none: images are built with their own"));
    }
    for torch in &device.torches {
        let runtime = match &torch.cuda {
            Some(cuda) => format!("with CUDA {cuda}"),
            None => "CPU only".to_owned(),
        };
        lines.push(line(
            "runtime",
            format!(
                "torch {}, {runtime}, in {}",
                torch.version,
                torch.site.display()
            ),
        ));
    }
    if device.torches.is_empty() {
        lines.push(line("runtime", "no torch outside of images"));
    }
    lines
}

fn toolkit(toolkit: &Toolkit) -> (String, String) {
    let version = toolkit.version.clone();
    let by = if toolkit.first {
        "first in PATH".to_owned()
    } else {
        format!("by {}", toolkit.found.join(", "))
    };
    line(
        "toolkit",
        joined([
            version.or(Some("does not run".to_owned())),
            Some(toolkit.nvcc.display().to_string()),
            Some(by),
        ]),
    )
}

fn containers(machine: &Machine) -> Lines {
    let mut lines = Lines::new();
    let files = &machine.device.containers;
    match &machine.live {
        Some(live) => {
            let engine = &live.engine;
            lines.push(match &engine.server {
                Some(server) => {
                    let build = if engine.buildkit {
                        "BuildKit"
                    } else {
                        "Buildah"
                    };
                    let platform = engine.platform.map(|p| p.to_string());
                    let place = (!engine.local).then(|| "elsewhere".to_owned());
                    let storage = engine.storage.clone();
                    let build = Some(build.to_owned());
                    line(
                        "engine",
                        joined([Some(server.clone()), platform, build, storage, place]),
                    )
                }
                None => line("engine", "none answers"),
            });
            if let (Some(address), Some(by)) = (&engine.address, &engine.found_by) {
                lines.push(line("address", format!("{address}, {by}")));
            }
            if engine.server.is_some() {
                let runtimes = engine.runtimes.iter().cloned().map(Some);
                lines.push(line("runtimes", joined(runtimes)));
            }
            lines.extend(live.sandbox.iter().map(sandbox));
            for program in &live.programs {
                let version = program.version.as_deref().unwrap_or("present");
                lines.push(line(short(program.name), version));
            }
        }
        None => {
            let runtimes = if files.runtimes.is_empty() {
                "none in Docker's configuration".to_owned()
            } else {
                format!("{} in Docker's configuration", files.runtimes.join(", "))
            };
            lines.push(line("runtimes", runtimes));
        }
    }
    lines.push(line(
        "CDI",
        if files.cdi.is_empty() {
            "no device of NVIDIA's".to_owned()
        } else {
            files.cdi.join(", ")
        },
    ));
    lines
}

/// Describes how programs run without an engine, or why not and what to do.
fn sandbox(can: &Capabilities) -> (String, String) {
    let answers = [&can.namespaces, &can.overlay, &can.seccomp];
    let refused = answers.into_iter().find(|a| !a.yes);
    let text = match refused {
        Some(no) => joined([Some("none".to_owned()), no.reason.clone(), no.help.clone()]),
        None => {
            let who = match can.identity {
                Identity::Real => "as root",
                Identity::Subordinate => "as an ordinary user with subordinate ids",
                Identity::Single => "as an ordinary user with one id",
            };
            let limits = if can.limits.yes {
                "with limits"
            } else {
                "without limits"
            };
            format!("{who}, {limits}")
        }
    };
    line("namespaces", text)
}

/// Returns a short name: the hook's own is longer than a column.
fn short(program: &'static str) -> &'static str {
    match program {
        "nvidia-container-runtime-hook" => "nvidia hook",
        other => other,
    }
}

fn memory(machine: &Machine) -> Lines {
    let memory = machine.device.memory;
    let mut lines = vec![line(
        "memory",
        format!(
            "{}, {} available",
            size(memory.total),
            size(memory.available)
        ),
    )];
    for disk in machine.live.iter().flat_map(|l| &l.disks) {
        lines.push(line(
            disk.holds,
            format!("{} free in {}", size(disk.free), disk.path.display()),
        ));
    }
    lines
}

fn network(live: &Live) -> Lines {
    let text = |answer: &Answer| match answer {
        Answer::Reachable => "reachable".to_owned(),
        Answer::Unreachable { why } => format!("not reachable: {why}"),
        Answer::NotConfigured { why } => format!("not configured: {why}"),
        Answer::NotAsked { why } => format!("not asked: {why}"),
    };
    vec![
        line("index", text(&live.network.index)),
        line("Debian", text(&live.network.debian)),
    ]
}

fn can_build(report: &Report) -> Lines {
    let build = &report.can.build;
    match &build.why_not {
        Some(why) => vec![line("nothing", why.clone())],
        None => {
            let platforms = build.platforms.iter().map(|p| Some(p.to_string()));
            vec![line("images for", joined(platforms))]
        }
    }
}

fn can_run(report: &Report) -> Lines {
    let run = &report.can.run;
    if let Some(why) = &run.why_not {
        return vec![line("no CUDA", why.clone())];
    }
    let mut lines = Lines::new();
    let listed = |versions: &[String]| {
        if versions.is_empty() {
            "none".to_owned()
        } else {
            versions.join(", ")
        }
    };
    lines.push(line("CUDA", listed(&run.cuda)));
    if !run.cuda_without_ptx.is_empty() {
        let versions = listed(&run.cuda_without_ptx);
        lines.push(line(
            "",
            format!("{versions}: only code made for the GPU's SM, no PTX"),
        ));
    }
    lines.push(line("bases", listed(&run.bases)));
    lines
}
