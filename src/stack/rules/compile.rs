//! Rules about compiled libraries: standard, compiler, toolkit, SMs, memory.

use super::base::{makes, toolkits_for};
use super::case::{Case, base_cuda, name, names};
use super::environment::{Build as Built, Environment};
use crate::catalog::{Build, DistributionKind, Facts, Toolkit};
use crate::diag::{Diagnostic, codes};
use crate::spec::{Library, Sm};
use pep440_rs::Version;
use std::str::FromStr;

pub fn nothing_editable(case: &Case<'_>, findings: &mut Vec<Diagnostic>) {
    let editable = |line: &str| {
        let line = line.trim_start();
        let pip = line.contains("pip") && (line.contains(" -e ") || line.contains("--editable"));
        pip || line.contains("setup.py develop")
    };
    for library in &case.stack.libraries {
        let recipe = case.target.recipes.get(library.name.value.as_str());
        let commands = recipe.and_then(|r| r.build.as_ref()).map(|b| &b.commands);
        if commands.into_iter().flatten().any(|c| editable(c)) {
            findings.push(
                Diagnostic::error(
                    codes::EDITABLE,
                    format!(
                        "the recipe of `{}` makes an editable install",
                        library.name.value
                    ),
                )
                .at(library.name.span)
                .help("let its `commands` write a wheel to /opt/wheels"),
            );
        }
    }
}

impl Environment<'_> {
    /// Returns a variable of a library's build, as the recipe sets it for this target.
    pub(super) fn sets(&self, case: &Case<'_>, library: &str, variable: &str) -> Option<String> {
        let built = self.builds.iter().find(|b| b.recipe.library == library)?;
        let build = built.recipe.build.as_ref()?;
        let conditional = self.holds(case, built, |facts| {
            build
                .env_when
                .iter()
                .filter(|e| e.when.hold(facts))
                .find_map(|e| e.env.get(variable).cloned())
        });
        conditional.or_else(|| build.env.get(variable).cloned())
    }

    fn holds<T>(&self, case: &Case<'_>, built: &Built<'_>, ask: impl FnOnce(&Facts<'_>) -> T) -> T {
        self.with_facts(case, built.version.as_ref(), DistributionKind::Source, ask)
    }
}

/// Returns the stack's builds with the settings of recipe and stack.
fn builds<'e>(
    case: &'e Case<'_>,
    env: &'e Environment<'_>,
) -> impl Iterator<Item = (&'e Built<'e>, &'e Build, Option<&'e Library>)> {
    env.builds.iter().filter_map(|built| {
        let library = case.stack.library(&built.recipe.library);
        Some((built, built.recipe.build.as_ref()?, library))
    })
}

pub fn cxx_standard(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let asks = case
        .catalog
        .recipe("torch")
        .and_then(|r| r.extensions.as_ref());
    let (Some(torch), Some(asks)) = (env.version("torch"), asks) else {
        return;
    };
    let floors = asks
        .cxx_standard
        .iter()
        .filter(|f| f.version.contains(torch));
    let Some(needs) = floors.map(|f| f.needs).max() else {
        return;
    };
    let flag = format!("c++{needs}");
    for (built, build, library) in builds(case, env) {
        let Some(standard) = build.cxx_standard.as_ref().filter(|s| s.asks < needs) else {
            continue;
        };
        let chosen = |id: &str| match library.map(|l| l.patches.as_slice()) {
            Some(ids) if !ids.is_empty() => ids.iter().any(|i| i == id),
            _ => true,
        };
        let patched = env.holds(case, built, |facts| {
            build
                .patches
                .iter()
                .any(|p| p.with.contains(&flag) && p.when.hold(facts) && chosen(&p.id))
        });
        if patched || built.recipe.library == "torch" {
            continue;
        }
        findings.push(
            Diagnostic::error(
                codes::CXX_STANDARD,
                format!(
                    "{} is compiled as C++{}, the headers of torch {torch} need C++{needs}",
                    built.shown(),
                    standard.asks
                ),
            )
            .at(built.span)
            .help(match build.patches.iter().find(|p| p.with.contains(&flag)) {
                Some(patch) => format!("let the recipe's patch apply: add `{}` to `patches`, or leave `patches` out", patch.id),
                None => "use an older torch, or give the recipe a patch".to_owned(),
            }),
        );
    }
}

/// Returns the toolkit that builder stages compile with.
fn toolkit<'c>(case: &Case<'c>, env: &Environment<'_>) -> Option<&'c Toolkit> {
    let (major, minor) = base_cuda(case).or_else(|| env.cuda(case))?;
    case.catalog.toolkit(&format!("{major}.{}", minor?))
}

pub fn compiler_is_not_too_new(
    case: &Case<'_>,
    env: &Environment<'_>,
    findings: &mut Vec<Diagnostic>,
) {
    let (Some(image), Some(toolkit)) = (case.target.base.image(), toolkit(case, env)) else {
        return;
    };
    let Some((built, _, _)) = builds(case, env).next() else {
        return;
    };
    let refused = |ceiling: u32, whose: String| {
        Diagnostic::error(
            codes::COMPILER_TOO_NEW,
            format!(
                "base `{}` has GCC {}, {whose} takes at most {ceiling}: {} cannot be compiled",
                image.image,
                image.gcc,
                built.shown()
            ),
        )
        .at(case.stack.base.span)
        .help("use a base with an older GCC, or with a newer CUDA")
    };
    if image.gcc > toolkit.gcc_max {
        findings.push(refused(
            toolkit.gcc_max,
            format!("nvcc of CUDA {}", toolkit.version),
        ));
        return;
    }
    let torch = env
        .get("torch")
        .filter(|t| t.kind == DistributionKind::Wheel)
        .map(|t| &t.version);
    let rows = case
        .catalog
        .recipe("torch")
        .and_then(|r| r.extensions.as_ref());
    let ceiling = torch.zip(rows).and_then(|(torch, asks)| {
        let cuda = Version::from_str(&toolkit.version).ok()?;
        asks.gcc
            .iter()
            .filter(|row| row.version.contains(torch) && row.cuda.contains(&cuda))
            .map(|row| row.max)
            .max()
    });
    if let (Some(ceiling), Some(torch)) = (ceiling, torch)
        && image.gcc > ceiling
    {
        findings.push(refused(
            ceiling,
            format!(
                "the extension builder of torch {torch} with CUDA {}",
                toolkit.version
            ),
        ));
    }
}

/// Extensions have to be compiled with torch's CUDA.
pub fn toolkit_is_torchs(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let (Some(image), Some(base)) = (case.target.base.image(), base_cuda(case)) else {
        return;
    };
    let Some(torch) = env
        .get("torch")
        .filter(|t| t.kind == DistributionKind::Wheel)
    else {
        return;
    };
    let Some((major, minor)) = torch.cuda() else {
        return;
    };
    let extension =
        builds(case, env).find(|(_, build, _)| build.needs.iter().any(|n| n == "torch"));
    let Some((built, ..)) = extension else {
        return;
    };
    let shown = |c: (u32, Option<u32>)| match c.1 {
        Some(minor) => format!("{}.{minor}", c.0),
        None => c.0.to_string(),
    };
    let message = format!(
        "base `{}` compiles {} with CUDA {}, {} has CUDA {}",
        image.image,
        built.shown(),
        shown(base),
        torch.shown(),
        shown((major, minor))
    );
    let help = format!(
        "use a base with CUDA {}, or one without CUDA such as `debian-bookworm`",
        shown((major, minor))
    );
    // torch only warns about another minor release, and nvcc's SASS runs all the same.
    if base.0 != major {
        findings.push(
            Diagnostic::error(codes::TOOLKIT_MISMATCH, message)
                .at(case.stack.base.span)
                .help(help),
        );
    }
}

pub fn arch_variables(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    for (built, build, library) in builds(case, env) {
        let Some(library) = library else { continue };
        for (variable, value) in &library.env {
            let sms = sms_of(value);
            let partial = build.partial_arch.iter().find(|p| p.variable == *variable);
            let ignored: Vec<Sm> = match partial {
                Some(p) if env.holds(case, built, |f| p.when.hold(f)) => sms
                    .iter()
                    .copied()
                    .filter(|s| !p.knows.contains(&s.base()))
                    .collect(),
                _ => Vec::new(),
            };
            if let (Some(p), false) = (partial, ignored.is_empty()) {
                findings.push(
                    Diagnostic::error(
                        codes::ARCH_IGNORED,
                        format!(
                            "{} ignores {} in `{variable}`: {}",
                            built.shown(),
                            names(&ignored),
                            p.why
                        ),
                    )
                    .at(library.name.span)
                    .help(format!(
                        "leave `{variable}` out: the recipe sets what `target.gpu` needs"
                    )),
                );
            }
            if variable == "TORCH_CUDA_ARCH_LIST"
                || build.arch.iter().any(|a| a.variable == *variable)
            {
                beyond_toolkit(case, env, library, variable, &sms, findings);
            }
        }
    }
}

/// Reports SMs that nvcc does not support, as in a list that was written for another CUDA.
fn beyond_toolkit(
    case: &Case<'_>,
    env: &Environment<'_>,
    library: &Library,
    variable: &str,
    sms: &[Sm],
    findings: &mut Vec<Diagnostic>,
) {
    let Some(toolkit) = toolkit(case, env) else {
        return;
    };
    for sm in sms.iter().filter(|s| !makes(toolkit, **s)) {
        findings.push(
            Diagnostic::error(
                codes::ARCH_IGNORED,
                format!(
                    "`{variable}` names {}, which CUDA {} refuses",
                    name(*sm),
                    toolkit.version
                ),
            )
            .at(library.name.span)
            .help(format!(
                "{}; without `{variable}` the recipe takes `target.gpu`",
                toolkits_for(case, *sm)
            )),
        );
    }
}

/// Returns the parts of `9.0;11.0+PTX`, `90;110` or `90-real` that are SMs.
fn sms_of(value: &str) -> Vec<Sm> {
    value
        .split([';', ',', ' '])
        .map(|part| {
            part.trim_end_matches("+PTX")
                .trim_end_matches("-real")
                .trim_end_matches("-virtual")
        })
        .filter_map(|part| part.parse().ok())
        .collect()
}

/// Warns of more SMs than a build can compile at once.
pub fn many_sms(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let sms = &case.target.sms;
    for (built, build, _) in builds(case, env) {
        let Some(limit) = &build.sm_limit else {
            continue;
        };
        if sms.len() <= limit.most || !env.holds(case, built, |f| limit.when.hold(f)) {
            continue;
        }
        findings.push(
            Diagnostic::error(
                codes::MANY_SMS,
                format!(
                    "{} cannot be compiled for {} SMs at once: {}",
                    built.shown(),
                    sms.len(),
                    limit.why
                ),
            )
            .at(case.gpu_span())
            .help(format!(
                "name at most {} GPUs, or make one variant per SM with `matrix: {{ sm: […] }}`",
                limit.most
            )),
        );
    }
}

pub fn memory(case: &Case<'_>, env: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(has) = case.machine.memory_gb else {
        return;
    };
    for (built, build, _) in builds(case, env) {
        let needs = build.jobs.memory_gb;
        if needs > has {
            findings.push(
                Diagnostic::error(
                    codes::COMPILE_MEMORY,
                    format!(
                        "one job of {} needs {needs} GB, the machine has {has:.0} GB",
                        built.shown()
                    ),
                )
                .at(built.span)
                .help("build on a machine with more memory, or take a release with a wheel"),
            );
        }
    }
}
