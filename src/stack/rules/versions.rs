//! Rules about files: whether they fit the image and each other.

use super::case::{Case, distribution, glibc, recipe_of};
use super::environment::{Environment, Package};
use super::pick::exact;
use crate::catalog::{DistributionKind, Glibc, Known, Release, ReleaseWheel, WheelCuda};
use crate::diag::{Diagnostic, Span, codes};
use crate::fix::Fix;
use crate::lock::LackingLock;
use pep440_rs::Version;
use stackforge_types::wheel::WheelTarget;
use std::str::FromStr;

/// Checks Python, platform and glibc of each wheel.
pub fn files_fit(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let stack = case.stack;
    let base = glibc(case);
    let target = WheelTarget {
        python: stack.python.value,
        platform: stack.platform.value,
        // If the base's glibc is not known, it excludes nothing.
        glibc: base.map_or(u16::MAX, |g| g.0),
    };
    for package in env.packages.values() {
        let why = match (&package.file, package.release) {
            (_, Some(release)) if package.kind == DistributionKind::Source => {
                other_python(release, &target)
            }
            (None, None) if package.kind == DistributionKind::Source => None,
            (Some(file), _) => file
                .rank(&target)
                .is_none()
                .then(|| "the locked wheel is for another system".to_owned()),
            (None, Some(_)) if package.foreign => None,
            (None, Some(release)) => no_wheel_fits(release, package, &target, base),
            (None, None) => None,
        };
        let Some(why) = why else { continue };
        let on = match base {
            Some(glibc) => format!(
                "Python {} on {} with glibc {glibc}",
                target.python, target.platform
            ),
            None => format!("Python {} on {}", target.python, target.platform),
        };
        findings.push(
            Diagnostic::error(
                codes::NO_MATCHING_FILE,
                format!("{} does not fit {on}: {why}", package.shown()),
            )
            .at(package.span)
            .help(
                if recipe_of(case, &package.name).is_some_and(|r| r.build.is_some()) {
                    "choose another release, another base, or `from: source`"
                } else {
                    "choose another release, or a base that it fits"
                },
            ),
        );
    }
}

fn other_python(release: &Release, target: &WheelTarget) -> Option<String> {
    let wanted = release.python.as_ref()?;
    let python = Version::from_str(&target.python.to_string()).ok()?;
    (!wanted.contains(&python)).then(|| format!("it needs Python {wanted}"))
}

fn no_wheel_fits(
    release: &Release,
    package: &Package<'_>,
    target: &WheelTarget,
    base: Option<Glibc>,
) -> Option<String> {
    if let Some(why) = other_python(release, target) {
        return Some(why);
    }
    if release.wheels.is_empty() {
        return None;
    }
    let here: Vec<&ReleaseWheel> = release
        .wheels_for(target.platform, &package.local)
        .collect();
    // A label that the catalog does not know comes from the user's own index.
    if here.is_empty() && !package.local.is_empty() {
        return None;
    }
    if here.is_empty() {
        return Some(format!("it has none for {}", target.platform));
    }
    let loads: Vec<&&ReleaseWheel> = here.iter().filter(|w| w.loads_in(target.python)).collect();
    if loads.is_empty() {
        let tags: Vec<String> = here
            .iter()
            .flat_map(|w| &w.python)
            .map(ToString::to_string)
            .collect();
        return Some(format!("it has {}", tags.join(", ")));
    }
    let floor = loads.iter().filter_map(|w| w.glibc).min()?;
    (base? < floor).then(|| format!("it needs glibc {floor}"))
}

/// All packages that link CUDA have to link the same major version.
pub fn one_cuda_major(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let Some((major, _)) = env.cuda(case) else {
        return;
    };
    let torch = env.get("torch");
    if torch.is_some_and(Package::is_cpu_only) {
        return;
    }
    // If a package requires another torch, report that instead.
    let wants_other = |package: &Package<'_>| {
        let asks = package.release.and_then(|r| r.asks("torch"));
        asks.zip(torch)
            .is_some_and(|(s, t)| !s.contains(&t.version))
    };
    let torch = torch.filter(|t| t.cuda().is_some()).map(Package::shown);
    for package in env.packages.values() {
        let other = match package.cuda() {
            // NVIDIA's own packages of both major versions may be installed together.
            Some((other, _)) if other != major && !package.name.starts_with("nvidia-") => other,
            _ => continue,
        };
        if package.name == "torch"
            || package.kind == DistributionKind::Source
            || wants_other(package)
        {
            continue;
        }
        let whose = match &torch {
            Some(torch) => format!("{torch} is for CUDA {major}"),
            None => format!("the base has CUDA {major}"),
        };
        findings.push(
            Diagnostic::error(
                codes::OTHER_CUDA_MAJOR,
                format!("{} is for CUDA {other}, {whose}", package.shown()),
            )
            .at(package.span)
            .help(release_for(case, env, package, major).unwrap_or_else(|| {
                format!("no known release is for CUDA {major}: leave `{}` out, or take a torch for CUDA {other}", package.name)
            })),
        );
    }
}

/// Suggests another release, or a source build, with the wanted CUDA.
fn release_for(
    case: &Case<'_>,
    env: &Environment<'_>,
    package: &Package<'_>,
    wanted: u32,
) -> Option<String> {
    if let Some(recipe) = recipe_of(case, &package.name).filter(|r| r.build.is_some()) {
        return Some(format!(
            "build it against the torch that is there: `{}: {{ from: source }}`",
            recipe.library
        ));
    }
    let torch = env.get("torch");
    let of_wanted =
        |w: &ReleaseWheel| matches!(w.cuda, WheelCuda::Version { major, .. } if major == wanted);
    let fits = |release: &Release| {
        let asks = release.asks("torch").zip(torch);
        let mut wheels = release.wheels_for(case.stack.platform.value, "");
        asks.is_none_or(|(s, t)| s.contains(&t.version)) && wheels.any(of_wanted)
    };
    let mut newest = case.catalog.releases(&package.name)?.iter().rev();
    let name = &package.name;
    match newest.find(|(_, release)| fits(release)) {
        Some((version, _)) => Some(format!("{name} {version} is for CUDA {wanted}")),
        None => torch.filter(|t| !t.local.is_empty()).map(|torch| {
            format!(
                "take the {name} for CUDA {wanted} from an `index` that has it, as {}",
                torch.shown()
            )
        }),
    }
}

pub fn cxx11_abi(_: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(torch) = env
        .get("torch")
        .filter(|t| t.kind == DistributionKind::Wheel)
    else {
        return;
    };
    let abi = |p: &Package<'_>| p.label.cxx11_abi.or_else(|| p.wheel?.cxx11_abi);
    let Some(own) = abi(torch) else { return };
    let text = |new: bool| if new { "the new" } else { "the old" };
    for package in env
        .packages
        .values()
        .filter(|p| p.kind == DistributionKind::Wheel)
    {
        let other = abi(package).filter(|other| *other != own);
        if let Some(other) = other {
            findings.push(
                Diagnostic::error(
                    codes::CXX11_ABI,
                    format!(
                        "{} has {} C++11 ABI, {} has {}",
                        package.shown(),
                        text(other),
                        torch.shown(),
                        text(own)
                    ),
                )
                .at(package.span)
                .help("take the wheel with the ABI of torch, or build it `from: source`"),
            );
        }
        let wanted = package.label.torch;
        let has = (
            torch.version.release().first().copied().unwrap_or(0),
            torch.version.release().get(1).copied().unwrap_or(0),
        );
        if let Some(wanted) = wanted.filter(|w| *w != has) {
            findings.push(
                Diagnostic::error(
                    codes::WRONG_PAIR,
                    format!(
                        "{} was built for torch {}.{}, the stack has {}",
                        package.shown(),
                        wanted.0,
                        wanted.1,
                        torch.version
                    ),
                )
                .at(package.span)
                .help("take the wheel for this torch, or build it `from: source`"),
            );
        }
    }
}

/// Checks the requirements of releases that something let the resolver ignore.
pub fn pins_hold(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let overridden = |name: &str| {
        let mut overrides = case.stack.overrides.iter();
        overrides.any(|o| stackforge_types::wheel::distribution_of(&o.value) == name)
    };
    for package in env.packages.values() {
        let Some(release) = package.release else {
            continue;
        };
        let of_wheel = package.wheel.into_iter().flat_map(|w| &w.requires);
        for pin in release.requires.iter().chain(of_wheel) {
            let Some(other) = env.get(&pin.name) else {
                continue;
            };
            let clash = env.clash.as_ref();
            if pin.versions.contains(&other.version)
                || clash.is_some_and(|c| c.is_of(&package.name, &pin.name))
            {
                continue;
            }
            let message = format!(
                "{} wants {} {}, the stack has {}",
                package.shown(),
                pin.name,
                pin.versions,
                other.version
            );
            // The user may override versions, but a compiled extension works with only one torch.
            let finding = match (overridden(&pin.name), pin.name.as_str()) {
                (true, "torch") if package.kind == DistributionKind::Wheel => {
                    Diagnostic::warning(codes::WRONG_PAIR, message)
                }
                (true, _) => continue,
                (false, "torch") if package.kind == DistributionKind::Source => continue,
                (false, _) => Diagnostic::error(codes::WRONG_PAIR, message),
            };
            let help = match exact(&pin.versions) {
                Some(version) if overridden(&pin.name) => format!(
                    "let `overrides` say `{}=={version}`, or take another {}",
                    pin.name, package.name
                ),
                Some(version) => format!(
                    "set `{}: \"{version}\"`, or take another {}",
                    pin.name, package.name
                ),
                None => format!("take a {} within {}", pin.name, pin.versions),
            };
            findings.push(finding.at(span(package, other)).help(help));
        }
    }
}

/// Returns the line of the package that the stack names.
fn span(package: &Package<'_>, other: &Package<'_>) -> Span {
    if package.span.line > 0 {
        package.span
    } else {
        other.span
    }
}

pub fn known_clashes(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    for conflict in &case.catalog.conflicts {
        let found: Vec<&Package<'_>> = conflict
            .packages
            .iter()
            .filter_map(|(name, versions)| env.get(name).filter(|p| versions.contains(&p.version)))
            .collect();
        if found.len() < conflict.packages.len() {
            continue;
        }
        let shown: Vec<String> = found.iter().map(|p| p.shown()).collect();
        let span = found
            .iter()
            .map(|p| p.span)
            .find(|s| s.line > 0)
            .unwrap_or_default();
        findings.push(
            Diagnostic::error(
                codes::PACKAGES_CLASH,
                format!("{}: {}", shown.join(" and "), conflict.what),
            )
            .at(span)
            .help(conflict.fix.clone()),
        );
    }
}

/// Reports locked distributions that lack libraries which extras of theirs bring.
pub fn extras_are_named(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    for lacking in case.lock.iter().flat_map(|lock| &lock.lacking) {
        let LackingLock {
            name,
            needs,
            extras,
        } = lacking;
        if extras.is_empty() {
            let cuda = needs.first().and_then(|n| case.catalog.cuda_of(n));
            match cuda {
                Some(major) => findings.extend(other_cuda(case, env, lacking, major)),
                None => findings.push(in_no_package(env, lacking)),
            }
            continue;
        }
        let entry = |written: &str| {
            let written = written.trim_end();
            match written.strip_suffix(']') {
                Some(begun) => format!("{begun},{}]", extras.join(",")),
                None => format!("{written}[{}]", extras.join(",")),
            }
        };
        let libraries = &case.stack.libraries;
        let library = libraries
            .iter()
            .find(|l| distribution(case, l.name.value.as_str()) == *name);
        let written = library.map(|library| {
            let span = library.name.span;
            let text = case.stack.source.text.get(span.offset..);
            let text = text.and_then(|t| t.get(..span.len)).unwrap_or(name);
            (span, text.trim_matches(['"', '\'']))
        });
        let (span, to, fix) = match written {
            Some((span, from)) => {
                let to = entry(from);
                let fix = Fix::Replace {
                    span,
                    from: from.to_owned(),
                    to: to.clone(),
                };
                (span, to, fix)
            }
            None => {
                let span = env.get(name).map(|p| p.span).unwrap_or_default();
                let name = entry(name);
                let version = "auto".to_owned();
                (span, name.clone(), Fix::AddLibrary { name, version })
            }
        };
        let them = match extras.as_slice() {
            [_] => "its extra brings",
            _ => "its extras bring",
        };
        findings.push(
            Diagnostic::error(
                codes::EXTRAS_LACKING,
                format!(
                    "{name} needs {}, which {them} and the stack does not name",
                    needs.join(", ")
                ),
            )
            .at(span)
            .help(format!("write `\"{to}\"` in `libraries`"))
            .fix(fix),
        );
    }
}

/// Warns of a distribution that needs libraries of a release of CUDA which nothing brings. Whether anything loads them is
/// for the audit of a build to say. What has a recipe is judged by its facts.
fn other_cuda(
    case: &Case<'_>,
    env: &Environment<'_>,
    lacking: &LackingLock,
    major: u32,
) -> Option<Diagnostic> {
    let LackingLock { name, needs, .. } = lacking;
    let package = env.get(name);
    if package.is_some_and(|p| recipe_of(case, &p.name).is_some()) {
        return None;
    }
    let shown = package.map_or_else(|| name.clone(), Package::shown);
    let is_of_major = |soname: &&String| case.catalog.cuda_of(soname) == Some(major);
    let needs: Vec<&str> = needs
        .iter()
        .filter(is_of_major)
        .map(String::as_str)
        .collect();
    let message = format!(
        "{shown} needs {} of CUDA {major}, which nothing in the stack brings",
        needs.join(", ")
    );
    let help = format!(
        "choose a release of `{name}` for the CUDA of the stack, mostly a newer one; as it is, the audit of a build refuses it"
    );
    let finding = Diagnostic::warning(codes::OTHER_CUDA_MAJOR, message).help(help);
    Some(finding.at(package.map(|p| p.span).unwrap_or_default()))
}

/// Warns of a distribution that needs libraries which no package of the base's archive has.
fn in_no_package(env: &Environment<'_>, lacking: &LackingLock) -> Diagnostic {
    let LackingLock { name, needs, .. } = lacking;
    let package = env.get(name);
    let shown = package.map_or_else(|| name.clone(), Package::shown);
    let message = format!(
        "{shown} needs {}, which no wheel of the stack and no package of the base's archive has",
        needs.join(", ")
    );
    let finding = Diagnostic::warning(codes::NEEDED_MISSING, message).help(
        "if it is a part that you do without, all is well; the audit of a build refuses what its modules load",
    );
    finding.at(package.map(|p| p.span).unwrap_or_default())
}

/// Reports refusals and faults that recipes list for these versions.
pub fn known_faults(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    for package in env.packages.values() {
        let Some(recipe) = recipe_of(case, &package.name) else {
            continue;
        };
        env.with_facts(case, Some(&package.version), package.kind, |facts| {
            for refusal in recipe.refusals.iter().filter(|r| r.when.hold(facts)) {
                findings.push(
                    Diagnostic::error(
                        codes::LIBRARY_REFUSED,
                        format!("`{}`: {}", recipe.library, refusal.reason),
                    )
                    .at(package.span)
                    .help(refusal.fix.clone()),
                );
            }
            let named = case.stack.library(&recipe.library).is_some();
            let holds = |k: &&Known| (named || !k.named) && k.when.hold(facts);
            for known in recipe.known.iter().filter(holds) {
                findings.push(
                    Diagnostic::warning(
                        codes::KNOWN_FAULT,
                        format!("{}: {}", package.shown(), known.what),
                    )
                    .at(package.span)
                    .help(known.fix.clone()),
                );
            }
        });
    }
}

/// Reports two libraries of a stack without a lock that have no compatible releases.
pub fn pins_exclude(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(clash) = &env.clash else { return };
    let span_of = |name: &str| {
        case.stack
            .libraries
            .iter()
            .find(|l| distribution(case, l.name.value.as_str()) == name)
            .map(|l| l.name.span)
            .unwrap_or_default()
    };
    let (name, version, wanted) = &clash.one;
    let about = &clash.about;
    let (message, help) = match (&clash.other, &clash.stack) {
        (Some((other, other_version, theirs)), _) => (
            format!(
                "`{name}` and `{other}` exclude each other: {name} {version} wants {about} {wanted}, {other} {other_version} wants {about} {theirs}"
            ),
            format!("choose releases that want the same {about}, or build two images"),
        ),
        (None, Some(own)) => (
            format!(
                "no known `{name}` that the stack takes accepts its {about} {own}: {name} {version} wants {about} {wanted}"
            ),
            format!("set `{about}` to what {name} wants, or choose another {name}"),
        ),
        (None, None) => (
            format!(
                "no known `{name}` goes with the rest of the stack: {version} wants {about} {wanted}"
            ),
            format!("choose another {name}"),
        ),
    };
    findings.push(
        Diagnostic::error(codes::PINS_EXCLUDE, message)
            .at(span_of(name))
            .help(help),
    );
}
