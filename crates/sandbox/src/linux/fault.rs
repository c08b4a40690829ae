//! A step of a run that failed in the re-executed process, as it travels back to the caller.

use std::io;

use serde::{Deserialize, Serialize};

use super::error::{NEWER, SandboxError};

/// A step that failed, and its error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub stage: Stage,
    pub doing: String,
    pub errno: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    Namespaces,
    Overlay,
    Program,
    Setup,
}

impl Fault {
    pub(crate) fn new(stage: Stage, doing: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Fault {
            stage,
            doing: doing.into(),
            errno: error.into().raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// Returns a function for `map_err`.
    pub(crate) fn at<E: Into<io::Error>>(
        stage: Stage,
        doing: impl Into<String>,
    ) -> impl FnOnce(E) -> Fault {
        let doing = doing.into();
        move |e| Fault::new(stage, doing, e)
    }

    /// Returns a function for `map_err`, for errors while the sandbox is being set up.
    pub(crate) fn setup<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Fault {
        Fault::at(Stage::Setup, doing)
    }
}

impl SandboxError {
    pub(super) fn from_fault(fault: Fault) -> Self {
        let source = io::Error::from_raw_os_error(fault.errno);
        let doing = fault.doing;
        match fault.stage {
            Stage::Namespaces => SandboxError::NotAllowed {
                doing,
                help: match fault.errno {
                    libc::ENOSYS => NEWER.to_owned(),
                    _ => super::refusal::why_not_allowed(),
                },
                source,
            },
            Stage::Overlay => SandboxError::Overlay { doing, source },
            Stage::Program => SandboxError::Program { doing, source },
            Stage::Setup => SandboxError::Setup { doing, source },
        }
    }
}
