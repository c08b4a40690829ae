//! Reads NVIDIA's driver and its GPUs from files.
//!
//! /proc/driver/nvidia exists while the kernel module is loaded; the module's own library has the version in
//! its file name; the PCI bus also shows GPUs without a driver.

use serde::Serialize;
use stackforge_types::root::{Root, clean, leading_version};
use stackforge_types::{Platform, Sm};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Driver {
    /// Version of the loaded kernel module.
    pub module: Option<String>,
    /// Version of libcuda.so, which programs load. It has to be the module's.
    pub library: Option<String>,
    /// Newest CUDA version that the driver supports, from NVML.
    pub cuda: Option<String>,
    /// Whether the kernel module is the open one.
    pub open: Option<bool>,
}

impl Driver {
    pub fn version(&self) -> Option<&str> {
        self.module.as_deref().or(self.library.as_deref())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gpu {
    pub name: String,
    pub sm: Option<Sm>,
    /// GPU memory in bytes.
    pub memory: Option<u64>,
    /// Names of the GPU's MIG devices. `None` if MIG is off or unknown.
    pub mig: Option<Vec<String>>,
}

pub fn read(root: &Root) -> Option<Driver> {
    let module = root
        .text("/proc/driver/nvidia/version")
        .and_then(|t| module(&t));
    let driver = Driver {
        open: module.as_ref().map(|(_, open)| *open),
        module: module.map(|(version, _)| version),
        library: library(root),
        cuda: None,
    };
    (driver != Driver::default()).then_some(driver)
}

/// Reads the version of the loaded module, and whether it is the open one, from the line `NVRM version: …`.
pub fn module(text: &str) -> Option<(String, bool)> {
    let line = text.lines().find_map(|l| l.strip_prefix("NVRM version:"))?;
    let version = line.split_whitespace().find_map(driver_version)?;
    Some((version, line.contains("Open Kernel Module")))
}

/// Parses a driver's version. It begins with three digits, unlike a SONAME's in `libcuda.so.1.1`.
fn driver_version(word: &str) -> Option<String> {
    leading_version(word).filter(|v| v.len() == word.len() && v.find('.') == Some(3))
}

fn library(root: &Root) -> Option<String> {
    let arch = Platform::ALL.map(|p| format!("/usr/lib/{}-linux-gnu", p.machine()));
    let directories = arch
        .iter()
        .flat_map(|d| [d.clone(), format!("{d}/nvidia")])
        .chain(["/usr/lib64".to_owned(), "/usr/lib".to_owned()]);
    directories
        .flat_map(|d| root.list(&d))
        .find_map(|name| driver_version(name.strip_prefix("libcuda.so.")?))
}

/// Returns the GPUs of the loaded driver, with the driver's names.
pub fn gpus(root: &Root) -> Vec<Gpu> {
    let folder = "/proc/driver/nvidia/gpus";
    root.list(folder)
        .into_iter()
        .filter_map(|at| root.text(&format!("{folder}/{at}/information")))
        .filter_map(|text| model(&text))
        .map(|name| Gpu {
            name,
            sm: None,
            memory: None,
            mig: None,
        })
        .collect()
}

pub fn model(information: &str) -> Option<String> {
    let line = information.lines().find_map(|l| l.strip_prefix("Model:"))?;
    Some(clean(line)).filter(|m| !m.is_empty())
}

/// Returns NVIDIA's display controllers on the PCI bus, as `10de:2330`.
pub fn pci(root: &Root) -> Vec<String> {
    let folder = "/sys/bus/pci/devices";
    root.list(folder)
        .into_iter()
        .filter_map(|at| {
            let number = |name: &str| hex(&root.value(&format!("{folder}/{at}/{name}"))?);
            let is_gpu = number("vendor")? == 0x10de && number("class")? >> 16 == 0x03;
            let device = number("device")?;
            is_gpu.then(|| format!("10de:{device:04x}"))
        })
        .collect()
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_kinds_of_module_say_their_version() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22)  Sun Jul 27 06:54:38 UTC 2025\nGCC version:  gcc version 12.2.0\n";
        assert_eq!(module(open), Some(("580.65.06".into(), true)));
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n";
        assert_eq!(module(closed), Some(("535.183.01".into(), false)));
        assert_eq!(module("NVRM version: 1.1"), None);
        assert_eq!(driver_version("1.1"), None, "a soname of L4T");
    }

    #[test]
    fn a_gpu_says_its_model() {
        let text = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 255\nGPU UUID: \t GPU-0\n";
        assert_eq!(model(text).as_deref(), Some("NVIDIA H100 80GB HBM3"));
    }

    proptest! {
        #[test]
        fn parsers_never_panic(s in "(?s).*") {
            let _ = module(&s);
            let _ = module(&format!("NVRM version:{s}"));
            let _ = model(&format!("Model:{s}"));
            let _ = hex(&s);
            let _ = hex(&format!("0x{s}"));
        }
    }
}
