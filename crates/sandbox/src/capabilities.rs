//! What a machine allows a sandbox, as it was found out by trying.

use serde::Serialize;

use super::outcome::Identity;

/// What a sandbox can use on this machine.
#[derive(Debug, Clone, Serialize)]
pub struct Capabilities {
    /// Whether programs can be run at all; the other fields give the reasons.
    pub works: bool,
    /// The IDs that programs would run with.
    pub identity: Identity,
    /// Namespaces, which isolate the program.
    pub namespaces: Answer,
    /// Overlayfs, for roots of several layers and for keeping writes apart.
    pub overlay: Answer,
    /// Subordinate IDs. Without them all files of an ordinary user have one owner.
    pub subordinate_ids: Answer,
    /// The seccomp filter of system calls.
    pub seccomp: Answer,
    /// Control groups, which enforce limits.
    pub limits: Answer,
}

/// Whether a feature is available, why not, and what to do about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Whether the feature is available.
    pub yes: bool,
    /// Why it is not, or what is missing; `None` if nothing is.
    pub reason: Option<String>,
    /// What the user can do about it, if anything.
    pub help: Option<String>,
}

impl Answer {
    #[cfg(target_os = "linux")]
    pub(crate) fn yes() -> Self {
        Answer {
            yes: true,
            ..Answer::default()
        }
    }

    pub(crate) fn no(reason: impl Into<String>, help: impl Into<String>) -> Self {
        Answer {
            yes: false,
            reason: Some(reason.into()),
            help: Some(help.into()),
        }
    }
}
