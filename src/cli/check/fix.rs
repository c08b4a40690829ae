//! `stackforge check --fix`: writes what findings advise into the stack file.

use super::super::args::{CheckArgs, Common};
use super::super::output::Failure;
use super::machine;
use stackforge_image::store::save;
use stackforge_plan::project::{Project, ProjectError, text_of};
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::fix::{Fix, apply};
use stackforge_stack::matrix::Section;
use stackforge_stack::spec::Stack;

/// A fix may uncover the next finding: the parser stops at the first.
const ROUNDS: usize = 32;

/// Changes the stack file until no finding has a fix that it takes. Returns the changes, in order.
///
/// # Errors
/// If the file cannot be read or written. Its findings are no errors here.
pub(super) fn fix(common: &Common, args: &CheckArgs) -> Result<Vec<Fix>, Failure> {
    let path = &args.stack;
    let mut text = text_of(path)?;
    let mut done: Vec<Fix> = Vec::new();
    for _ in 0..ROUNDS {
        let mut fixes = proposed(common, args, &text)?;
        fixes.retain(|fix| !done.contains(fix));
        // From the end of the file: places before a change stay where they are. What is added comes last.
        fixes.sort_by_key(|fix| std::cmp::Reverse(fix.offset()));
        fixes.dedup();
        let mut changed = false;
        for fix in fixes {
            if let Ok(fixed) = apply(&text, &fix) {
                text = fixed;
                changed = true;
                done.push(fix);
            }
        }
        if !changed {
            break;
        }
    }
    if !done.is_empty() {
        save(path, text.as_bytes()).map_err(|e| {
            let message = format!("write {}: {e}", path.display());
            Failure::of(Diagnostic::error(codes::STORE_IO, message))
        })?;
    }
    Ok(done)
}

/// Returns the fixes of all findings about a text.
fn proposed(common: &Common, args: &CheckArgs, text: &str) -> Result<Vec<Fix>, Failure> {
    let project = Project::of(&args.stack, text, common.catalog.as_deref());
    let project = match project {
        Err(ProjectError::Invalid(report)) => return Ok(of(report.diagnostics).collect()),
        project => project?,
    };
    let stacks: Vec<Stack> = match project.file.single() {
        Some(stack) => vec![stack.clone()],
        None => match project.variants() {
            Ok(expansion) => {
                let sections = expansion.sections();
                sections.iter().map(|s| s.stack().clone()).collect()
            }
            Err(ProjectError::Refused(report)) => return Ok(of(report.diagnostics).collect()),
            Err(_) => Vec::new(),
        },
    };
    let lock = project.lock().unwrap_or(None);
    let machine = machine(&project.catalog, args)?;
    let mut fixes = Vec::new();
    for stack in &stacks {
        let section = Section::of(stack);
        let lock = lock.as_ref();
        let fresh = lock.filter(|lock| project.stale(&section, lock).is_empty());
        let locked = fresh.and_then(|lock| lock.section(stack));
        match project.check(stack, locked, machine.clone()) {
            Ok(checked) => fixes.extend(of(checked.findings)),
            Err(ProjectError::Refused(report)) => fixes.extend(of(report.diagnostics)),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(fixes)
}

fn of(findings: Vec<Diagnostic>) -> impl Iterator<Item = Fix> {
    findings.into_iter().filter_map(|d| Some(*d.fix?))
}
