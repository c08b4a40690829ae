//! What can be wrong with a zip archive, where in it and with which member.

use std::fmt;

use super::member::Member;
use crate::source::ReadError;

#[derive(Debug)]
pub struct ZipError {
    pub archive: String,
    pub member: Option<String>,
    pub offset: u64,
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

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("it is no zip archive, or it is cut short")]
    NoEnd,
    #[error("two records claim to be the end of its directory")]
    TwoEnds,
    #[error("it is one of several volumes")]
    Volumes,
    #[error("its directory does not end where the record of its end begins")]
    Directory,
    #[error("its directory holds {found} members in place of {expected}")]
    Count { expected: u64, found: u64 },
    #[error("its zip64 records are missing or contradict the others")]
    Zip64,
    #[error("this is no entry of a directory")]
    Entry,
    #[error("its local header differs from the directory in its {0}")]
    Local(&'static str),
    #[error("it is encrypted")]
    Encrypted,
    #[error("its sizes follow its content, so it cannot be read as it passes")]
    Streamed,
    #[error("its method {0} is neither stored nor deflate")]
    Method(u16),
    #[error("it cannot hold {size} bytes in {compressed}")]
    Sizes { size: u64, compressed: u64 },
    #[error("it overlaps what follows")]
    Overlap,
    #[error("its name is {0}")]
    Name(&'static str),
    #[error("its name is that of another member")]
    Duplicate,
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
    pub fn at(self, member: &Member) -> Self {
        Self {
            member: Some(member.name.clone()),
            ..self
        }
    }

    pub fn of(self, archive: &str) -> ZipError {
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
