//! What can be wrong with a zip archive, where in it and with which member.

use std::fmt;

use super::member::Member;
use crate::source::ReadError;

/// An archive that is damaged, or that programs read differently.
#[derive(Debug)]
pub struct ZipError {
    /// The name that the caller gave the archive.
    pub archive: String,
    /// The member that is wrong; `None` if it is the archive.
    pub member: Option<String>,
    /// Where in the archive the problem was seen, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub problem: Problem,
}

impl fmt::Display for ZipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "archive `{}`", self.archive)?;
        if let Some(member) = &self.member {
            // A name that is wrong may hold anything.
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

/// What can be wrong with an archive or a member of it.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The bytes could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No record of the directory's end is found (APPNOTE.TXT, 4.3.16).
    #[error("it is no zip archive, or it is cut short")]
    NoEnd,
    /// It depends on the program which one is taken.
    #[error("two records claim to be the end of its directory")]
    TwoEnds,
    /// Only archives in one file are read.
    #[error("it is one of several volumes")]
    Volumes,
    /// There are bytes between the directory and the record of its end.
    #[error("its directory does not end where the record of its end begins")]
    Directory,
    /// The directory has more or fewer entries than its end says.
    #[error("its directory holds {found} members in place of {expected}")]
    Count {
        /// As the record of the end says.
        expected: u64,
        /// Entries that were read.
        found: u64,
    },
    /// Numbers that need zip64 have none, or two that differ.
    #[error("its zip64 records are missing or contradict the others")]
    Zip64,
    /// An entry does not begin with its signature or is cut short.
    #[error("this is no entry of a directory")]
    Entry,
    /// Two programs could take different values; the field says of what.
    #[error("its local header differs from the directory in its {0}")]
    Local(&'static str),
    /// Nothing encrypted is read.
    #[error("it is encrypted")]
    Encrypted,
    /// The member has a data descriptor (APPNOTE.TXT, 4.3.9).
    #[error("its sizes follow its content, so it cannot be read as it passes")]
    Streamed,
    /// The compression method's number; 0 and 8 are read.
    #[error("its method {0} is neither stored nor deflate")]
    Method(u16),
    /// The size cannot come from so few bytes.
    #[error("it cannot hold {size} bytes in {compressed}")]
    Sizes {
        /// Bytes of the content, as the directory says.
        size: u64,
        /// Bytes in the archive, as the directory says.
        compressed: u64,
    },
    /// A member ends behind the start of the next one or of the directory.
    #[error("it overlaps what follows")]
    Overlap,
    /// The name is not a plain relative path; the field says why.
    #[error("its name is {0}")]
    Name(&'static str),
    /// Two members have one name.
    #[error("its name is that of another member")]
    Duplicate,
    /// A member's folder is a file in the same archive.
    #[error("its name stands below a member that is a file")]
    BelowFile,
}

/// A problem before the archive's name is known.
#[derive(Debug)]
pub(super) struct Fault {
    pub member: Option<String>,
    pub offset: u64,
    pub problem: Problem,
}

impl Fault {
    pub(super) fn at(self, member: &Member) -> Self {
        Self {
            member: Some(member.name.clone()),
            ..self
        }
    }

    pub(super) fn of(self, archive: &str) -> ZipError {
        ZipError {
            archive: archive.to_owned(),
            member: self.member,
            offset: self.offset,
            problem: self.problem,
        }
    }
}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        Self {
            member: None,
            offset: error.offset(),
            problem: error.into(),
        }
    }
}

/// A problem at an offset of the archive.
pub(super) fn fault(offset: u64, problem: Problem) -> Fault {
    Fault {
        member: None,
        offset,
        problem,
    }
}
