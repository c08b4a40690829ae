//! Decides how a container gets the GPUs of its device.
//!
//! CDI is preferred where the device has a specification and the engine reads it: it names every file that
//! is given. On a Jetson it is NVIDIA's runtime, which knows the libraries of L4T. `--gpus` is left for
//! engines without CDI.

use crate::choice::Choice;
use crate::engine::{ContainerProgram, Engine};
use crate::error::RunError;
use crate::request::{Gpus, Variable};
use crate::setting::Setting;
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
    if device.has_gpu() {
        return of_this_device(asked, device, engine);
    }
    let why = if device.pci.is_empty() {
        "this device has no NVIDIA GPU"
    } else {
        "no driver of NVIDIA's drives the GPU of this device"
    };
    match asked {
        Gpus::Auto => Ok(Choice::nothing(WHAT, why)),
        _ => Err(RunError::NoGpu(why.to_owned())),
    }
}

fn of_this_device(asked: &Gpus, device: &Device, engine: &Engine) -> Result<Choice, RunError> {
    let jetson = device.is_jetson();
    let has_runtime =
        engine.kind == ContainerProgram::Docker && engine.runtimes.iter().any(|r| r == "nvidia");
    let named = &device.containers.cdi;
    let specified = named.iter().any(|d| d.starts_with(CDI));
    let toolkit = device.containers.toolkit.as_deref();
    if jetson && has_runtime {
        let release = device.l4t.as_deref().map(|l4t| format!(" with L4T {l4t}"));
        let release = release.unwrap_or_default();
        let why = format!("a Jetson{release}: its `nvidia` runtime brings the libraries of L4T");
        return Ok(runtime(asked, why));
    }
    if specified && engine.cdi {
        let spec = device.containers.cdi_specs.first();
        let spec = spec.map_or("a specification", String::as_str);
        return cdi(asked, named, format!("CDI: {spec} names nvidia.com/gpu"));
    }
    if engine.kind == ContainerProgram::Docker && !jetson && (toolkit.is_some() || has_runtime) {
        let mut why = match toolkit {
            Some(path) => format!("{path} of the NVIDIA Container Toolkit"),
            None => "Docker has the `nvidia` runtime".to_owned(),
        };
        if specified {
            why += &format!("; {} does not read CDI", engine.shown());
        }
        return Ok(flag(asked, why));
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
        ContainerProgram::Podman => "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
        ContainerProgram::Docker => {
            "`sudo nvidia-ctk runtime configure --runtime=docker` and restart Docker"
        }
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
    Ok(Choice::new(
        WHAT,
        devices.into_iter().map(Setting::Device),
        why,
    ))
}

/// The image may not say which GPUs it wants, and then the runtime would give none.
fn runtime(asked: &Gpus, why: String) -> Choice {
    let visible = match asked {
        Gpus::These(names) => names.join(","),
        _ => "all".to_owned(),
    };
    let visible = Variable {
        name: "NVIDIA_VISIBLE_DEVICES".to_owned(),
        value: Some(visible),
    };
    let settings = [Setting::Runtime("nvidia"), Setting::Variable(visible)];
    Choice::new(WHAT, settings, why)
}

fn flag(asked: &Gpus, why: String) -> Choice {
    let names = match asked {
        Gpus::These(names) => Some(names.clone()),
        _ => None,
    };
    Choice::new(WHAT, [Setting::Gpus(names)], why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A server with a GPU, two of whose files say how containers get it.
    fn server(cdi: bool, toolkit: bool) -> Device {
        let mut device = Device::read(Path::new("/nonexistent"));
        device.driver = Some(stackforge_device::Driver {
            module: Some("580.65.06".to_owned()),
            ..Default::default()
        });
        if cdi {
            let names = ["0", "1", "GPU-8932f937"];
            device.containers.cdi = names.map(|n| format!("{CDI}{n}")).into();
            device.containers.cdi_specs = vec!["/etc/cdi/nvidia.yaml".to_owned()];
        }
        device.containers.toolkit = toolkit.then(|| "/usr/bin/hook".to_owned());
        device
    }

    fn engine(kind: ContainerProgram, cdi: bool) -> Engine {
        Engine {
            kind,
            server: Some("Docker 20.10.24".to_owned()),
            cdi,
            ..Engine::expected(&Device::read(Path::new("/nonexistent")))
        }
    }

    fn arguments(asked: &Gpus, device: &Device, engine: &Engine) -> Vec<String> {
        gpus(asked, device, engine).unwrap().arguments()
    }

    #[test]
    fn an_engine_before_cdi_gets_the_flag_and_says_why() {
        let (device, old) = (server(true, true), engine(ContainerProgram::Docker, false));
        let choice = gpus(&Gpus::Auto, &device, &old).unwrap();
        assert_eq!(choice.arguments(), ["--gpus", "all"]);
        assert!(
            choice.why.ends_with("; Docker 20.10.24 does not read CDI"),
            "{}",
            choice.why
        );
        let only_cdi = gpus(&Gpus::Auto, &server(true, false), &old).unwrap_err();
        assert!(
            only_cdi.to_string().contains("does not read CDI"),
            "{only_cdi}"
        );
    }

    #[test]
    fn a_specification_without_all_names_each_gpu_once() {
        let (device, engine) = (server(true, false), engine(ContainerProgram::Podman, true));
        let zero = ["--device", "nvidia.com/gpu=0"];
        let all = [&zero[..], &["--device", "nvidia.com/gpu=1"]].concat();
        assert_eq!(arguments(&Gpus::Auto, &device, &engine), all);
        let by_name = "0,GPU-8932f937".parse().unwrap();
        let named = [&zero[..], &["--device", "nvidia.com/gpu=GPU-8932f937"]].concat();
        assert_eq!(arguments(&by_name, &device, &engine), named);
    }

    #[test]
    fn podman_takes_nothing_but_cdi() {
        let podman = engine(ContainerProgram::Podman, true);
        let error = gpus(&Gpus::Auto, &server(false, true), &podman).unwrap_err();
        let help = stackforge_stack::diag::Explained::help(&error);
        assert!(help.contains("nvidia-ctk cdi generate"), "{help}");
    }

    #[test]
    fn another_machine_is_known_by_its_engine_alone() {
        let laptop = Device::read(Path::new("/nonexistent"));
        let mut far = engine(ContainerProgram::Docker, true);
        far.elsewhere = Some("ssh://thor".to_owned());
        assert!(arguments(&Gpus::Auto, &server(true, true), &far).is_empty());
        assert!(gpus(&Gpus::All, &laptop, &far).is_err());
        far.runtimes = vec!["nvidia".to_owned()];
        let runtime = ["--runtime", "nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=all"];
        assert_eq!(arguments(&Gpus::Auto, &laptop, &far), runtime);
        far.cdi_devices = vec!["nvidia.com/gpu=all".to_owned()];
        let cdi = ["--device", "nvidia.com/gpu=all"];
        assert_eq!(arguments(&Gpus::Auto, &laptop, &far), cdi);
    }
}
