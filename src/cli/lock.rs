//! `stackforge lock`.

use super::Outcome;
use super::args::{Common, LockArgs};
use super::output::{Failure, json, print, print_status, warn};
use super::session::{Session, runtime};
use serde_json::{Map, Value};
use stackforge_build::locking::{Locking, NewLock};
use stackforge_plan::project::{Project, ProjectError};
use stackforge_resolve::{LockOptions, Upgrade};
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::lock::Lock;
use stackforge_stack::spec::Stack;
use stackforge_types::printable;

pub fn run(common: &Common, args: &LockArgs) -> Outcome {
    let session = Session::open(common, &args.stack)?;
    if args.pull && common.offline {
        let message = "`--pull` fetches the base, and `--offline` forbids it";
        return Err(Failure::of(Diagnostic::error(codes::OFFLINE, message)));
    }
    let project = &session.project;
    // This command also replaces a lock that does not parse.
    let old = project.lock().unwrap_or(None);
    let options = LockOptions {
        upgrade: upgrade(&args.upgrade, &project.file.pattern)?,
        upgrade_os: args.upgrade_os,
        pull: args.pull,
        ..parts(&session).options(common.offline)
    };
    let new = make(common, &session, old, &options)?;
    if !common.json {
        print(&text(&new, &session));
    }
    // The new lock stays even if the checks fail: it shows what the resolver found.
    let mut document = document(&new, &session);
    let warnings = match new.judged(project) {
        Ok(warnings) => warnings,
        Err(e) => return Err(Failure::from(e).with_all(document)),
    };
    if common.json {
        document.insert("ok".to_owned(), true.into());
        json(&document);
    }
    warn(common, &project.report(warnings));
    Ok(())
}

/// Asks for what a build needs of the lock. Unless the lock has to stay as it is (`--locked`), makes the one that is
/// lacking and asks again; returns its document for `--json` too.
pub(super) fn locking<T>(
    common: &Common,
    session: &Session,
    locked: bool,
    ask: impl Fn(&Project) -> Result<T, ProjectError>,
) -> Result<(T, Option<Value>), Failure> {
    match ask(&session.project) {
        Err(lacking) if lacking.wants_lock() && !locked => {
            let new = for_build(common, session, lacking)?;
            let document = Value::Object(document(&new, session));
            Ok((ask(&session.project)?, Some(document)))
        }
        asked => Ok((asked?, None)),
    }
}

/// Locks a stack for a build, which `lacking` stopped. What is locked stays where the stack still allows it.
fn for_build(
    common: &Common,
    session: &Session,
    lacking: ProjectError,
) -> Result<NewLock, Failure> {
    let project = &session.project;
    match lacking {
        ProjectError::Stale(report) => {
            for finding in report.diagnostics {
                print_status(common, &finding.message);
            }
        }
        other => print_status(common, &other.to_string()),
    }
    // Unlike one that is stale, a lock that cannot be read may hold what its user wants back.
    let old = project.lock()?;
    let options = parts(session).options(common.offline);
    let new = make(common, session, old, &options)?;
    for line in text(&new, session).lines() {
        print_status(common, line);
    }
    Ok(new)
}

fn parts(session: &Session) -> Locking<'_> {
    Locking {
        project: &session.project,
        store: &session.store,
        config: &session.config,
    }
}

/// Makes a lock and says what happens meanwhile.
fn make(
    common: &Common,
    session: &Session,
    old: Option<Lock>,
    options: &LockOptions,
) -> Result<NewLock, Failure> {
    let mut on_line = |line: &str| print_status(common, line);
    let parts = parts(session);
    Ok(runtime()?.block_on(parts.lock(old, options, &mut on_line))?)
}

fn upgrade(asked: &[String], stack: &Stack) -> Result<Upgrade, Failure> {
    if asked.iter().any(|a| a == "*") {
        return Ok(Upgrade::All);
    }
    for name in asked {
        if stack.library(name).is_none() {
            let names = stack.libraries.iter().map(|l| l.name.value.as_str());
            let mut d = Diagnostic::error(
                codes::BAD_VALUE,
                format!("`--upgrade {name}`: the stack has no such library"),
            );
            if let Some(near) = stackforge_stack::diag::nearest(name, names) {
                d = d.help(format!("did you mean `{near}`?"));
            }
            return Err(Failure::of(d));
        }
    }
    Ok(match asked {
        [] => Upgrade::None,
        names => Upgrade::Libraries(names.to_vec()),
    })
}

/// Returns the JSON document of a new lock.
fn document(new: &NewLock, session: &Session) -> Map<String, Value> {
    let path = session.project.lock_path.display().to_string();
    let parts = [
        ("lock", path.into()),
        ("changed", new.changed.into()),
        ("differences", new.differences().into()),
        ("os_libraries", serde_json::json!(new.os_libraries())),
        ("notes", new.notes.clone().into()),
    ];
    parts
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

/// Returns a new lock for people.
fn text(new: &NewLock, session: &Session) -> String {
    let mut lines: Vec<String> = Vec::new();
    for p in &new.lock.platforms {
        let bytes: u64 = p.wheels.iter().map(|w| w.size).sum();
        let size = match bytes {
            0 => String::new(),
            n => format!(" ({})", super::progress::mib(n)),
        };
        let several = new.lock.platforms.len() > 1;
        let base = several.then(|| format!(" on {}, Python {}", p.base.name, p.python));
        lines.push(format!(
            "{}{}: {} wheels{size}, {} compiled, CUDA {}",
            p.platform,
            base.unwrap_or_default(),
            p.wheels.len(),
            p.builds.len(),
            p.cuda.as_deref().unwrap_or("none"),
        ));
    }
    let added = new.os_libraries().into_iter();
    lines.extend(added.map(|(name, why)| format!("  {name}: {why}")));
    for note in &new.notes {
        let indents = std::iter::once("  ").chain(std::iter::repeat("    "));
        lines.extend(
            note.lines()
                .zip(indents)
                .map(|(line, indent)| format!("{indent}{line}")),
        );
    }
    if new.old.is_some() {
        lines.extend(new.differences().iter().map(|line| format!("  {line}")));
    }
    let state = if new.changed { "written" } else { "unchanged" };
    lines.push(format!("{}: {state}", session.project.lock_path.display()));
    let printable = lines.iter().map(|line| printable::line(line) + "\n");
    printable.collect()
}
