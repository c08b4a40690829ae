//! Systems whose file systems do not keep what a layer has: nothing is unpacked.

use std::io::Read;
use std::path::Path;

use super::{Owner, UnpackError, Unpacked};

/// Fails where nothing can be unpacked, whatever it is.
///
/// # Errors
/// [`UnpackError::NotLinux`].
pub fn supported() -> Result<(), UnpackError> {
    Err(UnpackError::NotLinux)
}

/// Unpacks nothing.
///
/// # Errors
/// [`UnpackError::NotLinux`].
pub fn unpack(_: impl Read, _: &Path, _: Owner) -> Result<Unpacked, UnpackError> {
    supported().map(|()| Unpacked::default())
}

/// Unpacks nothing.
///
/// # Errors
/// [`UnpackError::NotLinux`].
pub fn over(_: impl Read, _: &Path, _: Owner) -> Result<Unpacked, UnpackError> {
    supported().map(|()| Unpacked::default())
}
