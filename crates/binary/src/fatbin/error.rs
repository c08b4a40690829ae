//! What can be wrong with device code, and where in its object.

use crate::source::ReadError;

/// Device code that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("device code of `{object}`, offset {offset:#x}: {problem}")]
pub struct FatbinError {
    /// The name that the caller gave the object.
    pub object: String,
    /// Where in the object the problem was seen, in bytes.
    pub offset: u64,
    /// What is wrong there.
    #[source]
    pub problem: Problem,
}

/// What can be wrong with device code. Each text completes "device code of `NAME`, offset `N`: …".
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The bytes could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A container begins with other bytes than the format's.
    #[error("these bytes are neither a fatbin nor padding")]
    Magic,
    /// A container of a version that has not been seen, or with a header of another size.
    #[error("a container of version {version} with a header of {len} bytes is not known")]
    Container {
        /// As the header says; 1 is known.
        version: u16,
        /// Bytes of the header; 16 are known.
        len: u16,
    },
    /// An entry of a version that has not been seen, or with a header that is too short.
    #[error("an entry of version {version:#x} with a header of {len} bytes is not known")]
    Entry {
        /// As the header says; 0x101 is known.
        version: u16,
        /// Bytes of the header; 64 at least are known.
        len: u32,
    },
    /// A part does not end where what holds it ends, or before.
    #[error("the {0} does not end where what holds it does, or before")]
    Outside(&'static str),
    /// The length of compressed code contradicts the flags or the stored length.
    #[error("the compressed length {compressed} does not fit the entry's {stored} bytes")]
    Compressed {
        /// Bytes of compressed code, as the header says.
        compressed: u64,
        /// Bytes of code and padding in the object.
        stored: u64,
    },
    /// Two flags that exclude each other are set.
    #[error("the flags {0:#x} contradict each other")]
    Flags(u64),
    /// The number of an SM is not one, such as 90 for 9.0.
    #[error("{0} is no SM")]
    Sm(u32),
    /// The cubin's `EI_ABIVERSION` is not one that says where its SM is.
    #[error("a cubin of ABI version {0} is not known")]
    Abi(u8),
    /// The section has no valid SM.
    #[error("the section `.nv.compat` of a cubin is malformed")]
    Compat,
}

/// A problem before the object's name is known.
#[derive(Debug)]
pub(super) struct Fault {
    pub offset: u64,
    pub problem: Problem,
}

impl Fault {
    pub(super) fn of(self, object: &str) -> FatbinError {
        FatbinError {
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
