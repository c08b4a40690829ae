//! Why a stack file does not lead to a plan.

use crate::PlanError;
use stackforge_stack::catalog::CatalogError;
use stackforge_stack::diag::{Code, Diagnostic, Explained as _, Report, Source, codes};
use stackforge_stack::matrix::{Expansion, Rejected};
use stackforge_stack::spec::{Platform, PythonVersion};
use stackforge_types::printable;
use std::path::PathBuf;

/// Names of variants that an error lists.
const SHOWN: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    #[error("cannot read {file}: {why}")]
    Unreadable {
        file: String,
        why: String,
        /// A stack file that may have been meant.
        near: Option<String>,
    },
    #[error("{file} has more than {} bytes", super::MAX_TEXT)]
    TooLarge { file: String },
    /// The file is not a stack; the report says where and why.
    #[error("{} is not a stack", .0.source.name)]
    Invalid(Report),
    /// The stack cannot work; the report says where and why.
    #[error("{} cannot work", .0.source.name)]
    Refused(Report),
    /// The lock was made for another stack; the report says what changed since.
    #[error("{} changed since it was locked", .0.source.name)]
    Stale(Report),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error("read {}: {source}", path.display())]
    LockUnreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The text is not a lock; the report says where and why.
    #[error("{} is not a lock", .0.source.name)]
    LockInvalid(Report),
    #[error("{file} has no lock")]
    NoLock { file: String },
    #[error("the lock has nothing for {platform} on {base} with Python {python}")]
    NoSection {
        file: String,
        platform: Platform,
        base: String,
        python: PythonVersion,
    },
    #[error("all {} combinations of `matrix` in {file} are refused", expansion.rejected.len())]
    NoneLeft {
        file: String,
        expansion: Box<Expansion>,
    },
    /// `asked` is `None` if a variant has to be named.
    #[error("{}", unknown(file, asked.as_deref(), available.len()))]
    UnknownVariant {
        file: String,
        asked: Option<String>,
        near: Option<String>,
        available: Vec<String>,
        /// Whether the stack has no matrix.
        single: bool,
    },
    #[error("`{}` is refused: {}", .0.name, .0.message)]
    RefusedVariant(Box<Rejected>),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl ProjectError {
    /// Whether `stackforge lock` is what the stack lacks.
    pub fn wants_lock(&self) -> bool {
        matches!(
            self,
            Self::NoLock { .. } | Self::NoSection { .. } | Self::Stale(_)
        )
    }

    /// Returns the exit status of a command that ends with this error: 1 if the stack cannot work, 2 if it
    /// cannot be read.
    pub fn exit(&self) -> u8 {
        match self {
            Self::Invalid(_) => 2,
            Self::Refused(_) | Self::Stale(_) | Self::RefusedVariant(_) => 1,
            other => other.code().exit(),
        }
    }

    fn code(&self) -> Code {
        match self {
            Self::Unreadable { .. } => codes::UNREADABLE,
            Self::TooLarge { .. } => codes::TOO_LARGE,
            Self::LockUnreadable { .. } | Self::LockInvalid(_) => codes::LOCK_INVALID,
            Self::NoLock { .. } => codes::LOCK_MISSING,
            Self::NoSection { .. } | Self::Stale(_) => codes::LOCK_STALE,
            Self::NoneLeft { .. } => codes::NO_VARIANT,
            Self::UnknownVariant { .. } => codes::UNKNOWN_VARIANT,
            Self::RefusedVariant(rejected) => rejected.code,
            Self::Catalog(e) => e.code(),
            Self::Plan(e) => e.code(),
            // Reports have codes of their own.
            Self::Invalid(_) | Self::Refused(_) => codes::YAML_SYNTAX,
        }
    }

    /// Returns the findings, at their places in the stack file or its lock where they have one.
    pub fn report(self) -> Report {
        let this = match self {
            Self::Invalid(report)
            | Self::Refused(report)
            | Self::Stale(report)
            | Self::LockInvalid(report) => {
                return report;
            }
            other => other,
        };
        let diagnostic = |help: Option<String>| {
            let d = Diagnostic::error(this.code(), this.to_string());
            let d = match help {
                Some(help) => d.help(help),
                None => d,
            };
            Report::new(Source::default(), vec![d])
        };
        let lock = |file: &str| Some(format!("run `stackforge lock {}`", printable::word(file)));
        match &this {
            Self::Unreadable { near, .. } => diagnostic(Some(match near {
                Some(near) => format!("did you mean `{}`?", printable::word(near)),
                None => "check the path and its permissions".to_owned(),
            })),
            Self::TooLarge { .. } => {
                diagnostic(Some("check that the path names a stack file".to_owned()))
            }
            Self::LockUnreadable { .. } => diagnostic(None),
            Self::NoLock { file } | Self::NoSection { file, .. } => diagnostic(lock(file)),
            Self::NoneLeft { .. } => diagnostic(Some(
                "change the base, a library or an axis as the reasons above say".to_owned(),
            )),
            Self::UnknownVariant {
                file,
                near,
                available,
                single,
                ..
            } => diagnostic(Some(names(file, near.as_deref(), available, *single))),
            Self::RefusedVariant(rejected) => diagnostic(rejected.help.clone()),
            Self::Catalog(e) => Report::new(Source::default(), vec![e.diagnostic()]),
            Self::Plan(e) => Report::new(Source::default(), vec![e.diagnostic()]),
            Self::Invalid(_) | Self::Refused(_) | Self::Stale(_) | Self::LockInvalid(_) => {
                diagnostic(None)
            }
        }
    }
}

fn unknown(file: &str, asked: Option<&str>, available: usize) -> String {
    match asked {
        Some(asked) => format!("{file} has no variant `{asked}`"),
        None if available == 1 => format!("{file} has 1 variant"),
        None => format!("{file} has {available} variants"),
    }
}

fn names(file: &str, near: Option<&str>, available: &[String], single: bool) -> String {
    match near {
        _ if single => "leave `--variant` out: the stack has no matrix".to_owned(),
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let mut help = "use `--variant` with one of\n".to_owned();
            help.push_str(&available[..available.len().min(SHOWN)].join("\n"));
            if available.len() > SHOWN {
                help.push_str(&format!(
                    "\n…\n`stackforge matrix {}` lists all",
                    printable::word(file)
                ));
            }
            help
        }
    }
}
