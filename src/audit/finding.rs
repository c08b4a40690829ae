//! A finding of an audit about one object.

use serde::Serialize;
use stackforge_stack::diag::{Code, Diagnostic, Severity};
use std::cmp::Reverse;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Path of the object in the target.
    pub object: String,
    #[serde(flatten)]
    pub diagnostic: Diagnostic,
}

impl Finding {
    /// Makes a finding. A diagnostic without a help gets the help of its code.
    pub fn new(object: &str, mut diagnostic: Diagnostic) -> Self {
        if diagnostic.help.is_none() {
            let explanation = diagnostic.code.explanation();
            diagnostic.help = explanation.map(|e| e.fix.to_owned());
        }
        Self {
            object: object.to_owned(),
            diagnostic,
        }
    }

    pub fn code(&self) -> Code {
        self.diagnostic.code
    }

    pub fn is_error(&self) -> bool {
        self.diagnostic.severity == Severity::Error
    }
}

/// Sorts by severity, the worst first, then by code and path.
pub(super) fn order(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let key = |f: &Finding| (Reverse(f.diagnostic.severity), f.code());
        key(a).cmp(&key(b)).then_with(|| a.object.cmp(&b.object))
    });
}

/// Lists names as in `a`, `b` and 3 more.
pub(super) fn list_names<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let quoted = |names: &[T]| {
        let all: Vec<String> = names.iter().map(|n| format!("`{}`", n.as_ref())).collect();
        all.join(", ")
    };
    match names.len().checked_sub(most) {
        None | Some(0) => quoted(names),
        Some(rest) => format!("{} and {rest} more", quoted(&names[..most])),
    }
}
