//! Rules about device code: whether wheels, compiled libraries, Triton and cuDNN have code for the GPUs.

use super::base::{makes, toolkits_for};
use super::case::{Case, base_cuda, distribution, name, names, recipe_of};
use super::environment::{Build, Environment, Package};
use super::fit::{Fit, WheelContext, best, core_code, wheel_fit};
use super::pick;
use crate::catalog::{DeviceCode, DistributionKind, Facts, Release};
use crate::diag::{Diagnostic, codes};
use crate::spec::{Library, Platform, Sm};
use pep440_rs::Version;
use stackforge_gpu::{Coverage, aligned, sass_runs};

pub fn torch_has_cuda(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(torch) = env.get("torch").filter(|t| t.is_cpu_only()) else {
        return;
    };
    let platform = case.stack.platform.value;
    let with_cuda = case.catalog.releases("torch").and_then(|releases| {
        releases
            .iter()
            .find(|(_, r)| has_cuda_wheel(r, platform))
            .map(|(v, _)| v)
    });
    let pins = |p: &&Package<'_>| {
        let asks = p.release.and_then(|r| r.asks("torch"));
        asks.is_some_and(|s| pick::exact(s).is_some()) && is_named(case, &p.name)
    };
    let forced: Vec<String> = env
        .packages
        .values()
        .filter(pins)
        .map(Package::shown)
        .collect();
    let because = match forced.as_slice() {
        [] => String::new(),
        all => format!(" (pinned by {})", all.join(", ")),
    };
    findings.push(
        Diagnostic::error(
            codes::CPU_ONLY_TORCH,
            format!("{} for {platform} has no CUDA{because}", torch.shown()),
        )
        .at(torch.span)
        .help(match with_cuda {
            Some(first) => format!(
                "wheels for {platform} have CUDA from torch {first} on; or give `torch` an `index` that has CUDA builds, or build it `from: source`"
            ),
            None => "give `torch` an `index` that has CUDA builds, or build it `from: source`".to_owned(),
        }),
    );
}

fn has_cuda_wheel(release: &Release, platform: Platform) -> bool {
    release
        .wheels_for(platform, "")
        .any(|w| matches!(w.cuda, crate::catalog::WheelCuda::Version { .. }))
}

pub fn wheels_cover_the_gpu(
    case: &Case<'_>,
    env: &Environment<'_>,
    findings: &mut Vec<Diagnostic>,
) {
    let without_torch = torch_misses(case, env);
    for package in env.packages.values() {
        let Some(wheel) = package.wheel else { continue };
        let core = core_code(wheel, env.cuda(case));
        if package.name.starts_with("nvidia-") {
            continue;
        }
        let missing = uncovered(case, env, &core);
        // A dependency may do its work on the CPU, and changes with torch: report torch alone.
        let named = package.name == "torch" || is_named(case, &package.name);
        if missing.is_empty() || !named && missing.iter().all(|sm| without_torch.contains(sm)) {
            continue;
        }
        let mut has: Vec<Sm> = core.iter().flat_map(|c| &c.sm).copied().collect();
        has.sort();
        has.dedup();
        let message = format!(
            "the wheel of {} has no code for {}: it has {}",
            package.shown(),
            names(&missing),
            names(&has)
        );
        let finding = if named {
            Diagnostic::error(codes::SM_NOT_COVERED, message)
        } else {
            Diagnostic::warning(codes::SM_NOT_COVERED, message)
        };
        findings.push(finding.at(package.span).help(remedy(case, env, package)));
    }
}

fn is_named(case: &Case<'_>, package: &str) -> bool {
    let own = |l: &Library| distribution(case, l.name.value.as_str()) == package;
    case.stack.libraries.iter().any(own)
}

/// Returns the devices that none of the code runs on; empty if no code is known.
fn uncovered(case: &Case<'_>, env: &Environment<'_>, core: &[&DeviceCode]) -> Vec<Sm> {
    let aligned = aligned(env.cuda_floor(case));
    let misses = |sm: &Sm| !core.is_empty() && best(core, *sm, aligned) == Coverage::None;
    case.devices().into_iter().filter(misses).collect()
}

/// Returns the devices that torch's wheel has no code for.
fn torch_misses(case: &Case<'_>, env: &Environment<'_>) -> Vec<Sm> {
    let wheel = env.get("torch").and_then(|t| t.wheel);
    wheel.map_or_else(Vec::new, |w| {
        uncovered(case, env, &core_code(w, env.cuda(case)))
    })
}

/// Suggests a release whose wheel fits, or a source build.
fn remedy(case: &Case<'_>, env: &Environment<'_>, package: &Package<'_>) -> String {
    let context = WheelContext::of(case, env);
    let fits = |version: &Version, release: &Release| {
        let other = Package {
            version: version.clone(),
            release: Some(release),
            ..package.clone()
        };
        matches!(wheel_fit(&other, &context), Fit::Fits(_))
    };
    let releases = case.catalog.releases(&package.name);
    let later = releases.and_then(|all| {
        let newer = all.iter().filter(|(v, _)| **v > package.version);
        let older = all.iter().rev().filter(|(v, _)| **v < package.version);
        newer.chain(older).find(|(v, r)| fits(v, r)).map(|(v, _)| v)
    });
    match later {
        Some(version) => format!("{} {version} has a wheel that runs there", package.name),
        None if can_be_built(case, env, package) => {
            format!("build it: `{}: {{ from: source }}`", package.name)
        }
        None => "no known release has a wheel that runs there, and it cannot be built for it here"
            .to_owned(),
    }
}

/// Whether a recipe can compile the package for the GPUs on this base.
fn can_be_built(case: &Case<'_>, env: &Environment<'_>, package: &Package<'_>) -> bool {
    let recipe = recipe_of(case, &package.name).filter(|r| r.build.is_some());
    recipe.is_some_and(|recipe| {
        let toolkit = base_cuda(case)
            .and_then(|(major, minor)| case.catalog.toolkit(&format!("{major}.{}", minor?)));
        let made = |sm: Sm| toolkit.is_none_or(|t| makes(t, sm));
        let refused = env.with_facts(
            case,
            Some(&package.version),
            DistributionKind::Source,
            |facts| {
                let sms = case.devices();
                let facts = Facts {
                    sms: &sms,
                    ..facts.clone()
                };
                recipe.refusals.iter().any(|r| r.when.hold(&facts))
            },
        );
        !refused && case.devices().into_iter().all(made)
    })
}

pub fn compiled_code_covers_the_gpu(
    case: &Case<'_>,
    env: &Environment<'_>,
    findings: &mut Vec<Diagnostic>,
) {
    let Some(device) = case.machine.sm else {
        return;
    };
    let aligned = aligned(env.cuda_floor(case));
    let runs = |sm: &Sm| sass_runs(*sm, device, aligned);
    if env.builds.is_empty() || !case.exists(device) || case.target.sms.iter().any(runs) {
        return;
    }
    let device = device.base();
    let builds: Vec<String> = env.builds.iter().map(Build::shown).collect();
    let toolkit = case.target.base.image().and_then(|i| i.cuda.as_deref());
    let unmade = toolkit
        .and_then(|cuda| case.catalog.toolkit(cuda))
        .is_some_and(|t| !makes(t, device));
    findings.push(
        Diagnostic::error(
            codes::SM_NOT_COVERED,
            format!(
                "{} {} compiled for {}, which does not run on {}",
                builds.join(" and "),
                if builds.len() == 1 { "is" } else { "are" },
                names(&case.target.sms),
                name(device)
            ),
        )
        .at(case.gpu_span())
        .help(if unmade {
            toolkits_for(case, device)
        } else {
            format!("add the GPU to `target.gpu` ({})", name(device))
        }),
    );
}

/// Describes how a wheel that compiles kernels itself serves the GPUs.
pub fn assembler(case: &Case<'_>, package: &Package<'_>) -> Option<String> {
    let sm = *case.devices().last()?;
    let ptxas = package.release?.ptxas_for(sm)?;
    (case.catalog.assembles(ptxas, sm)?)
        .then(|| format!("its ptxas {} knows {}", ptxas.version, name(sm)))
}

pub fn ptxas_knows_the_gpu(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(triton) = env.get("triton") else {
        return;
    };
    let Some(release) = triton.release.filter(|r| !r.ptxas.is_empty()) else {
        return;
    };
    let platform = case.stack.platform.value;
    let assembles = |release: &Release, sm: Sm| {
        let ptxas = release.ptxas_for(sm);
        ptxas.is_none_or(|p| case.catalog.assembles(p, sm) != Some(false))
    };
    for sm in case.devices() {
        if assembles(release, sm) {
            continue;
        }
        let with = case.catalog.releases("triton").and_then(|all| {
            all.iter()
                .find(|(v, r)| **v > triton.version && assembles(r, sm))
                .map(|(v, _)| v)
        });
        let torch = with.and_then(|v| {
            let releases = case.catalog.releases("torch")?;
            releases
                .iter()
                .find(|(_, r)| r.asks_on(platform, "triton").is_some_and(|s| s.contains(v)))
                .map(|(t, _)| t)
        });
        let help = match (with, torch) {
            (Some(v), Some(t)) => format!(
                "triton {v} knows it, which torch {t} pins; or leave torch.compile and Triton kernels out and set `jit: false`"
            ),
            (Some(v), None) => format!("triton {v} knows it"),
            _ => "no known triton knows it".to_owned(),
        };
        // The image works without kernels compiled at run time: eager torch needs no ptxas.
        let message = format!(
            "the ptxas of {} cannot assemble for {}",
            triton.shown(),
            name(sm)
        );
        let finding = if case.stack.jit {
            Diagnostic::error(codes::PTXAS_TOO_OLD, message)
        } else {
            Diagnostic::warning(codes::PTXAS_TOO_OLD, message)
        };
        findings.push(finding.at(triton.span).help(help));
    }
}

pub fn cudnn_has_code(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    cudnn_of_wheels(case, env, findings);
    cudnn_of_builds(case, env, findings);
}

/// A torch from a wheel uses the cuDNN wheel beside it.
fn cudnn_of_wheels(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let without_torch = torch_misses(case, env);
    for package in env
        .packages
        .values()
        .filter(|p| p.name.starts_with("nvidia-cudnn-cu"))
    {
        let Some(wheel) = package.wheel else { continue };
        let mut missing = uncovered(case, env, &core_code(wheel, env.cuda(case)));
        missing.retain(|sm| !without_torch.contains(sm));
        if missing.is_empty() {
            continue;
        }
        let others = case.catalog.releases(&package.name).into_iter().flatten();
        let with = others.filter(|(_, r)| {
            r.wheels_for(case.stack.platform.value, "").any(|w| {
                let core = core_code(w, env.cuda(case));
                let misses = uncovered(case, env, &core);
                !core.is_empty() && missing.iter().all(|sm| !misses.contains(sm))
            })
        });
        let versions: Vec<String> = with.map(|(v, _)| v.to_string()).collect();
        findings.push(
            Diagnostic::warning(
                codes::CUDNN_FLOOR,
                format!("{} has no code for {}", package.shown(), names(&missing)),
            )
            .at(package.span)
            .help(match versions.as_slice() {
                [] => "no known cuDNN for this CUDA has it: build torch from source with `env: { USE_CUDNN: \"0\" }`".to_owned(),
                some => format!(
                    "of the releases that were read {} has it: `overrides: [{}=={}]`",
                    some.join(", "),
                    package.name,
                    some[some.len() - 1]
                ),
            }),
        );
    }
}

/// A compiled torch uses the base's cuDNN unless told otherwise.
fn cudnn_of_builds(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(torch) = env
        .get("torch")
        .filter(|t| t.kind == DistributionKind::Source)
    else {
        return;
    };
    let library = case.stack.library("torch");
    let set = library.and_then(|l| l.env.get("USE_CUDNN"));
    let off = match set {
        Some(value) => value == "0",
        None => env.sets(case, "torch", "USE_CUDNN").as_deref() == Some("0"),
    };
    let old: Vec<Sm> = case
        .devices()
        .into_iter()
        .filter(|sm| {
            case.catalog
                .sm_facts(*sm)
                .is_some_and(|f| f.cudnn.last.is_some())
        })
        .collect();
    if off || old.is_empty() {
        return;
    }
    findings.push(
        Diagnostic::error(
            codes::CUDNN_FLOOR,
            format!("current cuDNN has no code for {}", names(&old)),
        )
        .at(torch.span)
        .help("build torch without it: `env: { USE_CUDNN: \"0\" }`"),
    );
}
