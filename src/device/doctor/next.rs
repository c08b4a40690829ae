//! The one command to type after a report.

use super::Report;
use crate::starter;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::Severity;
use stackforge_types::printable;
use std::path::Path;

/// Returns the command and what it is for: an explanation of the first error, else a first stack, for this machine
/// if `init` can write one, for a named GPU if not.
pub fn next(report: &Report, catalog: &Catalog, root: Option<&Path>) -> (String, &'static str) {
    let mut errors = report.findings.iter();
    if let Some(error) = errors.find(|f| f.severity == Severity::Error) {
        let command = format!("stackforge explain {}", error.code);
        return (command, "why the first error matters, and what to do");
    }
    let device = &report.machine.device;
    if starter::for_device(catalog, device).is_ok() {
        let root = root.map(|r| format!(" --root {}", printable::word(&r.to_string_lossy())));
        let command = format!("stackforge init{}", root.unwrap_or_default());
        return (command, "a first stack for this machine");
    }
    (
        "stackforge init --gpu h100".to_owned(),
        "a first stack for a GPU that you name",
    )
}
