//! Systems other than Linux, on which no image uses a GPU.

use super::{NvmlFault, NvmlResult};

/// Returns `None`, as on a Linux without NVIDIA's driver.
pub fn look() -> Result<Option<NvmlResult>, NvmlFault> {
    Ok(None)
}
