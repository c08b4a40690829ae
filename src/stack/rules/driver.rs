//! Rules about the driver of the machine that runs the image.

use super::case::{Case, name, recipe_of};
use super::environment::{Environment, Package};
use super::fit::{best, core_code};
use crate::catalog::Toolkit;
use crate::diag::{Diagnostic, codes};
use stackforge_gpu::{Coverage, DriverVersion, Support, aligned};

/// Packages that write or link PTX while an image runs.
const PTX_WRITERS: [&str; 3] = ["nvidia-cuda-nvcc", "nvidia-cuda-nvrtc", "nvidia-nvjitlink"];

/// Returns how far a driver supports a toolkit on the stack's GPUs.
fn support(case: &Case<'_>, toolkit: &Toolkit, driver: &DriverVersion) -> Support {
    let jetson = case.catalog.jetson.iter().any(|r| {
        let own = r.driver.as_deref().and_then(|d| d.parse().ok());
        own.is_some_and(|own: DriverVersion| *driver >= own)
            && case.devices().iter().all(|sm| r.gpus.contains(sm))
            && r.cuda.contains(&toolkit.version)
    });
    match toolkit.supported_by(driver) {
        // L4T's driver belongs to the CUDA of that L4T, whatever its version number is.
        Support::SassOnly if jetson => Support::Full,
        // The toolkit's own minimum driver is not known, but it is above those of older toolkits.
        Support::SassOnly if toolkit.driver.toolkit.is_none() => {
            let older = case.catalog.toolkits.iter();
            let mut older = older.filter(|t| t.driver.toolkit.is_some());
            if older.all(|t| t.supported_by(driver) == Support::Full) {
                Support::Unknown
            } else {
                Support::SassOnly
            }
        }
        other => other,
    }
}

pub fn driver_is_new_enough(
    case: &Case<'_>,
    env: &Environment<'_>,
    findings: &mut Vec<Diagnostic>,
) {
    let (Some(driver), Some((major, minor))) = (&case.machine.driver, env.cuda(case)) else {
        return;
    };
    let version = format!("{major}.{}", minor.unwrap_or(0));
    let Some(toolkit) = case.catalog.toolkit(&version) else {
        return;
    };
    let span = env
        .get("torch")
        .map(|t| t.span)
        .filter(|s| s.line > 0)
        .unwrap_or(case.stack.base.span);
    let full = toolkit.driver.toolkit.as_deref().unwrap_or("a newer one");
    match support(case, toolkit, driver) {
        Support::Full | Support::Unknown => {}
        Support::No => findings.push(
            Diagnostic::error(
                codes::DRIVER_TOO_OLD,
                format!("driver {driver} cannot run CUDA {version}"),
            )
            .at(span)
            .help(format!(
                "update the driver to {} or newer ({full} for everything); {}",
                toolkit.driver.minor.as_deref().unwrap_or(full),
                newest_for(case, driver)
            )),
        ),
        Support::SassOnly => jit_needed(case, env, driver, toolkit, full, findings),
    }
}

fn newest_for(case: &Case<'_>, driver: &DriverVersion) -> String {
    let runs = |t: &&Toolkit| matches!(t.supported_by(driver), Support::Full | Support::SassOnly);
    match case.catalog.toolkits.iter().rev().find(runs) {
        Some(t) => format!("this driver runs CUDA up to {}", t.version),
        None => "this driver runs no CUDA from 11.8 on".to_owned(),
    }
}

/// Reports what needs the driver's compiler if only SASS runs.
fn jit_needed(
    case: &Case<'_>,
    env: &Environment<'_>,
    driver: &DriverVersion,
    toolkit: &Toolkit,
    full: &str,
    findings: &mut Vec<Diagnostic>,
) {
    let aligned = aligned(env.cuda_floor(case));
    let update = format!("update the driver to {full} or newer");
    for package in env.packages.values() {
        let help = match recipe_of(case, &package.name) {
            Some(r) if r.build.is_some() => {
                format!("{update}, or build it: `{}: {{ from: source }}`", r.library)
            }
            _ => update.clone(),
        };
        let Some(wheel) = package.wheel else { continue };
        let core = core_code(wheel, env.cuda(case));
        for sm in case.devices() {
            if let Coverage::Jit(ptx) = best(&core, sm, aligned) {
                findings.push(
                    Diagnostic::error(
                        codes::DRIVER_CANNOT_JIT,
                        format!(
                            "{} runs on {} only as PTX of {}, which driver {driver} cannot compile from CUDA {}",
                            package.shown(),
                            name(sm),
                            name(ptx),
                            toolkit.version
                        ),
                    )
                    .at(package.span)
                    .help(help.clone()),
                );
            }
        }
    }
}

/// Warns of packages from another CUDA release than the others.
pub fn toolkit_skew(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    old_nvjitlink(env, findings);
    let Some(driver) = &case.machine.driver else {
        return;
    };
    let writers = |p: &&Package<'_>| PTX_WRITERS.iter().any(|name| is(p, name));
    for package in env.packages.values().filter(writers) {
        let Some((major, minor)) = minor_of(package) else {
            continue;
        };
        let Some(toolkit) = case.catalog.toolkit(&format!("{major}.{minor}")) else {
            continue;
        };
        let runtime = env.cuda_floor(case);
        let runs = case
            .catalog
            .toolkit(&format!("{}.{}", runtime.0, runtime.1))
            .is_none_or(|t| support(case, t, driver) != Support::No);
        if runs && (major, minor) > runtime && support(case, toolkit, driver) == Support::SassOnly {
            findings.push(
                Diagnostic::warning(
                    codes::TOOLKIT_SKEW,
                    format!(
                        "{} is newer than CUDA {}.{} of the rest: driver {driver} does not load its PTX",
                        package.shown(),
                        runtime.0,
                        runtime.1
                    ),
                )
                .at(package.span)
                .help(format!(
                    "add `{}=={}.{}.*` to `overrides`, or update the driver",
                    package.name, runtime.0, runtime.1
                )),
            );
        }
    }
}

/// cuSPARSE and cuSOLVER call functions of an nvJitLink of at least their own version.
fn old_nvjitlink(env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(linker) = env.packages.values().find(|p| is(p, "nvidia-nvjitlink")) else {
        return;
    };
    let runtime = env.packages.values().find(|p| is(p, "nvidia-cuda-runtime"));
    let (Some(own), Some(runtime)) = (minor_of(linker), runtime) else {
        return;
    };
    let newer = minor_of(runtime).is_some_and(|r| r.0 == own.0 && r > own);
    if newer {
        findings.push(
            Diagnostic::error(
                codes::TOOLKIT_SKEW,
                format!(
                    "{} is older than {}: the libraries beside it lack its newer symbols",
                    linker.shown(),
                    runtime.shown()
                ),
            )
            .at(linker.span)
            .help(format!(
                "add `{}>={}.{}` to `overrides`",
                linker.name,
                runtime.version.release()[0],
                runtime.version.release().get(1).unwrap_or(&0)
            )),
        );
    }
}

/// Whether the package is, for instance, `nvidia-cuda-nvcc`, with or without the suffix `-cu12`.
fn is(package: &Package<'_>, name: &str) -> bool {
    package
        .name
        .strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("-cu"))
}

fn minor_of(package: &Package<'_>) -> Option<(u32, u32)> {
    let release = package.version.release();
    let part = |i: usize| release.get(i).and_then(|n| u32::try_from(*n).ok());
    Some((part(0)?, part(1)?))
}
