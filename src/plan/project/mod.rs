//! The way from a stack file to a plan: a file with its catalog and its lock.
//!
//! In: a path. Out: a [`Project`]; of it a [`Chosen`] stack without a matrix, of that [`Checked`], what the
//! rules found, and of that a [`Plan`]. Each is computed once and handed on. Needs neither network, engine
//! nor store, and prints nothing.

mod app;
mod error;

use crate::{Own, Plan, plan};
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::{Diagnostic, Report, Source, Span, codes, nearest};
use stackforge_stack::lock::{Change, Lock, PlatformLock};
use stackforge_stack::matrix::{self, Expansion, Section};
use stackforge_stack::rules::{self, Case, Checked, Machine, Picks};
use stackforge_stack::spec::{self, Stack, StackFile};
use stackforge_stack::target::Target;
use stackforge_types::printable;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub use error::ProjectError;

/// Longest stack or lock file, in bytes.
const MAX_TEXT: u64 = 64 << 20;

/// A stack file with its catalog and the place of its lock.
pub struct Project {
    pub file: StackFile,
    pub catalog: Catalog,
    /// The directory over the catalog: the given one, else `.stackforge` beside the stack.
    pub overlay: Option<PathBuf>,
    pub lock_path: PathBuf,
}

/// A stack without a matrix: the file's own, or that of a variant.
pub struct Chosen {
    pub stack: Stack,
    /// What the stack is locked as.
    pub section: Section,
}

/// A plan, and findings that do not stop it.
pub struct Planned {
    pub plan: Plan,
    pub warnings: Vec<Diagnostic>,
}

impl Project {
    /// Reads a stack file and its catalog.
    ///
    /// # Errors
    /// If the file or a file of the catalog cannot be read or is not valid.
    pub fn open(path: &Path, catalog: Option<&Path>) -> Result<Self, ProjectError> {
        Self::of(path, &text_of(path)?, catalog)
    }

    /// As [`Project::open`], with a text that the file does not have yet.
    ///
    /// # Errors
    /// If the text or a file of the catalog is not valid.
    pub fn of(path: &Path, text: &str, catalog: Option<&Path>) -> Result<Self, ProjectError> {
        let name = path.display().to_string();
        let file = parsed(&name, text)?;
        let overlay = catalog.map(Path::to_owned).or_else(|| {
            let beside = path.parent().unwrap_or(Path::new("")).join(".stackforge");
            beside.is_dir().then_some(beside)
        });
        Ok(Self {
            file,
            catalog: stackforge_stack::catalog::load(overlay.as_deref())?,
            overlay,
            lock_path: path.with_extension("lock"),
        })
    }

    /// Returns the name of the file, for messages.
    pub fn name(&self) -> &str {
        self.file.pattern.file()
    }

    /// Returns findings as a report on the stack file.
    pub fn report(&self, findings: Vec<Diagnostic>) -> Report {
        Report::new(self.file.pattern.source.clone(), findings)
    }

    /// Reads the lock. `None` if there is none.
    ///
    /// # Errors
    /// If there is one that cannot be read.
    pub fn lock(&self) -> Result<Option<Lock>, ProjectError> {
        let text = match File::open(&self.lock_path).and_then(text) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                let path = self.lock_path.clone();
                return Err(ProjectError::LockUnreadable { path, source });
            }
        };
        match Lock::from_toml(&text) {
            Ok(lock) => Ok(Some(lock)),
            Err(e) => {
                let name = self.lock_path.display().to_string();
                let message = format!("{name}: {}", e.message());
                let span = e.span().map(|range| Span::of(&text, range));
                let fault = Diagnostic::error(codes::LOCK_INVALID, message)
                    .at(span.unwrap_or_default())
                    .help("restore it from version control or run `stackforge lock`");
                let above = 0;
                let source = Source { name, text, above };
                Err(ProjectError::LockInvalid(Report::new(source, vec![fault])))
            }
        }
    }

    /// Reads the lock.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn required_lock(&self) -> Result<Lock, ProjectError> {
        self.lock()?.ok_or_else(|| ProjectError::NoLock {
            file: self.name().to_owned(),
        })
    }

    /// Returns the variants of the matrix, judged without a lock.
    ///
    /// # Errors
    /// If none is left, or the matrix has values that the catalog does not know.
    pub fn variants(&self) -> Result<Expansion, ProjectError> {
        let expansion = matrix::expand(&self.file, &self.catalog).map_err(ProjectError::Refused)?;
        self.some_left(expansion)
    }

    /// Returns the variants that the locked files and the machine also allow, and findings that say why the
    /// lock is not used if it was made for another stack.
    ///
    /// # Errors
    /// As [`Project::variants`].
    pub fn judged(
        &self,
        lock: Option<&Lock>,
        machine: &Machine,
    ) -> Result<(Expansion, Vec<Diagnostic>), ProjectError> {
        let expansion = self.variants()?;
        let mut stale: Vec<Diagnostic> = Vec::new();
        if let Some(lock) = lock {
            for section in expansion.sections() {
                let findings = self.stale(&section, lock).into_iter();
                let new = findings.filter(|f| !stale.contains(f)).collect::<Vec<_>>();
                stale.extend(new);
            }
        }
        let lock = lock.filter(|_| stale.is_empty());
        let judged = expansion.judge(&self.catalog, lock, machine);
        Ok((self.some_left(judged)?, stale))
    }

    fn some_left(&self, expansion: Expansion) -> Result<Expansion, ProjectError> {
        if expansion.variants.is_empty() {
            return Err(ProjectError::NoneLeft {
                file: self.name().to_owned(),
                expansion: Box::new(expansion),
            });
        }
        Ok(expansion)
    }

    /// Returns the file's stack, or the variant with that name.
    ///
    /// # Errors
    /// If there is no such variant, or, without a name, if there are several.
    pub fn choose(&self, name: Option<&str>) -> Result<Chosen, ProjectError> {
        if let Some(stack) = self.file.single()
            && name.is_none_or(|name| name == stack.name())
        {
            return Ok(Chosen {
                stack: stack.clone(),
                section: Section::of(stack),
            });
        }
        let expansion = self.variants()?;
        let variants = &expansion.variants;
        let unknown = |near: Option<&str>| ProjectError::UnknownVariant {
            file: self.name().to_owned(),
            asked: name.map(str::to_owned),
            near: near.map(str::to_owned),
            available: variants.iter().map(|v| v.name.clone()).collect(),
            single: self.file.single().is_some(),
        };
        let Some(asked) = name else {
            return Err(unknown(None));
        };
        let Some(variant) = variants.iter().find(|v| v.name == asked) else {
            let rejected = expansion.rejected.iter().find(|r| r.name == asked);
            return Err(match rejected {
                Some(rejected) => ProjectError::RefusedVariant(Box::new(rejected.clone())),
                None => unknown(nearest(asked, variants.iter().map(|v| v.name.as_str()))),
            });
        };
        let section = expansion.section_of(variant);
        Ok(Chosen {
            section: section.unwrap_or_else(|| Section::of(&variant.stack)),
            stack: variant.stack.clone(),
        })
    }

    /// Returns what is locked separately: the stack, or a section for each platform, base and Python of the
    /// matrix.
    ///
    /// # Errors
    /// If the stack, or each of its variants, is refused before anything is locked.
    pub fn sections(&self) -> Result<Vec<Section>, ProjectError> {
        let Some(stack) = self.file.single() else {
            return Ok(self.variants()?.sections());
        };
        let case = self.case(stack, None, Machine::default())?;
        self.admitted(rules::of_stack(&case))?;
        Ok(vec![Section::of(stack)])
    }

    /// Returns a finding for each input of the section that changed since it was locked.
    pub fn stale(&self, section: &Section, lock: &Lock) -> Vec<Diagnostic> {
        let stack = section.stack();
        // Unknown names are reported elsewhere.
        let Ok(target) = Target::of(stack, &self.catalog) else {
            return Vec::new();
        };
        let inputs = stackforge_resolve::inputs(stack, &self.catalog, &target);
        let changes = lock.stale(stack, &inputs);
        changes.iter().map(|change| stale(stack, change)).collect()
    }

    fn case<'a>(
        &'a self,
        stack: &'a Stack,
        lock: Option<&'a PlatformLock>,
        machine: Machine,
    ) -> Result<Case<'a>, ProjectError> {
        Ok(Case {
            stack,
            target: Target::of(stack, &self.catalog).map_err(ProjectError::Refused)?,
            catalog: &self.catalog,
            lock,
            machine,
            picks: Picks::default(),
        })
    }

    /// Judges a stack by all rules. Findings may be errors.
    ///
    /// # Errors
    /// If the stack names a base or a GPU that the catalog does not know.
    pub fn check<'a>(
        &'a self,
        stack: &'a Stack,
        lock: Option<&'a PlatformLock>,
        machine: Machine,
    ) -> Result<Checked<'a>, ProjectError> {
        Ok(rules::check(self.case(stack, lock, machine)?))
    }

    /// Plans a chosen stack with its lock.
    ///
    /// # Errors
    /// If the lock was made for another stack, or the stack cannot work with it.
    pub fn plan(&self, chosen: &Chosen) -> Result<Planned, ProjectError> {
        Target::of(&chosen.stack, &self.catalog).map_err(ProjectError::Refused)?;
        let lock = self.required_lock()?;
        self.current(self.stale(&chosen.section, &lock))?;
        self.planned(&chosen.stack, &lock)
    }

    /// Plans a stack whose lock was made for it.
    ///
    /// # Errors
    /// If the lock has no section for the stack, or the stack cannot work with it.
    pub fn planned(&self, stack: &Stack, lock: &Lock) -> Result<Planned, ProjectError> {
        let locked = lock.section(stack).ok_or_else(|| ProjectError::NoSection {
            file: stack.file().to_owned(),
            platform: stack.platform.value,
            base: stack.base.value.clone(),
            python: stack.python.value,
        })?;
        let checked = self.check(stack, Some(locked), Machine::default())?;
        let warnings = self.admitted(checked.findings.clone())?;
        Ok(Planned {
            plan: plan(&checked, self.own(stack, locked)?)?,
            warnings,
        })
    }

    /// Reads what the user puts into the image. `None` if the stack says nothing of it.
    fn own(&self, stack: &Stack, lock: &PlatformLock) -> Result<Option<Own>, ProjectError> {
        let failed = |fault| ProjectError::Invalid(self.report(vec![fault]));
        let source = app::read(stack).map_err(failed)?;
        let added = app::added(stack).map_err(failed)?;
        Ok(Own::of(stack, lock, source, added))
    }

    /// Refuses a lock of which something is stale.
    ///
    /// # Errors
    /// If there is a finding.
    pub fn current(&self, stale: Vec<Diagnostic>) -> Result<(), ProjectError> {
        if stale.is_empty() {
            Ok(())
        } else {
            Err(ProjectError::Stale(self.report(stale)))
        }
    }

    /// Returns findings without an error.
    ///
    /// # Errors
    /// If one of them is an error.
    pub fn admitted(&self, findings: Vec<Diagnostic>) -> Result<Vec<Diagnostic>, ProjectError> {
        let report = self.report(findings);
        if report.has_errors() {
            Err(ProjectError::Refused(report))
        } else {
            Ok(report.diagnostics)
        }
    }
}

/// Reads a stack file.
///
/// # Errors
/// If it cannot be read, or is not a stack.
pub fn read(path: &Path) -> Result<StackFile, ProjectError> {
    let text = text_of(path)?;
    parsed(&path.display().to_string(), &text)
}

/// Reads a stack's text, and the files of constraints and of an app's requirements that it names.
fn parsed(name: &str, text: &str) -> Result<StackFile, ProjectError> {
    let mut file = spec::read(name, text).map_err(ProjectError::Invalid)?;
    let stack = &mut file.pattern;
    let read = |path: &Path| File::open(path).and_then(self::text);
    spec::constraints::expand(stack, &read)
        .and_then(|()| spec::service::expand(stack, &read))
        .map_err(|faults| ProjectError::Invalid(Report::new(stack.source.clone(), faults)))?;
    Ok(file)
}

/// Reads the text of a stack file.
///
/// # Errors
/// If it cannot be read, or is longer than a stack can be.
pub fn text_of(path: &Path) -> Result<String, ProjectError> {
    let file = path.display().to_string();
    let unreadable = |e: io::Error| ProjectError::Unreadable {
        file: file.clone(),
        near: near(path).filter(|_| e.kind() == io::ErrorKind::NotFound),
        why: e.to_string(),
    };
    let text = File::open(path).and_then(text).map_err(unreadable)?;
    if text.len() as u64 > MAX_TEXT {
        return Err(ProjectError::TooLarge { file });
    }
    Ok(text)
}

/// Returns the stack file beside the path whose name is nearest to the path's.
fn near(path: &Path) -> Option<String> {
    let folder = path.parent()?;
    let here = folder.as_os_str().is_empty();
    let listed = std::fs::read_dir(if here { Path::new(".") } else { folder });
    let names: Vec<String> = (listed.ok()?.flatten())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".yaml") || name.ends_with(".yml"))
        .collect();
    let near = nearest(
        path.file_name()?.to_str()?,
        names.iter().map(String::as_str),
    )?;
    Some(folder.join(near).display().to_string())
}

/// Reads a text, up to one byte more than is allowed: a device or a pipe has no size and may be endless.
fn text(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_TEXT + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn stale(stack: &Stack, change: &Change) -> Diagnostic {
    let Change { key, locked, now } = change;
    let what = match (locked, now) {
        (Some(before), Some(now)) => format!("`{key}` was `{before}` when locked, is `{now}` now"),
        (None, Some(now)) => format!("`{key}` (`{now}`) is not in the lock"),
        (Some(before), None) => {
            format!("`{key}` (`{before}`) is in the lock and no longer in the stack")
        }
        (None, None) => format!("`{key}` changed"),
    };
    Diagnostic::error(codes::LOCK_STALE, what)
        .at(span_of(stack, key))
        .help(format!(
            "run `stackforge lock {}`",
            printable::word(stack.file())
        ))
}

/// Returns the stack's line for a key of the lock's inputs.
fn span_of(stack: &Stack, key: &str) -> Span {
    match key.split_once('.') {
        Some(("libraries", name)) => stack.library(name).map(|l| l.name.span).unwrap_or_default(),
        _ => match key {
            "base" => stack.base.span,
            "python" => stack.python.span,
            "platform" => stack.platform.span,
            "app.requirements" | "app.constraints" => {
                let app = stack.app.as_ref().and_then(|app| app.requirements.first());
                app.map(|file| file.span).unwrap_or_default()
            }
            "app.build-system" => {
                let app = stack.app.as_ref();
                app.map(|app| app.source.span).unwrap_or_default()
            }
            _ => Span::default(),
        },
    }
}
