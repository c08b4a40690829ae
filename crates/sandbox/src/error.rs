//! Why a sandbox failed before its program ran. How the program ends is an [`Outcome`](super::Outcome),
//! never an error.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// What to do about a system call that is missing.
pub(crate) const NEWER: &str = "Linux 5.12 or newer is needed";

/// Why a sandbox could not run its program.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The operating system has no namespaces.
    #[error("only Linux runs programs of an image without a container engine")]
    NotLinux,
    /// The kernel, or a policy of this machine, refuses namespaces to this user.
    #[error("this machine does not let this user make namespaces: {doing}")]
    NotAllowed {
        /// What was being done.
        doing: String,
        /// What to do about it.
        help: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// Overlayfs refuses the layers.
    #[error("the root's layers cannot be put over each other: {doing}")]
    Overlay {
        /// What was being done.
        doing: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The program cannot be started.
    #[error("{doing}")]
    Program {
        /// What was being done, with the program's name.
        doing: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A mount, a limit or a filter cannot be set.
    #[error("the sandbox cannot be set up: {doing}")]
    Setup {
        /// What was being done.
        doing: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The request contradicts itself; nothing was started.
    #[error("{what}")]
    Invalid {
        /// What is wrong with the request.
        what: String,
    },
    /// The launcher was killed, or its `main` does not begin with
    /// [`child_main`](super::child_main).
    #[error("the sandbox's process ended without an answer")]
    Lost,
    /// The caller's [`Cancel`](stackforge_types::Cancel) was set. No process of the run is left.
    #[error("interrupted")]
    Cancelled,
    /// The upper directory cannot be read.
    #[error("read what a run wrote: {}", path.display())]
    Unreadable {
        /// The path that could not be read.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

impl SandboxError {
    /// Returns whether this machine cannot start such a sandbox: its system is another, its policy refuses namespaces or the
    /// overlay, or the kernel, or an emulator in its place, lacks a system call. What a root or a request can cause is not counted.
    pub fn is_of_machine(&self) -> bool {
        match self {
            SandboxError::NotLinux
            | SandboxError::NotAllowed { .. }
            | SandboxError::Overlay { .. } => true,
            SandboxError::Setup { source, .. } => {
                source.raw_os_error() == Some(Errno::NOSYS.raw_os_error())
            }
            _ => false,
        }
    }

    /// Returns what the user can do.
    pub fn help(&self) -> String {
        match self {
            SandboxError::NotLinux => {
                "use a container engine, Docker Desktop for instance, or start stackforge on Linux: in a container or \
                 a virtual machine"
                    .into()
            }
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
                format!("{NEWER}; `stackforge doctor` says what works here")
            }
            SandboxError::Invalid { .. } => "correct the request".into(),
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
