//! Asks the driver itself, through NVML. Only on Linux do images use a driver of NVIDIA's.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

use super::driver::Gpu;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::look;
#[cfg(target_os = "linux")]
pub use linux::look;

/// The result of asking NVML once.
#[derive(Debug, Default)]
pub struct NvmlResult {
    pub driver: Option<String>,
    pub cuda: Option<String>,
    pub gpus: Vec<Gpu>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvmlFault {
    #[error("the driver's library does not match the loaded kernel module")]
    Mismatch,
    #[error("the driver's kernel module is not loaded")]
    NotLoaded,
    #[error("NVML fails: {0}")]
    Other(String),
}
