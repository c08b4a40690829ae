//! What can be wrong with an ELF object, and where in it.

use crate::source::ReadError;

/// An object that is not what ELF or the loader allow.
#[derive(Debug, thiserror::Error)]
#[error("object `{object}`, offset {offset:#x}: {problem}")]
pub struct ElfError {
    /// The name that the caller gave the object.
    pub object: String,
    /// Where in the object the problem was seen, in bytes.
    pub offset: u64,
    /// What is wrong there.
    #[source]
    pub problem: Problem,
}

/// What can be wrong with an object. Each text completes "object `NAME`, offset `N`: …".
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The bytes could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The first four bytes are not [`MAGIC`](super::MAGIC).
    #[error("it is no ELF object")]
    Magic,
    /// It is a 32-bit or a big-endian object, or of another ELF version.
    #[error("it is not a 64-bit little-endian object of ELF version 1")]
    Class,
    /// A table's entries do not have the size that the format gives them.
    #[error("its {table} has entries of {found} bytes in place of {expected}")]
    EntrySize {
        /// Which table.
        table: &'static str,
        /// Bytes of an entry, as the header says.
        found: u64,
        /// Bytes of an entry, as the format says.
        expected: u64,
    },
    /// A table or section reaches past the end of the object.
    #[error("its {0} lies outside of the object")]
    Outside(&'static str),
    /// A table has more bytes than the bound that keeps memory small.
    #[error("its {what} is larger than the {limit} bytes that real objects stay below")]
    TooLarge {
        /// Which table.
        what: &'static str,
        /// The bound, in bytes.
        limit: u64,
    },
    /// There are more entries than the bound that keeps memory small.
    #[error("it has more than the {limit} {what} that real objects stay below")]
    TooMany {
        /// Entries of what.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// A table's address, the second field, is in no segment that is loaded.
    #[error("its {0} is said to lie at {1:#x}, which no loaded segment covers")]
    Unmapped(&'static str, u64),
    /// A table that others refer to is not there.
    #[error("its {0} is missing")]
    Missing(&'static str),
    /// A chain of entries does not end.
    #[error("its {0} names itself or is longer than its bytes")]
    Cyclic(&'static str),
    /// A string has no zero byte before the end of its table.
    #[error("a name in its {0} does not end within it")]
    Unterminated(&'static str),
    /// A string is not UTF-8.
    #[error("a name in its {0} is not UTF-8")]
    Encoding(&'static str),
    /// Two sections that were asked for share bytes.
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
    pub(super) fn of(self, object: &str) -> ElfError {
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
