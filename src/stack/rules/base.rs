//! Rules about target, base and the way libraries are installed that need no library's version.

use super::case::{Case, base_cuda, distribution, glibc, name};
use crate::catalog::{DistributionKind, Facts, Image, JetsonRelease, Recipe, Toolkit, WheelSource};
use crate::diag::{Diagnostic, codes};
use crate::spec::{FileKind, From, Library, Platform, Sm, Wanted};
use pep440_rs::Version;
use stackforge_gpu::same;
use stackforge_types::wheel::WheelTarget;
use std::str::FromStr;

/// Most layers of an image in Docker.
const DEEPEST: u32 = 125;

pub fn gpu_exists_on_platform(case: &Case<'_>, findings: &mut Vec<Diagnostic>) {
    let stack = case.stack;
    let platform = stack.platform.value;
    let missing = |gpu: &str, platforms: &[Platform]| {
        Diagnostic::error(
            codes::GPU_PLATFORM,
            format!("`{gpu}` does not exist on {platform}"),
        )
        .help(format!("set `target.platform` to {}", list(platforms)))
        .only(&stack.platform, platforms)
    };
    // Beside other SMs this one may be there to compile for it; alone it is a mistake.
    let none = !case.target.sms.iter().any(|sm| case.exists(*sm));
    for gpu in &case.stack.gpus {
        let platforms = match case.catalog.gpu(&gpu.value) {
            Some(known) => Some(&known.platforms),
            None if none => platforms_of(case, &gpu.value),
            None => None,
        };
        if let Some(platforms) = platforms.filter(|p| !p.contains(&platform)) {
            findings.push(missing(&gpu.value, platforms).at(gpu.span));
        }
    }
    let machine = case.machine.gpu.as_deref();
    if let Some((gpu, platforms)) = machine.and_then(|g| Some((g, platforms_of(case, g)?)))
        && !platforms.contains(&platform)
    {
        findings.push(
            Diagnostic::error(
                codes::GPU_PLATFORM,
                format!(
                    "the image is for {platform}, `{gpu}` exists on {}",
                    list(platforms)
                ),
            )
            .at(case.stack.platform.span)
            .help("make a stack, or a variant, for its platform"),
        );
    }
}

/// Returns the platforms of a GPU's name or of an SM.
fn platforms_of<'c>(case: &Case<'c>, gpu: &str) -> Option<&'c Vec<Platform>> {
    match case.catalog.gpu(gpu) {
        Some(known) => Some(&known.platforms),
        None => Some(&case.catalog.sm_facts(case.catalog.sm(gpu)?)?.platforms),
    }
}

pub fn base_fits(case: &Case<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(image) = case.target.base.image() else {
        return;
    };
    let stack = case.stack;
    if !image.python.contains(&stack.python.value) {
        findings.push(
            Diagnostic::error(
                codes::BASE_WITHOUT_PYTHON,
                format!(
                    "base `{}` has no Python {}",
                    image.image, stack.python.value
                ),
            )
            .at(stack.python.span)
            .help(format!("it has {}", list(&image.python)))
            .only(&stack.python, &image.python),
        );
    }
    if !image.platforms.contains(&stack.platform.value) {
        findings.push(
            Diagnostic::error(
                codes::BASE_PLATFORM,
                format!(
                    "base `{}` does not exist for {}",
                    image.image, stack.platform.value
                ),
            )
            .at(stack.base.span)
            .help(format!("it exists for {}", list(&image.platforms)))
            .only(&stack.platform, &image.platforms),
        );
    }
}

pub fn toolkit_knows_the_gpu(case: &Case<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(image) = case.target.base.image() else {
        return;
    };
    let Some(toolkit) = image.cuda.as_deref().and_then(|c| case.catalog.toolkit(c)) else {
        return;
    };
    for sm in case.target.sms.iter().filter(|sm| !makes(toolkit, **sm)) {
        findings.push(
            Diagnostic::error(
                codes::SM_NOT_IN_TOOLKIT,
                format!(
                    "CUDA {} of base `{}` cannot make code for {}",
                    toolkit.version,
                    image.image,
                    name(*sm)
                ),
            )
            .at(case.stack.base.span)
            .help(toolkits_for(case, *sm)),
        );
    }
}

/// Whether the toolkit compiles for the SM, including its suffix.
pub fn makes(toolkit: &Toolkit, sm: Sm) -> bool {
    let listed = match sm.suffix {
        None => &toolkit.sms,
        Some(stackforge_types::Suffix::Arch) => &toolkit.arch_specific,
        Some(stackforge_types::Suffix::Family) => &toolkit.family_specific,
    };
    listed.contains(&sm)
}

/// Describes the CUDA versions that support an SM, and a base with one of them.
pub fn toolkits_for(case: &Case<'_>, sm: Sm) -> String {
    let makers: Vec<&Toolkit> = case
        .catalog
        .toolkits
        .iter()
        .filter(|t| makes(t, sm))
        .collect();
    let (Some(first), Some(last)) = (makers.first(), makers.last()) else {
        return format!("no CUDA from 11.8 on makes code for {}", name(sm));
    };
    let newest = case.catalog.toolkits.last().map(|t| t.version.as_str());
    let range = if Some(last.version.as_str()) == newest {
        format!("{} needs CUDA {} or newer", name(sm), first.version)
    } else {
        format!(
            "{} needs CUDA {} to {}",
            name(sm),
            first.version,
            last.version
        )
    };
    let fits = |i: &&Image| {
        i.platforms.contains(&case.stack.platform.value)
            && i.python.contains(&case.stack.python.value)
            && i.cuda
                .as_deref()
                .and_then(|c| case.catalog.toolkit(c))
                .is_some_and(|t| makes(t, sm))
    };
    let os = case.target.base.image().map(|i| &i.os.codename);
    let bases = case.catalog.images.values().filter(fits);
    let farther = |i: &&Image| {
        let cuda: Vec<u32> = i
            .cuda
            .iter()
            .flat_map(|c| c.split('.'))
            .flat_map(str::parse)
            .collect();
        (i.jetpack.is_some(), Some(&i.os.codename) != os, cuda)
    };
    match bases.min_by_key(farther) {
        Some(base) => format!("{range}: base `{}` has it", base.image),
        None => range,
    }
}

pub fn jetpack_fits(case: &Case<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(image) = case.target.base.image() else {
        return;
    };
    for sm in case.devices() {
        let releases: Vec<&JetsonRelease> = case
            .catalog
            .jetson
            .iter()
            .filter(|r| r.gpus.iter().any(|gpu| same(*gpu, sm)))
            .collect();
        // Only SMs that an L4T release lists are integrated GPUs.
        let runs = releases.iter().any(|r| r.bases.contains(&image.image));
        if releases.is_empty() || runs {
            continue;
        }
        let has = |r: &&&JetsonRelease| !r.bases.is_empty();
        let bases: Vec<String> = releases
            .iter()
            .filter(has)
            .map(|r| format!("`{}` (JetPack {})", r.bases[0], r.jetpack))
            .collect();
        findings.push(
            Diagnostic::error(
                codes::WRONG_JETPACK,
                format!(
                    "no JetPack for {} runs base `{}`{}",
                    name(sm),
                    image.image,
                    image
                        .cuda
                        .as_deref()
                        .map(|c| format!(" (CUDA {c})"))
                        .unwrap_or_default()
                ),
            )
            .at(case.stack.base.span)
            .help(format!("use {}", bases.join(" or "))),
        );
    }
    if image.l4t.is_some()
        && case
            .catalog
            .jetson
            .iter()
            .flat_map(|r| &r.gpus)
            .all(|gpu| !case.target.sms.iter().any(|sm| same(*gpu, *sm)))
    {
        findings.push(
            Diagnostic::error(
                codes::WRONG_JETPACK,
                format!("base `{}` is for Jetson, the target is none", image.image),
            )
            .at(case.stack.base.span)
            .help("use a CUDA base for servers"),
        );
    }
}

/// Checks the number of layers: those of the base and those that a stack adds (OS packages, three of
/// wheels, one for each compiled library, the validation's report).
pub fn layers_fit(case: &Case<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(image) = case.target.base.image() else {
        return;
    };
    let compiled = case
        .stack
        .libraries
        .iter()
        .filter(|l| l.from == From::Source);
    let own = 5 + u32::try_from(compiled.count()).unwrap_or(u32::MAX);
    let base = image.layers.unwrap_or(0);
    if base.saturating_add(own) > DEEPEST {
        findings.push(
            Diagnostic::error(
                codes::TOO_MANY_LAYERS,
                format!(
                    "base `{}` has {base} layers, the stack adds {own}: Docker takes {DEEPEST}",
                    image.image
                ),
            )
            .at(case.stack.base.span)
            .help("use a base with fewer layers"),
        );
    }
}

pub fn library_can_come_so(case: &Case<'_>, findings: &mut Vec<Diagnostic>) {
    for library in &case.stack.libraries {
        let recipe = case
            .target
            .recipes
            .get(library.name.value.as_str())
            .copied();
        check_wheel_or_source(case, library, recipe, findings);
        file_fits(case, library, findings);
        if let Some(recipe) = recipe {
            refusals(case, library, recipe, findings);
        }
    }
}

fn check_wheel_or_source(
    case: &Case<'_>,
    library: &Library,
    recipe: Option<&Recipe>,
    findings: &mut Vec<Diagnostic>,
) {
    let name = &library.name.value;
    let buildable = recipe.is_some_and(|r| r.build.is_some());
    // A source distribution that nobody described is built as its own backend says.
    let described = recipe.is_some() || library.git.is_some();
    if library.from == From::Source && !buildable && described {
        findings.push(
            Diagnostic::error(
                codes::NO_SOURCE_RECIPE,
                format!("no recipe builds `{name}` from source"),
            )
            .at(library.name.span)
            .help(if library.git.is_some() {
                "`git` needs a recipe too: add one under `.stackforge/libraries/`"
            } else {
                "use `from: wheel`, or add a recipe under `.stackforge/libraries/`"
            }),
        );
    }
    // The stack's own index may have wheels that the public one lacks.
    let foreign =
        library.index.is_some() || library.file.is_some() || !case.stack.indexes.is_empty();
    let none = recipe.is_some_and(|r| r.wheels == WheelSource::None);
    if library.from == From::Wheel && none && !foreign {
        findings.push(
            Diagnostic::error(codes::SOURCE_ONLY, format!("`{name}` has no wheels"))
                .at(library.name.span)
                .help("use `from: source` or `from: auto`"),
        );
    }
}

/// Reports a file that is another distribution's, or a wheel that the image cannot take.
fn file_fits(case: &Case<'_>, library: &Library, findings: &mut Vec<Diagnostic>) {
    let Some(file) = &library.file else {
        return;
    };
    let mut unfit = |message: String, help: String| {
        let finding = Diagnostic::error(codes::FILE_UNFIT, message);
        findings.push(finding.at(library.version_span).help(help));
    };
    let (own, wanted) = (
        file.kind.distribution(),
        distribution(case, library.name.value.as_str()),
    );
    if own != wanted {
        unfit(
            format!("`{}` is a file of `{own}`, not of `{wanted}`", file.name),
            format!("name the library `{own}`, or another file"),
        );
        return;
    }
    let FileKind::Wheel(wheel) = &file.kind else {
        return;
    };
    let target = WheelTarget {
        python: case.stack.python.value,
        platform: case.stack.platform.value,
        glibc: glibc(case).map_or(u16::MAX, |g| g.0),
    };
    if wheel.rank(&target).is_none() {
        let (platform, python) = (target.platform, target.python);
        let with = glibc(case).map_or_else(String::new, |g| format!(" and glibc {g}"));
        unfit(
            format!(
                "`{}` cannot be installed on {platform} with Python {python}{with}",
                file.name
            ),
            "name a wheel whose tags fit, or its source distribution".to_owned(),
        );
    }
}

/// Reports what the recipe refuses for the versions that the stack names.
fn refusals(case: &Case<'_>, library: &Library, recipe: &Recipe, findings: &mut Vec<Diagnostic>) {
    let wants = |library: &Library| match &library.version {
        Wanted::Specifier(s) => {
            let name = distribution(case, library.name.value.as_str());
            super::pick::first(case, &name, s).map(|v| v.without_local())
        }
        Wanted::Auto => None,
    };
    let locked = |name: &str| {
        let lock = case.lock?;
        let name = distribution(case, name);
        let version = lock
            .wheel(&name)
            .map(|w| &w.version)
            .or_else(|| lock.build(&name).map(|b| &b.version))?;
        Version::from_str(version).ok()
    };
    let version = locked(library.name.value.as_str()).or_else(|| wants(library));
    let torch = locked("torch").or_else(|| case.stack.library("torch").and_then(wants));
    let cuda = base_cuda(case)
        .and_then(|(a, b)| Version::from_str(&format!("{a}.{}", b.unwrap_or(0))).ok());
    let python = Version::from_str(&case.stack.python.value.to_string()).ok();
    let platform = case.stack.platform.value.to_string();
    let from = match library.from {
        From::Wheel => Some(DistributionKind::Wheel),
        From::Source => Some(DistributionKind::Source),
        From::Auto => None,
    };
    let facts = Facts {
        torch: torch.as_ref(),
        cuda: cuda.as_ref(),
        version: version.as_ref(),
        python: python.as_ref(),
        platform: Some(&platform),
        from,
        sms: &match (from, recipe.wheels) {
            (Some(DistributionKind::Source), _) | (None, WheelSource::None) => {
                case.target.sms.clone()
            }
            _ => case.devices(),
        },
    };
    for refusal in recipe.refusals.iter().filter(|r| r.when.hold(&facts)) {
        findings.push(
            Diagnostic::error(
                codes::LIBRARY_REFUSED,
                format!("`{}`: {}", library.name.value, refusal.reason),
            )
            .at(library.name.span)
            .help(refusal.fix.clone()),
        );
    }
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    items
        .iter()
        .map(|i| format!("`{i}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
