//! NVML of the driver for Linux. The library is loaded at run time, if it exists.

use super::{NvmlFault, NvmlResult};
use crate::driver::Gpu;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use stackforge_types::Sm;
use stackforge_types::root::clean;

/// Returns GPUs and driver. `None` on a machine without the library.
pub fn look() -> Result<Option<NvmlResult>, NvmlFault> {
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        Err(NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound) => return Ok(None),
        Err(NvmlError::LibRmVersionMismatch) => return Err(NvmlFault::Mismatch),
        Err(NvmlError::DriverNotLoaded) => return Err(NvmlFault::NotLoaded),
        Err(other) => return Err(NvmlFault::Other(clean(&other.to_string()))),
    };
    let cuda = nvml.sys_cuda_driver_version().ok().map(|v| {
        let (major, minor) = (cuda_driver_version_major(v), cuda_driver_version_minor(v));
        format!("{major}.{minor}")
    });
    let count = nvml.device_count().unwrap_or_default();
    Ok(Some(NvmlResult {
        driver: nvml.sys_driver_version().ok().map(|v| clean(&v)),
        cuda,
        gpus: (0..count)
            .filter_map(|i| nvml.device_by_index(i).ok())
            .filter_map(|d| gpu(&d))
            .collect(),
    }))
}

/// Reads one GPU. An integrated GPU answers some of these questions with "not supported".
fn gpu(device: &nvml_wrapper::Device<'_>) -> Option<Gpu> {
    let sm = device.cuda_compute_capability().ok().and_then(|c| {
        Some(Sm::new(
            u8::try_from(c.major).ok()?,
            u8::try_from(c.minor).ok()?,
        ))
    });
    Some(Gpu {
        name: clean(&device.name().ok()?),
        sm,
        memory: device.memory_info().ok().map(|m| m.total),
        mig: mig(device),
    })
}

fn mig(device: &nvml_wrapper::Device<'_>) -> Option<Vec<String>> {
    let on = device.mig_mode().is_ok_and(|m| m.current == 1);
    on.then(|| {
        let most = device.mig_device_count().unwrap_or_default();
        (0..most)
            .filter_map(|i| device.mig_device_by_index(i).ok()?.name().ok())
            .map(|name| clean(&name))
            .collect()
    })
}
