//! `stackforge matrix`.

use super::Outcome;
use super::args::{Common, MatrixArgs};
use super::output::{Failure, json, print};
use super::session::Session;
use serde_json::{Map, Value};
use stackforge_stack::matrix::{Expansion, Rejected, Variant, build_order};
use stackforge_stack::rules::Machine;
use stackforge_types::printable;

pub fn run(common: &Common, args: &MatrixArgs) -> Outcome {
    let session = Session::open(common, &args.stack)?;
    let project = &session.project;
    let lock = project.lock()?;
    let (expansion, stale) = project.judged(lock.as_ref(), &Machine::default())?;
    if let Some(format) = args.emit {
        project.admitted(stale)?;
        super::emit::run(common, args, format.into(), project, &expansion.variants)
    } else if common.json {
        json(&document(&expansion));
        Ok(())
    } else {
        print(&table(&expansion));
        Ok(())
    }
}

/// Returns the variants and refusals, and the order in which builds that share a cache compile least.
fn document(expansion: &Expansion) -> Map<String, Value> {
    let built = build_order(&expansion.variants);
    let names = built
        .order
        .iter()
        .map(|&n| expansion.variants[n].name.as_str());
    let mut document = object(expansion);
    document.insert("order".to_owned(), names.collect());
    document.insert("filling".to_owned(), built.filling.into());
    document
}

/// Returns the reasons of a matrix without variants, as text and for the JSON document.
pub(super) fn refused(expansion: &Expansion) -> (String, Map<String, Value>) {
    (reasons(&expansion.rejected), object(expansion))
}

fn object(expansion: &Expansion) -> Map<String, Value> {
    match serde_json::to_value(expansion) {
        Ok(Value::Object(document)) => document,
        _ => Map::new(),
    }
}

fn table(expansion: &Expansion) -> String {
    let variants = &expansion.variants;
    let mut rows = vec![["variant", "platform", "CUDA", "SM", "ISA", ""].map(str::to_owned)];
    rows.extend(variants.iter().map(|v| row(v, variants)));
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
        out.push_str(&printable::line(line.trim_end()));
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
    let filling = build_order(variants).filling;
    if filling < variants.len() {
        out.push_str(&format!(
            "with a shared cache, {filling} of them compile all there is: the others take its objects\n"
        ));
    }
    if !expansion.rejected.is_empty() {
        out.push('\n');
        out.push_str(&reasons(&expansion.rejected));
    }
    out
}

fn row(variant: &Variant, all: &[Variant]) -> [String; 6] {
    let mut special = Vec::new();
    for compiled in &variant.compiled {
        for name in &compiled.exceptions {
            let has = |v: &Variant| {
                let mut same = v.compiled.iter().filter(|c| c.library == compiled.library);
                same.any(|c| c.exceptions.contains(name))
            };
            // Leave out what all variants have: it does not distinguish them.
            if !all.iter().all(has) {
                let value = compiled.env.get(name).map_or("", String::as_str);
                special.push(format!("{}: {name}={value}", compiled.library));
            }
        }
    }
    let isa = variant.isa.as_ref();
    [
        variant.name.clone(),
        variant.platform.to_string(),
        variant.cuda.clone().unwrap_or_else(|| "-".to_owned()),
        variant.sm.join(", "),
        isa.map_or_else(|| "-".to_owned(), ToString::to_string),
        special.join(", "),
    ]
}

/// Groups refused combinations by their common reason.
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
        let why = printable::line(&reason.message);
        out.push_str(&format!("  {}  {why}\n", reason.code));
        if let Some(help) = &reason.help {
            let help = printable::line(help);
            out.push_str(&format!("          help: {help}\n"));
        }
        for name in names {
            let name = printable::line(name);
            out.push_str(&format!("          {name}\n"));
        }
    }
    out
}

pub(super) fn counted(n: usize, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

/// Runs `stackforge check` for a stack with a matrix. It succeeds if any variant is left.
pub(super) fn check(
    common: &Common,
    session: &Session,
    machine: &Machine,
    fixed: Option<&[String]>,
) -> Outcome {
    let project = &session.project;
    let lock = project.lock()?;
    let (expansion, stale) = project.judged(lock.as_ref(), machine)?;
    let (left, refused) = (expansion.variants.len(), expansion.rejected.len());
    let locked = lock.is_some() && stale.is_empty();
    if !stale.is_empty() {
        return Err(Failure::new(1, project.report(stale)).with("locked", locked.into()));
    }
    if common.json {
        let mut document = serde_json::json!({
            "diagnostics": [], "locked": locked,
            "variants": left, "rejected": refused,
        });
        if let Some(fixed) = fixed {
            document["fixed"] = fixed.into();
        }
        json(&document);
        return Ok(());
    }
    let stack = &project.file.pattern;
    let mut out = format!(
        "{}: ok for {}, {}",
        stack.stack.value,
        counted(left, "variant"),
        if locked { "locked" } else { "not locked yet" },
    );
    if refused > 0 {
        out.push_str(&format!("; {refused} refused"));
    }
    if refused > 0 && machine.sm.is_none() && machine.driver.is_none() {
        out.push_str(&format!(
            ": `stackforge matrix {}` says why",
            printable::word(stack.file())
        ));
    }
    out.push('\n');
    print(&out);
    Ok(())
}
