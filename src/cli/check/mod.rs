//! `stackforge check`.

mod fix;

use super::Outcome;
use super::args::{CheckArgs, Common};
use super::init::sm_of;
use super::output::{Failure, json, print, print_status, shown, warn};
use super::session::Session;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::{Diagnostic, Report, Severity};
use stackforge_stack::matrix::Section;
use stackforge_stack::rules::{Case, Machine};

pub fn run(common: &Common, args: &CheckArgs) -> Outcome {
    if !args.fix {
        return check(common, args, None);
    }
    let fixed = fix::fix(common, args)?;
    let changes: Vec<String> = fixed.iter().map(ToString::to_string).collect();
    for change in &changes {
        print_status(common, &format!("{}: {change}", shown(&args.stack)));
    }
    if changes.is_empty() {
        print_status(common, "nothing that `check --fix` can write");
    }
    check(common, args, Some(&changes)).map_err(|failure| failure.with("fixed", changes.into()))
}

/// `fixed`: what `--fix` has changed, for the document.
fn check(common: &Common, args: &CheckArgs, fixed: Option<&[String]>) -> Outcome {
    let session = Session::open(common, &args.stack)?;
    let project = &session.project;
    let machine = machine(&project.catalog, args)?;
    let Some(stack) = project.file.single() else {
        return super::matrix::check(common, &session, &machine, fixed);
    };
    let lock = project.lock()?;
    let section = Section::of(stack);
    let stale = lock.as_ref().map(|lock| project.stale(&section, lock));
    let stale = stale.unwrap_or_default();
    // A lock that was made for another stack says nothing about this one.
    let exact = lock
        .as_ref()
        .filter(|_| stale.is_empty())
        .and_then(|l| l.section(stack));
    let mut checked = project.check(stack, exact, machine)?;
    let mut findings = std::mem::take(&mut checked.findings);
    findings.extend(stale);
    let report = Report::new(stack.source.clone(), findings);
    let locked = exact.is_some();
    if report.has_errors() {
        return Err(Failure::new(1, report).with("locked", locked.into()));
    }
    if common.json {
        let mut document = serde_json::json!({
            "diagnostics": report.diagnostics, "locked": locked,
        });
        if let Some(fixed) = fixed {
            document["fixed"] = fixed.into();
        }
        json(&document);
        return Ok(());
    }
    warn(common, &report);
    print(&format!(
        "{}: ok for {} on {}, {}{}\n",
        stack.stack.value,
        devices(&checked.case),
        stack.platform.value,
        if locked { "locked" } else { "not locked yet" },
        counted(&report.diagnostics),
    ));
    Ok(())
}

fn machine(catalog: &Catalog, args: &CheckArgs) -> Result<Machine, Failure> {
    let sm = match &args.gpu {
        Some(gpu) => Some(sm_of(catalog, gpu)?),
        None => None,
    };
    Ok(Machine {
        sm,
        gpu: args.gpu.clone(),
        driver: args.driver.clone(),
        memory_gb: args.memory.or_else(super::session::memory_gb),
    })
}

fn devices(case: &Case<'_>) -> String {
    match (&case.machine.gpu, case.machine.sm) {
        (Some(gpu), Some(sm)) => format!("{gpu} (sm_{})", sm.digits()),
        _ => {
            let sms = case.target.sms.iter().map(|s| format!("sm_{}", s.digits()));
            sms.collect::<Vec<_>>().join(", ")
        }
    }
}

fn counted(findings: &[Diagnostic]) -> String {
    let warnings = findings.iter().filter(|d| d.severity == Severity::Warning);
    match warnings.count() {
        0 => String::new(),
        1 => ", 1 warning".to_owned(),
        n => format!(", {n} warnings"),
    }
}
