//! Compute capabilities: which device code runs on which GPU, and which CUDA a driver supports.
//!
//! In: SMs of device code and of a device; versions of drivers. Out: [`Coverage`], [`Support`]. These are
//! NVIDIA's rules alone: nothing here knows a stack, a catalog or a machine.

mod code;
mod driver;

pub use code::{Coverage, aligned, coverage, is_tegra, ptx_runs, same, sass_runs};
pub use driver::{DriverVersion, Support};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
