//! A problem at an offset: what a reader returns before its caller names the source.

use super::error::ReadError;

/// A problem and where it is. Readers name what they read only once, so their errors are made of this.
#[derive(Debug)]
pub struct Located<P> {
    /// Offset in the source, in bytes.
    pub offset: u64,
    /// The problem at this offset.
    pub problem: P,
}

impl<P> Located<P> {
    /// Returns the problem at `offset` as an `Err`.
    ///
    /// # Errors
    /// Always.
    pub fn err<T>(offset: u64, problem: P) -> Result<T, Self> {
        Err(Self { offset, problem })
    }
}

impl<P: From<ReadError>> From<ReadError> for Located<P> {
    fn from(error: ReadError) -> Self {
        Self {
            offset: error.offset(),
            problem: error.into(),
        }
    }
}
