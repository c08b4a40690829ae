//! Why a layer could not be unpacked.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

use stackforge_binary::tar::{Problem, TarError};

/// Most levels of directories of a member's path, itself included. Linux takes paths of 4096 bytes, and
/// programs walk trees with a descriptor for each level.
pub const DEEPEST: usize = 1024;

/// Why a layer cannot be unpacked. Paths are given without their first slash.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The operating system's file systems do not keep what a layer has.
    #[error("only Linux keeps the files of an image as they are")]
    NotLinux,
    /// The layer's tar is not sound.
    #[error(transparent)]
    Tar(#[from] TarError),
    /// An operation in the target directory failed.
    #[error("{doing} `/{path}`")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The path that it was done to.
        path: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file's content cannot be written.
    #[error("write `/{path}`")]
    Write {
        /// The file.
        path: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The path.
    #[error("`/{0}` lies below a link of the same layer")]
    BelowLink(String),
    /// The path.
    #[error("`/{0}` lies below a file of the same layer")]
    BelowFile(String),
    /// The path.
    #[error("`/{0}` would replace a folder that has files")]
    OverFolder(String),
    /// The whiteout's path.
    #[error("the whiteout `/{0}` names no file")]
    Whiteout(String),
    /// The start of the path.
    #[error("`/{0}…` lies in more than {DEEPEST} folders")]
    Deep(String),
    /// The layer's paths need more memory than is allowed.
    #[error("the layer has more files or folders than an image has")]
    Many,
    /// The path.
    #[error("the owner of `/{0}` has a number that Linux does not take")]
    Id(String),
}

impl UnpackError {
    /// The operating system's error, if the disk is to blame and not the layer.
    pub fn of_disk(&self) -> Option<&io::Error> {
        let error = match self {
            Self::Io { source, .. } | Self::Write { source, .. } => Some(source),
            Self::Tar(TarError {
                problem: Problem::Read(source),
                ..
            }) => Some(source),
            _ => None,
        };
        error.filter(|error| {
            // A name that is too long, or a link in the way, is the layer's fault.
            let kinds = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded];
            let read_only = error.kind() == ErrorKind::ReadOnlyFilesystem;
            let broken = error.raw_os_error() == Some(Errno::IO.raw_os_error());
            kinds.contains(&error.kind()) || read_only || broken
        })
    }

    #[cfg(target_os = "linux")]
    pub(super) fn at(doing: &'static str, path: &str, e: Errno) -> Self {
        Self::Io {
            doing,
            path: path.to_owned(),
            source: e.into(),
        }
    }
}
