//! Errors in device code, and their position in the object.

use crate::source::{Located, ReadError};

/// Device code that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("device code of `{object}`, offset {offset:#x}: {problem}")]
pub struct FatbinError {
    /// The name that the caller gave the object.
    pub object: String,
    /// Offset of the problem in the object, in bytes.
    pub offset: u64,
    /// The problem at this offset.
    #[source]
    pub problem: Problem,
}

/// A problem of device code. Each text completes "device code of `NAME`, offset `N`: …".
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The bytes could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A container does not begin with the format's magic.
    #[error("these bytes are neither a fatbin nor padding")]
    Magic,
    /// A container has an unknown version, or a header of another size.
    #[error("a container of version {version} with a header of {len} bytes is not known")]
    Container {
        /// Version in the header; 1 is known.
        version: u16,
        /// Size of the header in bytes; 16 is known.
        len: u16,
    },
    /// An entry has an unknown version, or a header that is too short.
    #[error("an entry of version {version:#x} with a header of {len} bytes is not known")]
    Entry {
        /// Version in the header; 0x101 is known.
        version: u16,
        /// Size of the header in bytes; at least 64 is known.
        len: u32,
    },
    /// A part reaches past the end of what contains it.
    #[error("the {0} does not end where what holds it does, or before")]
    Outside(&'static str),
    /// The length of compressed code contradicts the flags or the stored length.
    #[error("the compressed length {compressed} does not fit the entry's {stored} bytes")]
    Compressed {
        /// Bytes of compressed code according to the header.
        compressed: u64,
        /// Bytes of code and padding in the object.
        stored: u64,
    },
    /// Two flags that exclude each other are set.
    #[error("the flags {0:#x} contradict each other")]
    Flags(u64),
    /// The number does not name an SM, as 90 does for 9.0.
    #[error("{0} is not an SM")]
    Sm(u32),
    /// The cubin's `EI_ABIVERSION` is unknown, so the position of its SM is too.
    #[error("a cubin of ABI version {0} is not known")]
    Abi(u8),
    /// The section `.nv.compat` is malformed.
    #[error("the section `.nv.compat` of a cubin is malformed")]
    Compat,
}

/// A problem without the object's name.
pub(super) type Fault = Located<Problem>;

impl Fault {
    pub(super) fn in_object(self, object: &str) -> FatbinError {
        FatbinError {
            object: object.to_owned(),
            offset: self.offset,
            problem: self.problem,
        }
    }
}
