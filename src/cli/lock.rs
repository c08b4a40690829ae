//! `stackforge lock`.

use super::Outcome;
use super::args::{Common, LockArgs};
use super::output::{Failure, json, print, print_status, warn};
use super::session::{Session, runtime};
use serde_json::{Map, Value};
use stackforge_distribute::pull::{self, PullError};
use stackforge_engine::docker::Docker;
use stackforge_image::store::save;
use stackforge_plan::project::{Project, ProjectError};
use stackforge_resolve::{Bases, LockOptions, Locked, OsPackagesError, ResolveError, Upgrade};
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::lock::{Lock, PinnedImage, PlatformLock};
use stackforge_stack::rules::Machine;
use stackforge_stack::spec::Stack;
use stackforge_stack::target::Target;
use stackforge_transfer::registry::Reference;
use stackforge_types::printable;
use std::collections::BTreeMap;
use std::path::PathBuf;

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
        ..options(common, &session)
    };
    let new = write(common, &session, old, &options)?;
    if !common.json {
        print(&new.text(&session));
    }
    // The new lock stays even if the checks fail: it shows what the resolver found.
    let mut document = new.document(&session);
    let warnings = match checked(project, &new.lock) {
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

/// Judges a stack by all rules with its new lock, and returns the warnings.
fn checked(project: &Project, lock: &Lock) -> Result<Vec<Diagnostic>, ProjectError> {
    let Some(stack) = project.file.single() else {
        project.judged(Some(lock), &Machine::default())?;
        return Ok(Vec::new());
    };
    let checked = project.check(stack, lock.section(stack), Machine::default())?;
    project.admitted(checked.findings)
}

/// A lock that was just made.
struct NewLock {
    old: Option<Lock>,
    lock: Lock,
    /// Whether its text differs from the file's before.
    changed: bool,
    /// What somebody who reads the stack would not expect, a sentence each.
    notes: Vec<String>,
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
            let document = Value::Object(new.document(session));
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
    let new = write(common, session, old, &options(common, session))?;
    for line in new.text(session).lines() {
        print_status(common, line);
    }
    Ok(new)
}

/// Returns how a stack is locked where no argument says otherwise.
fn options(common: &Common, session: &Session) -> LockOptions {
    LockOptions {
        upgrade: Upgrade::None,
        upgrade_os: false,
        pull: false,
        cache: session.store.root().to_owned(),
        offline: common.offline,
        debian_mirrors: session.config.debian.clone(),
    }
}

/// Locks a project and writes the file if it changes.
fn write(
    common: &Common,
    session: &Session,
    old: Option<Lock>,
    options: &LockOptions,
) -> Result<NewLock, Failure> {
    let project = &session.project;
    let sections = project.sections()?;
    session.store.prepare()?;
    let mut locks = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    for section in &sections {
        if sections.len() > 1 {
            print_status(common, &format!("{}:", place(section.stack())));
        }
        let stack = section.stack();
        let locked = lock_section(common, session, stack, old.as_ref(), options)?;
        locks.push(locked.lock);
        for note in locked.notes {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    let lock = Lock::join(locks).ok_or_else(|| {
        let what = format!("{} has nothing to lock", project.name());
        Failure::of(Diagnostic::error(codes::LOCK_MISSING, what))
    })?;
    let text = lock
        .to_toml()
        .map_err(|e| Failure::of(Diagnostic::error(codes::LOCK_INVALID, e.to_string())))?;
    let path = &project.lock_path;
    let changed = std::fs::read_to_string(path).ok().as_ref() != Some(&text);
    if changed {
        save(path, text.as_bytes()).map_err(|e| {
            Failure::of(Diagnostic::error(
                codes::STORE_IO,
                format!("write {}: {e}", path.display()),
            ))
        })?;
    }
    Ok(NewLock {
        old,
        lock,
        changed,
        notes,
    })
}

fn place(section: &Stack) -> String {
    format!(
        "{} on {}, Python {}",
        section.platform.value, section.base.value, section.python.value
    )
}

fn lock_section(
    common: &Common,
    session: &Session,
    stack: &Stack,
    old: Option<&Lock>,
    options: &LockOptions,
) -> Result<Locked, Failure> {
    let catalog = &session.project.catalog;
    let target = Target::of(stack, catalog).map_err(ProjectError::Refused)?;
    let lock = runtime()?.block_on(async {
        let digest_of = async |reference: &str| {
            let docker = Docker::connect(None).await.ok()?;
            let reference = session.config.image(reference);
            docker.registry_digest(&reference).await.ok()
        };
        let root_of = async |base: &PinnedImage| {
            let fetched = base_root(session, stack, base).await;
            fetched.map_err(|e| OsPackagesError::Base(Box::new(e)).into())
        };
        let mut progress = |line: &str| print_status(common, line);
        stackforge_resolve::lock(
            stack,
            catalog,
            &target,
            old,
            options,
            Bases { digest_of, root_of },
            &mut progress,
        )
        .await
    });
    lock.map_err(|e: ResolveError| Failure::new(e.exit(stack), e.report(stack)))
}

/// Fetches a registry's base and returns its root file system in the store.
async fn base_root(
    session: &Session,
    stack: &Stack,
    base: &PinnedImage,
) -> Result<PathBuf, PullError> {
    let name = session.config.image(&base.reference);
    let name = match &base.digest {
        Some(digest) => format!("{name}@{digest}"),
        None => name,
    };
    let reference: Reference = name.parse()?;
    let (store, config) = (&session.store, &session.config);
    let image = pull::pull(&reference, stack.platform.value, true, store, config, None).await?;
    tokio::task::block_in_place(|| pull::tree(&image, store))
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

impl NewLock {
    /// Returns what changed. Sections of one lock mostly change alike: each change stands once.
    fn differences(&self) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for section in &self.lock.platforms {
            let old = self.old.as_ref().and_then(|old| before(old, section));
            for line in of_section(old, section) {
                if !out.contains(&line) {
                    out.push(line);
                }
            }
        }
        out
    }

    /// Returns packages that wheels need and the stack does not name, with the reason.
    fn os_libraries(&self) -> BTreeMap<&str, String> {
        let packages = self.lock.platforms.iter().flat_map(|p| &p.packages);
        packages
            .filter_map(|p| Some((p.name.as_str(), p.why()?)))
            .collect()
    }

    /// Returns the JSON document.
    fn document(&self, session: &Session) -> Map<String, Value> {
        let path = session.project.lock_path.display().to_string();
        let parts = [
            ("lock", path.into()),
            ("changed", self.changed.into()),
            ("differences", self.differences().into()),
            ("os_libraries", serde_json::json!(self.os_libraries())),
            ("notes", self.notes.clone().into()),
        ];
        parts
            .map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect()
    }

    /// Returns the text for people.
    fn text(&self, session: &Session) -> String {
        let mut lines: Vec<String> = Vec::new();
        for p in &self.lock.platforms {
            let bytes: u64 = p.wheels.iter().map(|w| w.size).sum();
            let size = match bytes {
                0 => String::new(),
                n => format!(" ({})", super::progress::mib(n)),
            };
            let several = self.lock.platforms.len() > 1;
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
        let added = self.os_libraries().into_iter();
        lines.extend(added.map(|(name, why)| format!("  {name}: {why}")));
        for note in &self.notes {
            let indents = std::iter::once("  ").chain(std::iter::repeat("    "));
            lines.extend(
                note.lines()
                    .zip(indents)
                    .map(|(line, indent)| format!("{indent}{line}")),
            );
        }
        if self.old.is_some() {
            lines.extend(self.differences().iter().map(|line| format!("  {line}")));
        }
        let state = if self.changed { "written" } else { "unchanged" };
        lines.push(format!("{}: {state}", session.project.lock_path.display()));
        let printable = lines.iter().map(|line| printable::line(line) + "\n");
        printable.collect()
    }
}

/// Returns the section of the old lock that a new one replaces.
fn before<'a>(old: &'a Lock, new: &PlatformLock) -> Option<&'a PlatformLock> {
    let of_platform = || old.platforms.iter().filter(|p| p.platform == new.platform);
    let same = |p: &&PlatformLock| (&p.base.name, p.python) == (&new.base.name, new.python);
    of_platform().find(same).or_else(|| of_platform().next())
}

/// Returns a line such as `torch 2.12.1 → 2.13.0` for each difference.
fn of_section(old: Option<&PlatformLock>, new: &PlatformLock) -> Vec<String> {
    let Some(old) = old else { return Vec::new() };
    let versions = |p: &PlatformLock| -> BTreeMap<String, String> {
        let wheels = p.wheels.iter().map(|w| (w.name.clone(), w.version.clone()));
        let builds = p.builds.iter().map(|b| (b.name.clone(), b.version.clone()));
        wheels.chain(builds).collect()
    };
    let (before, now) = (versions(old), versions(new));
    let names: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    names
        .into_iter()
        .filter_map(|n| match (before.get(n), now.get(n)) {
            (Some(a), Some(b)) if a != b => Some(format!("{n} {a} → {b}")),
            (None, Some(b)) => Some(format!("{n} {b} added")),
            (Some(a), None) => Some(format!("{n} {a} removed")),
            _ => None,
        })
        .collect()
}
