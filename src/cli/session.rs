//! The common start of most commands: the stack, the catalog with its overlay, the lock, the store.

use super::args::Common;
use super::build::stop_on_signal;
use super::output::{Failure, chain, warn};
use crate::catalog::Catalog;
use crate::config::Config;
use crate::diag::{Diagnostic, Report, codes};
use crate::lock::{Change, Lock, PlatformLock};
use crate::plan::Plan;
use crate::rules::{Case, Machine, Picks};
use crate::spec::{self, Stack};
use crate::target::Target;
use stackforge_image::store::Store;
use stackforge_types::Cancel;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Longest stack or lock file, in bytes.
const MOST_TEXT: u64 = 64 << 20;

pub struct Session {
    /// The stack. With a matrix, and before [`Session::choose`], the pattern of its variants.
    pub stack: Stack,
    /// The section of the lock for the chosen variant, as a stack.
    section: Option<Stack>,
    pub catalog: Catalog,
    pub overlay: Option<PathBuf>,
    pub store: Store,
    pub config: Config,
    pub lock_path: PathBuf,
}

impl Session {
    pub fn open(common: &Common, path: &Path) -> Result<Self, Failure> {
        let stack = read_stack(path)?;
        let overlay = common.catalog.clone().or_else(|| {
            let beside = path.parent().unwrap_or(Path::new("")).join(".stackforge");
            beside.is_dir().then_some(beside)
        });
        Ok(Self {
            stack,
            section: None,
            catalog: Catalog::load(overlay.as_deref())?,
            overlay,
            store: Store::open(common.store.as_deref())?,
            config: Config::load()?,
            lock_path: path.with_extension("lock"),
        })
    }

    pub fn target(&self) -> Result<Target<'_>, Failure> {
        Target::of(&self.stack, &self.catalog).map_err(|r| Failure::new(1, r))
    }

    /// Reads the lock. `None` if there is none.
    pub fn lock(&self) -> Result<Option<Lock>, Failure> {
        let read = std::fs::File::open(&self.lock_path).and_then(|file| {
            let mut text = String::new();
            file.take(MOST_TEXT).read_to_string(&mut text)?;
            Ok(text)
        });
        let text = match read {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                let what = format!("read {}: {e}", self.lock_path.display());
                return Err(Failure::of(Diagnostic::error(codes::LOCK_INVALID, what)));
            }
        };
        let lock = Lock::from_toml(&text).map_err(|e| {
            let what = format!("{}: {}", self.lock_path.display(), e.message());
            Failure::of(
                Diagnostic::error(codes::LOCK_INVALID, what)
                    .help("restore it from version control or run `stackforge lock`"),
            )
        })?;
        Ok(Some(lock))
    }

    /// Returns the session of one variant, whose stack has no matrix.
    pub fn choose(mut self, name: Option<&str>) -> Result<Self, Failure> {
        if self.stack.matrix.is_empty() && name.is_none_or(|n| n == self.stack.name()) {
            return Ok(self);
        }
        let expansion = super::matrix::expand(&self)?;
        let variant = super::matrix::named(&self.stack, &expansion, name)?;
        self.section = expansion.section_of(variant);
        self.stack = variant.stack.clone();
        Ok(self)
    }

    /// Returns the inputs of the stack that changed since it was locked.
    pub fn stale(&self, lock: &Lock) -> Vec<Change> {
        self.changes(self.section.as_ref().unwrap_or(&self.stack), lock)
    }

    /// Returns the inputs of a section that changed since it was locked.
    pub fn changes(&self, section: &Stack, lock: &Lock) -> Vec<Change> {
        // Unknown names were reported before.
        let Ok(target) = Target::of(section, &self.catalog) else {
            return Vec::new();
        };
        let inputs = crate::resolve::inputs(section, &self.catalog, &target);
        lock.stale(section, &inputs)
    }

    /// Returns the lock. Fails if there is none.
    pub fn required_lock(&self) -> Result<Lock, Failure> {
        let file = self.stack.file();
        self.lock()?.ok_or_else(|| {
            Failure::of(
                Diagnostic::error(codes::LOCK_MISSING, format!("{file} has no lock"))
                    .help(format!("run `stackforge lock {file}`")),
            )
        })
    }

    /// Fails if the stack cannot work. Returns a report with the warnings.
    pub fn admit(
        &self,
        stack: &Stack,
        target: &Target<'_>,
        lock: Option<&PlatformLock>,
    ) -> Result<Report, Failure> {
        let case = Case {
            stack,
            target,
            catalog: &self.catalog,
            lock,
            machine: Machine::default(),
            picks: Picks::default(),
        };
        let findings = match lock {
            Some(_) => crate::rules::check(&case),
            None => crate::rules::of_stack(&case),
        };
        let report = self.report(findings);
        if report.has_errors() {
            return Err(Failure::new(1, report));
        }
        Ok(report)
    }

    pub fn report(&self, findings: Vec<Diagnostic>) -> Report {
        Report::new(self.stack.source.clone(), findings)
    }

    /// Returns the plan, with steps marked as cached that the store records. Fails if the lock was made for
    /// another stack.
    pub fn plan(&self, common: &Common) -> Result<Plan, Failure> {
        self.target()?;
        let lock = self.required_lock()?;
        let findings = stale_findings(&self.stack, &self.stale(&lock));
        if !findings.is_empty() {
            return Err(Failure::new(1, self.report(findings)));
        }
        let (plan, doubts) = self.planned(&self.stack, &lock)?;
        warn(common, &doubts);
        Ok(plan)
    }

    /// Returns the plan of a stack whose lock fits, and a report with the warnings.
    pub fn planned(&self, stack: &Stack, lock: &Lock) -> Result<(Plan, Report), Failure> {
        let target = Target::of(stack, &self.catalog).map_err(|r| Failure::new(1, r))?;
        let file = stack.file();
        let locked = lock.section(stack).ok_or_else(|| {
            let what = format!(
                "the lock has nothing for {} on {} with Python {}",
                stack.platform.value, stack.base.value, stack.python.value
            );
            Failure::of(
                Diagnostic::error(codes::LOCK_STALE, what)
                    .help(format!("run `stackforge lock {file}`")),
            )
        })?;
        let doubts = self.admit(stack, &target, Some(locked))?;
        let mut plan = crate::plan::plan(stack, &target, &self.catalog, locked)
            .map_err(|e| Failure::of(Diagnostic::error(codes::LOCK_STALE, chain(&e))))?;
        plan.mark_cached(|key| self.store.has(key));
        Ok((plan, doubts))
    }
}

pub fn stale_findings(stack: &Stack, changes: &[Change]) -> Vec<Diagnostic> {
    changes
        .iter()
        .map(|c| {
            let what = match (&c.locked, &c.now) {
                (Some(before), Some(now)) => {
                    format!("`{}` was `{before}` when locked, is `{now}` now", c.key)
                }
                (None, Some(now)) => format!("`{}` (`{now}`) is not in the lock", c.key),
                (Some(before), None) => format!(
                    "`{}` (`{before}`) is in the lock and no longer in the stack",
                    c.key
                ),
                (None, None) => format!("`{}` changed", c.key),
            };
            Diagnostic::error(codes::LOCK_STALE, what)
                .at(span_of(stack, &c.key))
                .help(format!("run `stackforge lock {}`", stack.file()))
        })
        .collect()
}

/// Returns the memory of this machine, in GB.
pub fn memory_gb() -> Option<f64> {
    let info = rustix::system::sysinfo();
    let bytes = (info.totalram as f64) * f64::from(info.mem_unit);
    (bytes > 0.0).then_some(bytes / 1e9)
}

/// Returns the stack's line for a key of the lock's inputs.
fn span_of(stack: &Stack, key: &str) -> crate::diag::Span {
    match key.split_once('.') {
        Some(("libraries", name)) => stack.library(name).map(|l| l.name.span).unwrap_or_default(),
        _ => match key {
            "base" => stack.base.span,
            "python" => stack.python.span,
            "platform" => stack.platform.span,
            _ => crate::diag::Span::default(),
        },
    }
}

pub fn read_stack(path: &Path) -> Result<Stack, Failure> {
    let name = path.display().to_string();
    let unreadable = |why: String| {
        Failure::of(
            Diagnostic::error(codes::UNREADABLE, format!("cannot read {name}: {why}"))
                .help("check the path and its permissions"),
        )
    };
    let file = std::fs::File::open(path).map_err(|e| unreadable(e.to_string()))?;
    // A device or a pipe has no size and may be endless.
    let mut text = String::new();
    file.take(MOST_TEXT + 1)
        .read_to_string(&mut text)
        .map_err(|e| unreadable(e.to_string()))?;
    if text.len() as u64 > MOST_TEXT {
        let what = format!("{name} has more than {MOST_TEXT} bytes");
        return Err(Failure::of(
            Diagnostic::error(codes::TOO_LARGE, what)
                .help("check that the path names a stack file"),
        ));
    }
    spec::read(&name, &text).map_err(|r| Failure::new(2, r))
}

/// Returns a runtime for commands that wait for engines and servers.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| {
            Failure::of(Diagnostic::error(
                codes::STORE_IO,
                format!("start the runtime: {e}"),
            ))
        })
}

/// Runs work until Ctrl-C. What the work has begun then stays as it is.
pub async fn until_stopped<T, E: Into<Failure>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure> {
    let cancel = Cancel::new();
    stop_on_signal(&cancel);
    tokio::select! {
        done = work => done.map_err(Into::into),
        () = cancel.cancelled() => Err(Failure::of(Diagnostic::error(codes::INTERRUPTED, "interrupted while bytes moved")
                .help("what arrived is kept; the next run goes on from there"),
        )),
    }
}
