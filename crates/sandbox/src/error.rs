//! How a sandbox fails before its program runs. What the program does is an
//! [`Outcome`](super::Outcome), never an error.

use std::io;
use std::path::PathBuf;

use super::wire::{Fault, Stage};

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("this machine does not let this user make namespaces: {doing}")]
    NotAllowed {
        doing: String,
        help: String,
        #[source]
        source: io::Error,
    },
    #[error("the root's layers cannot be put over each other: {doing}")]
    Overlay {
        doing: String,
        #[source]
        source: io::Error,
    },
    #[error("{doing}")]
    Program {
        doing: String,
        #[source]
        source: io::Error,
    },
    #[error("the sandbox cannot be set up: {doing}")]
    Setup {
        doing: String,
        #[source]
        source: io::Error,
    },
    #[error("{what}")]
    Invalid { what: String },
    #[error("the sandbox's process ended without an answer")]
    Lost,
    #[error("interrupted")]
    Cancelled,
    #[error("read what a run wrote: {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl SandboxError {
    pub(super) fn from_fault(fault: Fault) -> Self {
        let source = io::Error::from_raw_os_error(fault.errno);
        let doing = fault.doing;
        match fault.stage {
            Stage::Namespaces => SandboxError::NotAllowed {
                doing,
                help: super::probe::why_not_allowed(),
                source,
            },
            Stage::Overlay => SandboxError::Overlay { doing, source },
            Stage::Program => SandboxError::Program { doing, source },
            Stage::Setup => SandboxError::Setup { doing, source },
        }
    }

    /// What the user can do.
    pub fn help(&self) -> String {
        match self {
            SandboxError::NotAllowed { help, .. } => help.clone(),
            SandboxError::Overlay { .. } => {
                "an ordinary user needs Linux 5.11 or newer, and layers on a local file system \
                 (not NFS) that keeps extended attributes; `stackforge doctor` says what works here"
                    .into()
            }
            SandboxError::Program { .. } => {
                "see that the program is in the root, executable and for this processor".into()
            }
            SandboxError::Setup { .. } => {
                "Linux 5.12 or newer is needed; `stackforge doctor` says what works here".into()
            }
            SandboxError::Invalid { .. } => "correct what was asked for".into(),
            SandboxError::Lost => {
                "something ended it from outside; the kernel's log may say what".into()
            }
            SandboxError::Cancelled => "run the same command again".into(),
            SandboxError::Unreadable { .. } => {
                "see that nothing else changes the directory and that this user may read it".into()
            }
        }
    }
}
