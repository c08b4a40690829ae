//! Compares a compiled wheel's metadata with the plan.
//!
//! In: a plan and a wheel. Out: another version than the library's options make, and, if no recipe describes the
//! library, each requirement that the wheel has and the lock does not: they were read from the source's archive
//! before anything was built. Versions of requirements are not compared: a stack's `overrides` may want others.

use crate::BuildError;
use pep508_rs::{MarkerEnvironment, MarkerEnvironmentBuilder, Requirement, VerbatimUrl};
use stackforge_image::layer::metadata;
use stackforge_plan::Plan;
use stackforge_stack::catalog::Catalog;
use stackforge_types::wheel::normalized;
use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr as _;

/// Checks the wheel that was built of a library.
///
/// # Errors
/// [`BuildError::OtherVersion`], or [`BuildError::NotTheLocks`] with each requirement that the plan does not install.
pub(super) fn check(
    plan: &Plan,
    catalog: &Catalog,
    library: &str,
    wheel: &Path,
) -> Result<(), BuildError> {
    if catalog.recipe(library).is_some() {
        return options_show(plan, library, wheel);
    }
    let differences = unmet(plan, library, wheel);
    if differences.is_empty() {
        return Ok(());
    }
    Err(BuildError::NotTheLocks { differences })
}

/// Checks that the wheel's version is the one that the library's options make: else a wheel without some parts would be
/// taken for a whole one.
fn options_show(plan: &Plan, library: &str, wheel: &Path) -> Result<(), BuildError> {
    let mut compiles = plan.compiles();
    let compile = compiles.find(|c| c.library == library && !c.options.is_empty());
    let (Some(compile), Some(metadata)) = (compile, metadata(wheel)) else {
        return Ok(());
    };
    let mut lines = metadata.lines().take_while(|line| !line.is_empty());
    let version = lines.find_map(|line| line.strip_prefix("Version: "));
    match version.map(str::trim) {
        Some(found) if found != compile.version => Err(BuildError::OtherVersion {
            library: library.to_owned(),
            found: found.to_owned(),
            wanted: compile.version.clone(),
        }),
        _ => Ok(()),
    }
}

fn unmet(plan: &Plan, library: &str, wheel: &Path) -> Vec<String> {
    let (Some(metadata), Some(environment)) = (metadata(wheel), environment(plan)) else {
        // What cannot be read is the audit's to report.
        return Vec::new();
    };
    let installed: BTreeSet<String> = plan.installed().map(|(name, _)| name).collect();
    let lines = metadata.lines().take_while(|line| !line.is_empty());
    let requirements = lines.filter_map(|line| line.strip_prefix("Requires-Dist: "));
    let mut out = Vec::new();
    for line in requirements {
        let Ok(requirement) = Requirement::<VerbatimUrl>::from_str(line) else {
            continue;
        };
        let name = normalized(requirement.name.as_ref());
        if requirement.evaluate_markers(&environment, &[]) && !installed.contains(&name) {
            out.push(format!(
                "the wheel that was built of {library} requires `{}`, which its source does not say: name it in `libraries`",
                line.trim()
            ));
        }
    }
    out
}

fn environment(plan: &Plan) -> Option<MarkerEnvironment> {
    let python = plan.python.to_string();
    let full = format!("{python}.0");
    let builder = MarkerEnvironmentBuilder {
        implementation_name: "cpython",
        implementation_version: &full,
        os_name: "posix",
        platform_machine: plan.platform.machine(),
        platform_python_implementation: "CPython",
        platform_release: "",
        platform_system: "Linux",
        platform_version: "",
        python_full_version: &full,
        python_version: &python,
        sys_platform: "linux",
    };
    builder.try_into().ok()
}
