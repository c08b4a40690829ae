//! What can go wrong while a system is finished.

use std::io;

use super::super::deb::DebError;
use super::super::rootfs::RootfsError;

/// A maintainer script that nobody has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownScript {
    pub package: String,
    /// `preinst` or `postinst`.
    pub script: &'static str,
    /// The first line that is not understood, and what `scripts.yaml` would know it by.
    pub line: String,
    pub digest: String,
}

impl std::fmt::Display for UnknownScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of {} ({}, at `{}`)",
            self.script, self.package, self.digest, self.line
        )
    }
}

fn list(unknown: &[UnknownScript]) -> String {
    let all: Vec<String> = unknown.iter().map(ToString::to_string).collect();
    all.join("; ")
}

#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    #[error(transparent)]
    Rootfs(#[from] RootfsError),
    #[error("scripts of packages are not understood: {}", list(.0))]
    Scripts(Vec<UnknownScript>),
    #[error("the system's `{path}` is damaged")]
    Damaged { path: String },
    #[error("a package's script needs `{path}`, which no package has")]
    Missing { path: String },
    #[error("`{path}` is not below a directory")]
    Parent { path: String },
    #[error("`{path}` is there already, and is not what a package's script would put there")]
    Occupied { path: String },
    #[error("unit `{unit}` asks for `{line}`, which is not understood")]
    Unit { unit: String, line: String },
    #[error("PAM profile `{name}` is not understood")]
    Profile { name: String },
    #[error("reading `{path}` of the system below")]
    Root {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("writing the system")]
    Write(#[from] io::Error),
}

impl From<DebError> for FinishError {
    fn from(error: DebError) -> Self {
        FinishError::Rootfs(error.into())
    }
}

impl FinishError {
    pub fn help(&self) -> &'static str {
        match self {
            Self::Rootfs(error) => error.help(),
            Self::Scripts(_) | Self::Unit { .. } | Self::Profile { .. } => {
                "build with `--engine docker`, which runs packages' own scripts"
            }
            Self::Write(_) => "check the space and the permissions where it is written",
            _ => "the system below is not as its packages left it: use another base",
        }
    }

    /// Whether running the packages' own scripts would do.
    pub fn is_not_understood(&self) -> bool {
        matches!(
            self,
            Self::Scripts(_) | Self::Unit { .. } | Self::Profile { .. }
        )
    }
}
