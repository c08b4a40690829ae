//! Errors in byte code files, and their position.

/// A byte code file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("byte code, offset {offset:#x}: {problem}")]
pub struct PycError {
    /// Offset of the problem in the file, in bytes.
    pub offset: usize,
    /// The problem at this offset.
    #[source]
    pub problem: Problem,
}

/// A problem of a byte code file. Each text completes "byte code, offset N: …".
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file is larger than [`MOST_BYTES`](super::MOST_BYTES).
    #[error("the file is too large")]
    Large,
    /// The magic number is not that of a release of CPython 3.9 to 3.14.
    #[error("the magic number is of no known Python")]
    Magic,
    /// The file is not hash-based (PEP 552).
    #[error("the flags are not those of a hash-based file")]
    Flags,
    /// The file ends inside an object.
    #[error("the file ends too early")]
    Short,
    /// Bytes follow the code object.
    #[error("there are bytes after the code")]
    Rest,
    /// A type that the compiler does not write here.
    #[error("an object of type {0:#04x} is not expected here")]
    Type(u8),
    /// A length or a digit is out of its range.
    #[error("the number {0} is out of range")]
    Number(i64),
    /// A reference to an object that is not there or not finished.
    #[error("the reference {0} leads to no finished object")]
    Reference(u32),
    /// Objects are nested too deeply.
    #[error("objects are nested too deeply")]
    Deep,
    /// There are too many objects, or sorting sets takes too long.
    #[error("there are too many objects")]
    Many,
}
