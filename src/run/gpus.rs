//! Decides how a container gets the GPUs of its device.
//!
//! CDI is preferred where the device has a specification and the engine reads it: it names every file that
//! is given. On a Jetson it is NVIDIA's runtime, which knows the libraries of L4T. `--gpus` is left for
//! engines without CDI.

use crate::choice::Choice;
use crate::engine::{Engine, Kind};
use crate::error::RunError;
use crate::request::Gpus;
use stackforge_device::Device;

const WHAT: &str = "GPU";
/// Prefix of NVIDIA's GPUs among CDI devices.
const CDI: &str = "nvidia.com/gpu=";

/// Decides about the GPUs.
pub(crate) fn gpus(asked: &Gpus, device: &Device, engine: &Engine) -> Result<Choice, RunError> {
    if *asked == Gpus::None {
        return Ok(Choice::nothing(WHAT, "none was asked for"));
    }
    if engine.elsewhere.is_some() {
        return of_another_machine(asked, engine);
    }
    if !device.has_gpu() {
        let why = match device.pci.is_empty() {
            true => "this device has no NVIDIA GPU",
            false => "no driver of NVIDIA's drives the GPU of this device",
        };
        return match asked {
            Gpus::Auto => Ok(Choice::nothing(WHAT, why)),
            _ => Err(RunError::NoGpu(why.to_owned())),
        };
    }
    let jetson = device.is_jetson();
    let has_runtime = engine.kind == Kind::Docker && engine.runtimes.iter().any(|r| r == "nvidia");
    let specified = device.containers.cdi.iter().any(|d| d.starts_with(CDI));
    if jetson && has_runtime {
        let release = device.l4t.as_deref().map(|l4t| format!(" with L4T {l4t}"));
        let why = format!(
            "a Jetson{}: its `nvidia` runtime brings the libraries of L4T",
            release.unwrap_or_default()
        );
        return Ok(runtime(asked, why));
    }
    if specified && engine.cdi {
        let spec = device.containers.cdi_specs.first();
        let spec = spec.map_or("a specification", String::as_str);
        return cdi(
            asked,
            &device.containers.cdi,
            format!("CDI: {spec} names nvidia.com/gpu"),
        );
    }
    let toolkit = device.containers.toolkit.as_deref();
    if engine.kind == Kind::Docker && !jetson {
        let old = match specified {
            true => format!("; {} does not read CDI", engine.shown()),
            false => String::new(),
        };
        if let Some(path) = toolkit {
            return Ok(flag(
                asked,
                format!("{path} of the NVIDIA Container Toolkit{old}"),
            ));
        }
        if has_runtime {
            return Ok(flag(asked, format!("Docker has the `nvidia` runtime{old}")));
        }
    }
    Err(RunError::NoGpuAccess {
        why: missing(engine, jetson, specified),
        help: remedy(engine, toolkit.is_some() || specified),
    })
}

fn missing(engine: &Engine, jetson: bool, specified: bool) -> String {
    let engine = engine.shown();
    match (specified, jetson) {
        (true, _) => format!("{engine} does not read CDI, and nothing else is set up"),
        (false, true) => format!(
            "{engine} has no `nvidia` runtime, and no CDI specification names nvidia.com/gpu"
        ),
        (false, false) => format!(
            "{engine} has no NVIDIA Container Toolkit, and no CDI specification names nvidia.com/gpu"
        ),
    }
}

fn remedy(engine: &Engine, installed: bool) -> String {
    let install = if installed {
        ""
    } else {
        "install nvidia-container-toolkit, then "
    };
    let command = match engine.kind {
        Kind::Podman => "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
        Kind::Docker => "`sudo nvidia-ctk runtime configure --runtime=docker` and restart Docker",
    };
    format!("{install}{command}; `--gpus none` runs without a GPU")
}

/// Decides for an engine of another machine, of which only the engine's own words are known.
fn of_another_machine(asked: &Gpus, engine: &Engine) -> Result<Choice, RunError> {
    let place = engine.elsewhere.as_deref().unwrap_or_default();
    if engine.cdi_devices.iter().any(|d| d.starts_with(CDI)) {
        let why = format!("CDI: the engine at {place} names nvidia.com/gpu");
        return cdi(asked, &engine.cdi_devices, why);
    }
    if engine.runtimes.iter().any(|r| r == "nvidia") {
        return Ok(runtime(
            asked,
            format!("the engine at {place} has the `nvidia` runtime"),
        ));
    }
    let why = format!("the engine at {place} names no `nvidia` runtime and no GPU by CDI");
    match asked {
        Gpus::Auto => Ok(Choice::nothing(WHAT, why)),
        _ => Err(RunError::NoGpuAccess {
            why,
            help: "set up nvidia-container-toolkit on that machine, or leave `--gpus` out"
                .to_owned(),
        }),
    }
}

fn cdi(asked: &Gpus, available: &[String], why: String) -> Result<Choice, RunError> {
    let named = |name: &str| format!("{CDI}{name}");
    let all = || -> Vec<String> {
        if available.contains(&named("all")) {
            return vec![named("all")];
        }
        // Writers that name no `all` name each GPU by its index, and often by its UUID too.
        let gpus = available.iter().filter(|d| d.starts_with(CDI));
        let by_index = |d: &&String| {
            d[CDI.len()..]
                .bytes()
                .all(|b| b.is_ascii_digit() || b == b':')
        };
        let indexed: Vec<String> = gpus.clone().filter(by_index).cloned().collect();
        if indexed.is_empty() {
            gpus.cloned().collect()
        } else {
            indexed
        }
    };
    let devices = match asked {
        Gpus::These(names) => names.iter().map(|n| named(n)).collect(),
        _ => all(),
    };
    if let Some(absent) = devices.iter().find(|d| !available.contains(d)) {
        let names = available.iter().filter_map(|d| d.strip_prefix(CDI));
        let names = names.filter(|name| *name != "all");
        return Err(RunError::NoSuchGpu {
            name: absent[CDI.len()..].to_owned(),
            available: names.map(str::to_owned).collect(),
        });
    }
    let arguments = devices.into_iter().flat_map(|d| ["--device".to_owned(), d]);
    Ok(Choice::new(WHAT, arguments, why))
}

/// The image may not say which GPUs it wants, and then the runtime would give none.
fn runtime(asked: &Gpus, why: String) -> Choice {
    let visible = match asked {
        Gpus::These(names) => names.join(","),
        _ => "all".to_owned(),
    };
    let visible = format!("NVIDIA_VISIBLE_DEVICES={visible}");
    Choice::new(WHAT, ["--runtime", "nvidia", "-e", &visible], why)
}

fn flag(asked: &Gpus, why: String) -> Choice {
    let value = match asked {
        // Docker parses the value as a line of CSV, so a list needs quotes of its own.
        Gpus::These(names) => format!("\"device={}\"", names.join(",")),
        _ => "all".to_owned(),
    };
    Choice::new(WHAT, ["--gpus".to_owned(), value], why)
}
