//! Describes a machine: processors, memory, GPUs, driver, CUDA toolkits, container configuration.
//!
//! In: the root directory of a machine ([`Device::read`]), or this machine itself ([`Device::here`]), for
//! which NVML and programs on PATH are asked too. Out: [`Device`], facts without a judgement: other modules
//! know the catalog's names and what fits. Never fails: a fact that is missing, unreadable or odd is `None`.
//! Reads no UUID, serial number or host name.

pub mod containers;
pub mod convert;
mod disk;
pub mod doctor;
mod driver;
mod machine;
mod nvml;
mod processor;
pub mod program;
pub mod starter;
mod system;
mod tegra;
mod toolkit;

use serde::Serialize;
use stackforge_types::Platform;
use stackforge_types::root::Root;
use std::path::Path;

pub use containers::Containers;
pub use disk::free;
pub use driver::{Driver, Gpu};
pub use machine::Identified;
pub use nvml::NvmlFault;
pub use processor::{Cpu, Memory};
pub use system::{System, libc_version};
pub use tegra::Board;
pub use toolkit::{Toolkit, Torch};

#[derive(Debug, Clone, Serialize)]
pub struct Device {
    pub platform: Option<Platform>,
    pub system: System,
    pub board: Option<Board>,
    /// L4T release of a Jetson: `36.4.3`.
    pub l4t: Option<String>,
    pub cpu: Cpu,
    pub memory: Memory,
    /// GPUs that the driver reports; empty on a Jetson whose driver has no NVML.
    pub gpus: Vec<Gpu>,
    /// NVIDIA's display controllers on the PCI bus, with or without a driver: `10de:2330`.
    pub pci: Vec<String>,
    pub driver: Option<Driver>,
    /// Why NVML, though installed, returned nothing.
    #[serde(serialize_with = "fault")]
    pub nvml: Option<NvmlFault>,
    pub toolkits: Vec<Toolkit>,
    pub torches: Vec<Torch>,
    pub containers: Containers,
}

fn fault<S: serde::Serializer>(fault: &Option<NvmlFault>, s: S) -> Result<S::Ok, S::Error> {
    match fault {
        Some(fault) => s.collect_str(fault),
        None => s.serialize_none(),
    }
}

impl Device {
    /// Reads the machine whose root file system is at `directory`, from its files alone.
    pub fn read(directory: &Path) -> Self {
        let root = Root::new(directory);
        let (cpu, platform) = root
            .text("/proc/cpuinfo")
            .map(|t| processor::cpuinfo(&t))
            .unwrap_or_default();
        Self {
            platform: platform.or_else(|| system::platform(&root)),
            system: system::read(&root),
            board: tegra::board(&root),
            l4t: root
                .text("/etc/nv_tegra_release")
                .and_then(|t| tegra::l4t(&t)),
            cpu,
            memory: root
                .text("/proc/meminfo")
                .map(|t| processor::meminfo(&t))
                .unwrap_or_default(),
            gpus: driver::gpus(&root),
            pci: driver::pci(&root),
            driver: driver::read(&root),
            nvml: None,
            toolkits: toolkit::installed(&root),
            torches: toolkit::torches(&root),
            containers: containers::read(&root),
        }
    }

    /// Whether programs can use a GPU of NVIDIA's here: the driver reports one, or the device is a Jetson.
    pub fn has_gpu(&self) -> bool {
        let driven = self.driver.as_ref().is_some_and(|d| d.module.is_some());
        !self.gpus.is_empty() || driven || self.is_jetson()
    }

    /// Whether the GPU is part of a Jetson's module.
    pub fn is_jetson(&self) -> bool {
        let tegra = |board: &Board| {
            board
                .compatible
                .iter()
                .any(|c| c.starts_with("nvidia,tegra"))
        };
        self.l4t.is_some() || self.board.as_ref().is_some_and(tegra)
    }

    /// Returns the memory of this machine in bytes.
    pub fn memory_here() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        processor::meminfo(&text).total
    }

    /// Reads this machine.
    pub fn here() -> Self {
        let mut device = Self {
            platform: Platform::of_processor(),
            toolkits: toolkit::here(),
            torches: toolkit::torches_here(),
            ..Self::read(Path::new("/"))
        };
        if cfg!(not(target_os = "linux")) {
            device.system.name = Some(std::env::consts::OS.to_owned());
        }
        match nvml::look() {
            Ok(Some(found)) => {
                let driver = device.driver.get_or_insert_default();
                driver.cuda = found.cuda;
                driver.library = driver.library.take().or(found.driver);
                if !found.gpus.is_empty() {
                    device.gpus = found.gpus;
                }
            }
            Ok(None) => {}
            Err(fault) => device.nvml = Some(fault),
        }
        device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_nonsense_is_a_machine_of_which_nothing_is_known() {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            "proc/cpuinfo",
            "proc/meminfo",
            "proc/driver/nvidia/version",
            "etc/nv_tegra_release",
            "etc/os-release",
            "etc/cdi/nvidia.yaml",
            "etc/docker/daemon.json",
            "usr/local/cuda-13.0/version.json",
            "sys/bus/pci/devices/0000:00:00.0/vendor",
            "lib/x86_64-linux-gnu/libc.so.6",
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let noise: Vec<u8> = (0..100_000u32)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
                .collect();
            std::fs::write(path, noise).unwrap();
        }
        let device = Device::read(dir.path());
        assert_eq!(device.platform, None);
        assert_eq!(device.driver, None);
        assert_eq!(device.l4t, None);
        assert!(device.gpus.is_empty() && device.pci.is_empty());
        assert!(device.containers.cdi.is_empty());
    }

    #[test]
    fn this_machine_has_a_platform_processors_and_memory() {
        let device = Device::here();
        assert!(device.platform.is_some());
        assert!(device.cpu.count > 0 && device.memory.total.is_some());
        assert!(device.system.libc.is_some());
    }
}
