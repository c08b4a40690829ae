//! Errors in a zip archive: their position and their member.

use std::fmt;

use crate::source::{Located, ReadError};

/// An archive that is damaged, or that programs read differently.
#[derive(Debug)]
pub struct ZipError {
    /// The name that the caller gave the archive.
    pub archive: String,
    /// The member with the problem. `None` if the archive itself has it.
    pub member: Option<String>,
    /// Offset of the problem in the archive, in bytes.
    pub offset: u64,
    /// The problem at this offset.
    pub problem: Problem,
}

impl fmt::Display for ZipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "archive `{}`", self.archive)?;
        if let Some(member) = &self.member {
            // A wrong name may contain anything.
            write!(f, ", member `{}`", member.escape_debug())?;
        }
        write!(f, ", offset {:#x}: {}", self.offset, self.problem)
    }
}

impl std::error::Error for ZipError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.problem)
    }
}

/// A problem of an archive or of a member.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The bytes could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The archive has no end record (APPNOTE.TXT, 4.3.16).
    #[error("it is not a zip archive, or it is cut short")]
    NoEnd,
    /// The archive has two end records, and programs differ in which one they take.
    #[error("two records claim to be the end of its directory")]
    TwoEnds,
    /// The archive has several volumes. Only archives in one file are read.
    #[error("it is one of several volumes")]
    Volumes,
    /// There are bytes between the directory and the record of its end.
    #[error("its directory does not end where the record of its end begins")]
    Directory,
    /// The directory does not have the number of entries in its end record.
    #[error("its directory holds {found} members in place of {expected}")]
    Count {
        /// Number according to the end record.
        expected: u64,
        /// Number of entries that were read.
        found: u64,
    },
    /// Numbers that need zip64 have no zip64 field, or a contradicting one.
    #[error("its zip64 records are missing or contradict the others")]
    Zip64,
    /// An entry does not begin with its signature or is cut short.
    #[error("this is not an entry of a directory")]
    Entry,
    /// The local header differs from the directory, so two programs could take different values. The
    /// field names the value.
    #[error("its local header differs from the directory in its {0}")]
    Local(&'static str),
    /// The member is encrypted.
    #[error("it is encrypted")]
    Encrypted,
    /// The member has a data descriptor (APPNOTE.TXT, 4.3.9).
    #[error("its sizes follow its content, so it cannot be read as it passes")]
    Streamed,
    /// The compression method is not 0 or 8. The field is its number.
    #[error("its method {0} is neither stored nor deflate")]
    Method(u16),
    /// The size cannot result from so few compressed bytes.
    #[error("it cannot hold {size} bytes in {compressed}")]
    Sizes {
        /// Size of the content in bytes according to the directory.
        size: u64,
        /// Size in the archive in bytes according to the directory.
        compressed: u64,
    },
    /// A member ends after the start of the next one or of the directory.
    #[error("it overlaps what follows")]
    Overlap,
    /// The name is not a plain relative path, with the reason.
    #[error("its name is {0}")]
    Name(&'static str),
    /// Two members have the same name.
    #[error("its name is that of another member")]
    Duplicate,
    /// A member's directory is a file in the same archive.
    #[error("its name stands below a member that is a file")]
    BelowFile,
}

/// A problem without the archive's name.
#[derive(Debug)]
pub(super) struct Fault {
    pub member: Option<String>,
    pub located: Located<Problem>,
}

impl Fault {
    /// Names the member that has the problem.
    pub(super) fn in_member(self, name: impl Into<String>) -> Self {
        Self {
            member: Some(name.into()),
            ..self
        }
    }

    pub(super) fn in_archive(self, archive: &str) -> ZipError {
        ZipError {
            archive: archive.to_owned(),
            member: self.member,
            offset: self.located.offset,
            problem: self.located.problem,
        }
    }
}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        Self {
            member: None,
            located: error.into(),
        }
    }
}

/// Creates a problem at an offset of the archive.
pub(super) fn fault(offset: u64, problem: Problem) -> Fault {
    Fault {
        member: None,
        located: Located { offset, problem },
    }
}
