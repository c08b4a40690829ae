//! Errors in an ELF object, and their position.

use crate::source::{Located, ReadError};

/// An object that ELF or the loader does not allow.
#[derive(Debug, thiserror::Error)]
#[error("object `{object}`, offset {offset:#x}: {problem}")]
pub struct ElfError {
    /// The name that the caller gave the object.
    pub object: String,
    /// Offset of the problem in the object, in bytes.
    pub offset: u64,
    /// The problem at this offset.
    #[source]
    pub problem: Problem,
}

/// A problem of an object. Each text completes "object `NAME`, offset `N`: …".
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The bytes could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The first four bytes are not [`MAGIC`](super::MAGIC).
    #[error("it is not an ELF object")]
    Magic,
    /// The object is 32-bit, big-endian, or of another ELF version.
    #[error("it is not a 64-bit little-endian object of ELF version 1")]
    Class,
    /// A table's entries do not have the size that the format gives them.
    #[error("its {table} has entries of {found} bytes in place of {expected}")]
    EntrySize {
        /// Name of the table.
        table: &'static str,
        /// Bytes of an entry according to the header.
        found: u64,
        /// Bytes of an entry according to the format.
        expected: u64,
    },
    /// A table or section reaches past the end of the object.
    #[error("its {0} lies outside of the object")]
    Outside(&'static str),
    /// A table has more bytes than the limit that keeps memory small.
    #[error("its {what} is larger than the {limit} bytes that real objects stay below")]
    TooLarge {
        /// Name of the table.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
    },
    /// There are more entries than the limit that keeps memory small.
    #[error("it has more than the {limit} {what} that real objects stay below")]
    TooMany {
        /// The kind of entries.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The address of a table, which is the second field, is not in a loaded segment.
    #[error("its {0} is said to lie at {1:#x}, which no loaded segment covers")]
    Unmapped(&'static str, u64),
    /// A table that another one refers to is missing.
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
    /// Two requested sections overlap.
    #[error("its section `{0}` overlaps the one before")]
    Overlap(String),
}

/// A problem without the object's name.
pub(super) type Fault = Located<Problem>;

impl Fault {
    pub(super) fn in_object(self, object: &str) -> ElfError {
        ElfError {
            object: object.to_owned(),
            offset: self.offset,
            problem: self.problem,
        }
    }
}

pub(super) fn too_many<T>(what: &'static str, limit: u64, offset: u64) -> Result<T, Fault> {
    Fault::err(offset, Problem::TooMany { what, limit })
}
