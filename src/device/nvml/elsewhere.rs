//! Systems that have no driver of NVIDIA's for images.

use super::{NvmlFault, NvmlResult};

/// Returns `None`: there is no library.
pub fn look() -> Result<Option<NvmlResult>, NvmlFault> {
    Ok(None)
}
