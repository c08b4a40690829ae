use super::*;
use crate::doctor::{Disk, Engine, Network, Program};
use crate::{Driver, Gpu, NvmlFault};
use stackforge_stack::diag::Severity;
use std::path::Path;

/// A machine with an H100, driver 580 and an engine that gives GPUs to containers.
fn machine(catalog: &Catalog) -> Machine {
    let mut device = Device::read(Path::new("/nonexistent"));
    device.platform = Some(stackforge_stack::spec::Platform::LinuxAmd64);
    device.gpus = vec![Gpu {
        name: "NVIDIA H100 80GB HBM3".into(),
        sm: Some(Sm::new(9, 0)),
        memory: Some(80 << 30),
        mig: None,
    }];
    device.driver = Some(Driver {
        module: Some("580.65.06".into()),
        cuda: Some("13.0".into()),
        ..Driver::default()
    });
    device.memory.available = Some(64_000_000_000);
    Machine {
        gpus: device.identified(catalog),
        isas: Vec::new(),
        driver_cuda: device.driver_cuda(catalog),
        jetpack: None,
        device,
        live: Some(Live {
            sandbox: None,
            engine: Engine {
                server: Some("Docker 28.2.2".into()),
                local: true,
                runtimes: vec!["nvidia".into(), "runc".into()],
                ..Engine::default()
            },
            programs: vec![Program {
                name: "uv",
                version: None,
            }],
            disks: Vec::new(),
            network: Network {
                index: Answer::Reachable,
                debian: Answer::Reachable,
            },
        }),
    }
}

fn judged(change: impl FnOnce(&mut Machine, &mut Live)) -> Vec<Diagnostic> {
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let mut machine = machine(&catalog);
    let mut live = machine.live.take().unwrap();
    change(&mut machine, &mut live);
    machine.live = Some(live);
    machine.gpus = machine.device.identified(&catalog);
    machine.driver_cuda = machine.device.driver_cuda(&catalog);
    judge(&machine, &catalog)
}

#[test]
fn a_machine_that_has_all_gets_no_finding() {
    assert_eq!(judged(|_, _| {}), []);
}

#[test]
fn an_engine_that_cannot_give_gpus_is_told_how() {
    let findings = judged(|_, live| live.engine.runtimes.clear());
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].code, codes::GPU_UNAVAILABLE);
    let help = findings[0].help.as_deref().unwrap();
    assert!(
        help.starts_with("install nvidia-container-toolkit"),
        "{help}"
    );
    let hook = || Program {
        name: "nvidia-container-runtime-hook",
        version: None,
    };
    let with_hook = judged(|_, live| {
        live.engine.runtimes.clear();
        live.programs.push(hook());
    });
    assert_eq!(with_hook, [], "Docker finds the hook by itself");
    let with_cdi = judged(|machine, live| {
        live.engine.runtimes.clear();
        live.engine.cdi = true;
        machine.device.containers.cdi = vec!["nvidia.com/gpu=0".into()];
    });
    assert_eq!(with_cdi, []);
}

#[test]
fn a_library_of_another_driver_is_an_error_with_both_versions() {
    let findings = judged(|machine, _| {
        machine.device.nvml = Some(NvmlFault::Mismatch);
        let driver = machine.device.driver.as_mut().unwrap();
        driver.library = Some("590.44.01".into());
    });
    assert_eq!(findings[0].code, codes::DRIVER_SILENT);
    assert_eq!(findings[0].severity, Severity::Error);
    let message = &findings[0].message;
    assert!(
        message.ends_with("the module is 580.65.06, the library 590.44.01"),
        "{message}"
    );
}

#[test]
fn a_driver_that_runs_no_base_is_an_error_and_an_old_one_a_warning() {
    let with = |version: &'static str| {
        judged(move |machine, _| {
            let driver = machine.device.driver.as_mut().unwrap();
            driver.module = Some(version.into());
            driver.cuda = None;
        })
    };
    assert_eq!(with("470.10.01")[0].severity, Severity::Error);
    let old = with("550.54.14");
    assert_eq!(old[0].severity, Severity::Warning);
    assert_eq!(
        old[0].message,
        "driver 550.54.14 runs no CUDA 13: that needs driver 580 or newer"
    );
}

#[test]
fn a_gpu_that_no_catalog_names_is_told_by_its_sm() {
    let findings = judged(|machine, _| machine.device.gpus[0].name = "NVIDIA H999".into());
    assert_eq!(findings[0].code, codes::GPU_NOT_IN_CATALOG);
    assert_eq!(
        findings[0].help.as_deref(),
        Some("write `gpu: [sm_90]` in a stack for it")
    );
}

fn first_in_path(version: &str) -> Toolkit {
    Toolkit {
        nvcc: format!("/opt/cuda-{version}/bin/nvcc").into(),
        version: Some(version.to_owned()),
        found: vec!["PATH"],
        first: true,
    }
}

#[test]
fn the_first_nvcc_is_held_against_the_driver_and_the_gpu() {
    let of = |driver: &'static str, sm: Sm| {
        let findings = judged(move |machine, _| {
            machine.device.toolkits = vec![first_in_path("13.0")];
            machine.device.driver.as_mut().unwrap().cuda = Some(driver.into());
            machine.device.gpus[0].sm = Some(sm);
        });
        findings
            .into_iter()
            .find(|f| f.code == codes::TOOLKIT_MISFIT)
    };
    assert_eq!(of("13.0", Sm::new(9, 0)), None);
    let driver = of("12.4", Sm::new(9, 0)).unwrap();
    assert!(driver.message.contains("the driver is for CUDA 12.4"));
    let gpu = of("13.0", Sm::new(7, 0)).unwrap();
    assert!(gpu.message.ends_with("makes no code for sm_70"));
    assert_eq!(
        gpu.help.as_deref(),
        Some("install the toolkit of CUDA 11.8 to 12.9 and put its `bin` first in PATH")
    );
}

#[test]
fn a_slow_storage_driver_is_reported() {
    for (driver, buildkit, containerd, setting) in [
        ("overlay2", true, false, None),
        ("overlayfs", true, true, None),
        ("overlay", false, false, None),
        (
            "fuse-overlayfs",
            true,
            false,
            Some("`\"storage-driver\": \"overlay2\"`"),
        ),
        (
            "fuse-overlayfs",
            true,
            true,
            Some("`\"storage-driver\": \"overlayfs\"`"),
        ),
        (
            "vfs",
            false,
            false,
            Some("`driver = \"overlay\"` in its storage.conf"),
        ),
    ] {
        let findings = judged(|_, live| {
            live.engine.storage_driver = driver.to_owned();
            live.engine.buildkit = buildkit;
            live.engine.in_containerd = containerd;
        });
        let found = findings.iter().find(|f| f.code == codes::SLOW_STORAGE);
        let help = found.map(|f| f.help.as_deref().unwrap());
        let fits = match (help, setting) {
            (Some(help), Some(setting)) => help.contains(setting),
            (help, setting) => help.is_none() && setting.is_none(),
        };
        assert!(fits, "{driver}: {help:?}");
    }
}

#[test]
fn little_space_and_memory_name_what_does_not_fit() {
    let findings = judged(|machine, live| {
        machine.device.memory.available = Some(2_000_000_000);
        live.disks.push(Disk {
            holds: "store",
            path: "/home/me/.cache".into(),
            free: Some(5_000_000_000),
        });
    });
    let codes: Vec<_> = findings.iter().map(|f| f.code).collect();
    assert_eq!(codes, [codes::LITTLE_SPACE, codes::LITTLE_MEMORY]);
    assert!(findings[0].message.contains("has 5 GB left"));
    assert!(findings[1].message.contains("flash-attn"));
}

#[test]
fn what_fetches_packages_is_told_apart() {
    let findings = judged(|_, live| {
        live.programs.clear();
        live.network.debian = Answer::NotConfigured {
            why: "no mirror".into(),
        };
    });
    let codes: Vec<_> = findings.iter().map(|f| f.code).collect();
    assert_eq!(codes, [codes::MIRROR_UNKNOWN, codes::RESOLVER_FAILED]);
}
