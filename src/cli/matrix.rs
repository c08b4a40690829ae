//! `stackforge matrix`.

use super::Outcome;
use super::args::{Common, MatrixArgs};
use super::output::{Failure, json, print};
use super::session::{Session, stale_findings};
use crate::diag::{Diagnostic, codes, nearest};
use crate::lock::Lock;
use crate::matrix::{Expansion, Rejected, Variant};
use crate::rules::Machine;
use crate::spec::Stack;
use stackforge_types::printable;

pub fn run(common: &Common, args: &MatrixArgs) -> Outcome {
    let session = Session::open(common, &args.stack)?;
    let lock = session.lock()?;
    let (expansion, stale) = judged(&session, lock.as_ref(), &Machine::default())?;
    if let Some(format) = args.emit {
        if !stale.is_empty() {
            return Err(Failure::new(1, session.report(stale)));
        }
        super::emit::run(common, args, format.into(), &session, &expansion.variants)
    } else if common.json {
        json(&expansion);
        Ok(())
    } else {
        print(&table(&expansion));
        Ok(())
    }
}

/// Returns the variants. Fails if none is left.
pub(super) fn expand(session: &Session) -> Result<Expansion, Failure> {
    let expansion =
        crate::matrix::expand(&session.stack, &session.catalog).map_err(|r| Failure::new(1, r))?;
    some_left(session, expansion)
}

/// Returns the variants that the locked files and the machine also allow, and findings that say why the lock
/// is not used if it was made for another stack.
pub(super) fn judged(
    session: &Session,
    lock: Option<&Lock>,
    machine: &Machine,
) -> Result<(Expansion, Vec<Diagnostic>), Failure> {
    let expansion = expand(session)?;
    let mut stale: Vec<Diagnostic> = Vec::new();
    for section in expansion.sections() {
        let changes = lock.map(|l| session.changes(&section, l));
        let findings = stale_findings(&section, &changes.unwrap_or_default());
        let new = findings.into_iter().filter(|f| !stale.contains(f));
        stale.extend(new.collect::<Vec<_>>());
    }
    let lock = lock.filter(|_| stale.is_empty());
    let judged = expansion.judge(&session.catalog, lock, machine);
    Ok((some_left(session, judged)?, stale))
}

fn some_left(session: &Session, expansion: Expansion) -> Result<Expansion, Failure> {
    if expansion.variants.is_empty() {
        return Err(nothing_left(&session.stack, &expansion));
    }
    Ok(expansion)
}

/// Returns the variant with that name. Without a name, fails with the list of names.
pub(super) fn named<'a>(
    stack: &Stack,
    expansion: &'a Expansion,
    name: Option<&str>,
) -> Result<&'a Variant, Failure> {
    let variants = &expansion.variants;
    let Some(name) = name else {
        let what = format!(
            "{} has {}",
            stack.file(),
            counted(variants.len(), "variant")
        );
        return Err(unknown(stack, variants, what, None));
    };
    if let Some(variant) = variants.iter().find(|v| v.name == name) {
        return Ok(variant);
    }
    if let Some(rejected) = expansion.rejected.iter().find(|r| r.name == name) {
        let what = format!("`{name}` is refused: {}", rejected.message);
        let mut d = Diagnostic::error(rejected.code, what);
        if let Some(help) = &rejected.help {
            d = d.help(help.clone());
        }
        return Err(Failure::of(d));
    }
    let near = nearest(name, variants.iter().map(|v| v.name.as_str()));
    let what = format!("{} has no variant `{name}`", stack.file());
    Err(unknown(stack, variants, what, near))
}

fn unknown(stack: &Stack, variants: &[Variant], what: String, near: Option<&str>) -> Failure {
    const SHOWN: usize = 8;
    let file = stack.file();
    let names: Vec<&str> = variants.iter().map(|v| v.name.as_str()).collect();
    let help = match near {
        _ if stack.matrix.is_empty() => "leave `--variant` out: the stack has no matrix".to_owned(),
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let mut help = "use `--variant` with one of\n".to_owned();
            help.push_str(&names[..names.len().min(SHOWN)].join("\n"));
            if names.len() > SHOWN {
                help.push_str(&format!("\n…\n`stackforge matrix {file}` lists all"));
            }
            help
        }
    };
    Failure::of(Diagnostic::error(codes::UNKNOWN_VARIANT, what).help(help))
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
    let mut failure = Failure::of(d);
    failure.before = Some(reasons(&expansion.rejected));
    if let Ok(serde_json::Value::Object(document)) = serde_json::to_value(expansion) {
        failure.json.extend(document);
    }
    failure
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
pub(super) fn check(common: &Common, session: &Session, machine: &Machine) -> Outcome {
    let lock = session.lock()?;
    let (expansion, stale) = judged(session, lock.as_ref(), machine)?;
    let (left, refused) = (expansion.variants.len(), expansion.rejected.len());
    let locked = lock.is_some() && stale.is_empty();
    if !stale.is_empty() {
        return Err(Failure::new(1, session.report(stale)).with("locked", locked.into()));
    }
    if common.json {
        json(&serde_json::json!({
            "ok": true, "diagnostics": [], "locked": locked,
            "variants": left, "rejected": refused,
        }));
        return Ok(());
    }
    let stack = &session.stack;
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
        out.push_str(&format!(": `stackforge matrix {}` says why", stack.file()));
    }
    out.push('\n');
    print(&out);
    Ok(())
}
