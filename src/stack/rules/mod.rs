//! Finds what cannot work before anything is built.
//!
//! In: a [`Case`]: stack, target, catalog, the lock if there is one, and the machine. Out: all findings at
//! once, in the stack's order. Needs no network, no engine and no GPU. A rule uses only facts that the
//! catalog or the lock has: an unknown fact never causes a finding.

mod base;
mod case;
mod clash;
mod compile;
mod coverage;
mod driver;
mod environment;
mod fit;
mod gpu_variables;
mod local_label;
mod names;
mod options;
mod pick;
mod predict;
mod shared;
mod versions;

use crate::catalog::{Catalog, DistributionKind};
use crate::diag::{Diagnostic, Severity, codes};
use crate::spec::{From, Library, Stack};
use crate::target::Target;
pub use case::{Case, Machine};
use environment::Environment;
use fit::{Fit, wheel_fit};
use pep440_rs::Version;
use serde::Serialize;
pub use shared::Picks;

/// Decides between wheel and source for libraries that leave it open.
pub struct Choice<'a> {
    case: Case<'a>,
    env: Environment<'a>,
}

impl<'a> Choice<'a> {
    pub fn of(stack: &'a Stack, target: &Target<'a>, catalog: &'a Catalog) -> Self {
        let case = Case {
            stack,
            target: target.clone(),
            catalog,
            lock: None,
            machine: Machine::default(),
            picks: Picks::default(),
        };
        let env = Environment::of(&case);
        Self { case, env }
    }

    /// Returns why a release should be compiled rather than installed from its wheel.
    pub fn better_built(&self, distribution: &str, version: &Version) -> Option<String> {
        self.env.better_built(&self.case, distribution, version)
    }
}

/// Whether a locked library is compiled, and the reason for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub library: String,
    pub version: String,
    pub from: DistributionKind,
    pub reason: String,
}

/// A case that was judged: the packages that will be installed together, and every finding.
pub struct Checked<'a> {
    pub case: Case<'a>,
    /// In the order of the stack's lines.
    pub findings: Vec<Diagnostic>,
    env: Environment<'a>,
}

/// Judges a case by all rules.
pub fn check(case: Case<'_>) -> Checked<'_> {
    let mut findings = of_stack(&case);
    let env = Environment::of(&case);
    for rule in [
        coverage::torch_has_cuda,
        coverage::wheels_cover_the_gpu,
        coverage::compiled_code_covers_the_gpu,
        coverage::ptxas_knows_the_gpu,
        coverage::cudnn_has_code,
        versions::pins_exclude,
        versions::files_fit,
        versions::one_cuda_major,
        versions::cxx11_abi,
        versions::pins_hold,
        versions::known_clashes,
        versions::known_faults,
        versions::extras_are_named,
        compile::cxx_standard,
        compile::compiler_is_not_too_new,
        compile::toolkit_is_torchs,
        compile::arch_variables,
        compile::many_sms,
        compile::memory,
        options::apply,
        options::are_not_needed,
        driver::driver_is_new_enough,
        driver::toolkit_skew,
        gpu_variables::containers_get_gpus,
    ] {
        rule(&case, &env, &mut findings);
    }
    Checked {
        case,
        findings: ordered(findings),
        env,
    }
}

impl Checked<'_> {
    /// Returns for each library of the stack whether it is compiled.
    pub fn decisions(&self) -> Vec<Decision> {
        let (case, env) = (&self.case, &self.env);
        let context = fit::WheelContext::of(case, env);
        let decide = |library: &Library| {
            let name = case::distribution(case, library.name.value.as_str());
            let package = env.get(&name)?;
            let reason = match package.kind {
                DistributionKind::Wheel => match wheel_fit(package, &context) {
                    Fit::Fits(why) | Fit::Unfit(why) => why,
                    Fit::Unknown => coverage::assembler(case, package)
                        .unwrap_or_else(|| "a published wheel".to_owned()),
                },
                DistributionKind::Source => {
                    match (library.from, env.unfit(case, &name, &package.version)) {
                        (From::Source, _) => "the stack asks for it".to_owned(),
                        (_, Some(why)) => why,
                        (_, None) => "no wheel on the index fits".to_owned(),
                    }
                }
            };
            Some(Decision {
                library: library.name.value.to_string(),
                version: package.version.to_string(),
                from: package.kind,
                reason,
            })
        };
        case.stack.libraries.iter().filter_map(decide).collect()
    }

    /// Returns whether the stack's torch was built with the new C++11 ABI, if the catalog knows.
    pub fn torch_abi(&self) -> Option<bool> {
        self.env.get("torch")?.wheel?.cxx11_abi
    }
}

/// Returns the findings that depend on no library's version: they are true before a lock exists, whatever
/// it will hold.
pub fn of_stack(case: &Case<'_>) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    for rule in [
        base::gpu_exists_on_platform,
        base::base_fits,
        base::toolkit_knows_the_gpu,
        base::jetpack_fits,
        base::layers_fit,
        base::library_can_come_so,
        compile::nothing_editable,
        options::are_known,
        options::label_is_theirs,
        names::name_libraries,
        names::same_modules,
    ] {
        rule(case, &mut findings);
    }
    ordered(findings)
}

/// Sorts by the stack's lines, with errors first on the same line, and removes duplicates.
fn ordered(mut findings: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let line = |d: &Diagnostic| d.span.map_or((u32::MAX, 0), |s| (s.line, s.column));
    findings.sort_by(|a, b| {
        let key = |d| (line(d), std::cmp::Reverse(d.severity), d.code);
        (key(a), &a.message).cmp(&(key(b), &b.message))
    });
    findings.dedup();
    // A refused library needs no warning about its missing code.
    let refused: Vec<_> = findings
        .iter()
        .filter(|d| d.code == codes::LIBRARY_REFUSED)
        .map(|d| d.span)
        .collect();
    let follows = |d: &Diagnostic| {
        d.code == codes::SM_NOT_COVERED
            && d.severity == Severity::Warning
            && refused.contains(&d.span)
    };
    findings.retain(|d| !follows(d));
    findings
}
