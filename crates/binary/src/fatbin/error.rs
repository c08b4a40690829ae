//! What can be wrong with device code, and where in its object.

use crate::source::ReadError;

#[derive(Debug, thiserror::Error)]
#[error("device code of `{object}`, offset {offset:#x}: {problem}")]
pub struct FatbinError {
    pub object: String,
    pub offset: u64,
    #[source]
    pub problem: Problem,
}

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("these bytes are neither a fatbin nor padding")]
    Magic,
    #[error("a container of version {version} with a header of {len} bytes is not known")]
    Container { version: u16, len: u16 },
    #[error("an entry of version {version:#x} with a header of {len} bytes is not known")]
    Entry { version: u16, len: u32 },
    #[error("the {0} does not end where what holds it does, or before")]
    Outside(&'static str),
    #[error("the compressed length {compressed} does not fit the entry's {stored} bytes")]
    Compressed { compressed: u64, stored: u64 },
    #[error("the flags {0:#x} contradict each other")]
    Flags(u64),
    #[error("{0} is no SM")]
    Sm(u32),
    #[error("a cubin of ABI version {0} is not known")]
    Abi(u8),
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
    pub fn of(self, object: &str) -> FatbinError {
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
