//! `stackforge matrix`.

use super::Outcome;
use super::args::{Common, MatrixArgs};
use super::output::{Failure, json, print};
use super::session::Session;
use crate::diag::{Diagnostic, codes};
use crate::matrix::{Expansion, Rejected, Variant};
use crate::spec::Stack;

pub fn run(common: &Common, args: &MatrixArgs) -> Outcome {
    let session = Session::open(common, &args.stack)?;
    let expansion = expand(&session)?;
    if let Some(format) = args.emit {
        super::emit::run(common, args, format.into(), &session, &expansion.variants)
    } else if common.json {
        json(&expansion);
        Ok(())
    } else {
        print(&table(&expansion));
        Ok(())
    }
}

/// The variants; a failure when none is left.
pub(super) fn expand(session: &Session) -> Result<Expansion, Failure> {
    let expansion =
        crate::matrix::expand(&session.stack, &session.catalog).map_err(|r| Failure::new(1, r))?;
    if expansion.variants.is_empty() {
        return Err(nothing_left(&session.stack, &expansion));
    }
    Ok(expansion)
}

fn nothing_left(stack: &Stack, expansion: &Expansion) -> Failure {
    let all = expansion.rejected.len();
    let d = Diagnostic::error(
        codes::NO_VARIANT,
        format!(
            "all {all} combinations of `matrix` in {} are refused",
            stack.file()
        ),
    )
    .help("change the base, a library or an axis as the reasons above say");
    let mut failure = Failure::plain(1, d);
    failure.before = Some(reasons(&expansion.rejected));
    if let Ok(serde_json::Value::Object(document)) = serde_json::to_value(expansion) {
        failure.json.extend(document);
    }
    failure
}

fn table(expansion: &Expansion) -> String {
    let variants = &expansion.variants;
    let mut rows = vec![["variant", "platform", "CUDA", "SM", "ISA", ""].map(str::to_owned)];
    rows.extend(variants.iter().map(row));
    let width = |column: usize| {
        let cells = rows.iter().map(|r| r[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..5).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        line.push_str(&row[5]);
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push('\n');
    out.push_str(&counted(variants.len(), "variant"));
    if let Some(jobs) = variants.iter().find_map(|v| v.jobs.as_ref()) {
        out.push_str(&format!(
            "; {} takes {} GB for each parallel job",
            jobs.library, jobs.memory_gb
        ));
        if let Some(max) = jobs.max {
            out.push_str(&format!(", at most {max} at once"));
        }
    }
    out.push('\n');
    if !expansion.rejected.is_empty() {
        out.push('\n');
        out.push_str(&reasons(&expansion.rejected));
    }
    out
}

fn row(variant: &Variant) -> [String; 6] {
    let exceptions: Vec<String> = variant
        .compiled
        .iter()
        .flat_map(|c| c.exceptions.iter().map(|e| format!("{}: {e}", c.library)))
        .collect();
    [
        variant.name.clone(),
        variant.platform.to_string(),
        variant.cuda.clone().unwrap_or_else(|| "-".to_owned()),
        variant.sm.join(", "),
        variant
            .isa
            .as_ref()
            .map_or_else(|| "-".to_owned(), ToString::to_string),
        exceptions.join(", "),
    ]
}

/// Refused combinations under their common reason.
fn reasons(rejected: &[Rejected]) -> String {
    let mut groups: Vec<(&Rejected, Vec<&str>)> = Vec::new();
    for r in rejected {
        let same = |(first, _): &&mut (&Rejected, Vec<&str>)| {
            (first.code, &first.message, &first.help) == (r.code, &r.message, &r.help)
        };
        match groups.iter_mut().find(same) {
            Some((_, names)) => names.push(&r.name),
            None => groups.push((r, vec![&r.name])),
        }
    }
    let mut out = format!("{} refused\n", counted(rejected.len(), "combination"));
    for (reason, names) in groups {
        out.push_str(&format!("  {}  {}\n", reason.code, reason.message));
        if let Some(help) = &reason.help {
            out.push_str(&format!("          help: {help}\n"));
        }
        for name in names {
            out.push_str(&format!("          {name}\n"));
        }
    }
    out
}

fn counted(n: usize, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

/// `stackforge check` for a stack with a matrix: fine while anything is left of it.
pub(super) fn check(common: &Common, session: &Session) -> Outcome {
    let expansion = expand(session)?;
    let (left, refused) = (expansion.variants.len(), expansion.rejected.len());
    if common.json {
        json(&serde_json::json!({
            "ok": true, "diagnostics": [], "variants": left, "rejected": refused,
        }));
        return Ok(());
    }
    let stack = &session.stack;
    let mut out = format!("{}: ok for {}", stack.stack.value, counted(left, "variant"));
    if refused > 0 {
        out.push_str(&format!(
            ", {refused} refused; `stackforge matrix {}` lists them with their reasons",
            stack.file()
        ));
    }
    out.push('\n');
    print(&out);
    Ok(())
}
