//! What can be wrong with an ELF object, and where in it.

use crate::source::ReadError;

#[derive(Debug, thiserror::Error)]
#[error("object `{object}`, offset {offset:#x}: {problem}")]
pub struct ElfError {
    pub object: String,
    pub offset: u64,
    #[source]
    pub problem: Problem,
}

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("it is no ELF object")]
    Magic,
    #[error("it is not a 64-bit little-endian object of ELF version 1")]
    Class,
    #[error("its {table} has entries of {found} bytes in place of {expected}")]
    EntrySize {
        table: &'static str,
        found: u64,
        expected: u64,
    },
    #[error("its {0} lies outside of the object")]
    Outside(&'static str),
    #[error("its {what} is larger than the {limit} bytes that real objects stay below")]
    TooLarge { what: &'static str, limit: u64 },
    #[error("it has more than the {limit} {what} that real objects stay below")]
    TooMany { what: &'static str, limit: u64 },
    #[error("its {0} is said to lie at {1:#x}, which no loaded segment covers")]
    Unmapped(&'static str, u64),
    #[error("its {0} is missing")]
    Missing(&'static str),
    #[error("its {0} names itself or is longer than its bytes")]
    Cyclic(&'static str),
    #[error("a name in its {0} does not end within it")]
    Unterminated(&'static str),
    #[error("a name in its {0} is not UTF-8")]
    Encoding(&'static str),
    #[error("its section `{0}` overlaps the one before")]
    Overlap(String),
}

/// A problem before the object's name is known.
#[derive(Debug)]
pub(super) struct Fault {
    pub offset: u64,
    pub problem: Problem,
}

impl Fault {
    pub fn of(self, object: &str) -> ElfError {
        ElfError {
            object: object.to_owned(),
            offset: self.offset,
            problem: self.problem,
        }
    }
}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        Self {
            offset: error.offset(),
            problem: error.into(),
        }
    }
}

/// `Err` of a problem at an offset.
pub(super) fn fault<T>(offset: u64, problem: Problem) -> Result<T, Fault> {
    Err(Fault { offset, problem })
}

pub(super) fn too_many<T>(what: &'static str, limit: u64, offset: u64) -> Result<T, Fault> {
    fault(offset, Problem::TooMany { what, limit })
}
