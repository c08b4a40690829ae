//! Describes a [`Device`] in the catalog's terms: its GPUs, its instruction sets, its CUDA.

use crate::Device;
use serde::Serialize;
use stackforge_stack::catalog::{Catalog, Gpu, Isa, JetsonRelease, Toolkit, numbers};
use stackforge_types::Sm;

/// A GPU of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identified {
    /// Name from the driver or the board.
    pub name: String,
    /// The catalog's name, if it has the product.
    pub gpu: Option<String>,
    pub sm: Option<Sm>,
    /// Memory in bytes.
    pub memory: Option<u64>,
    pub mig: Option<Vec<String>>,
}

impl Identified {
    /// Returns the GPU's name in a stack's `gpu`: the product, else its SM.
    pub fn target(&self) -> Option<String> {
        let sm = || self.sm.map(|sm| format!("sm_{}", sm.digits()));
        self.gpu.clone().or_else(sm)
    }
}

impl Device {
    /// Returns the device's GPUs: those of the driver, else those of a Jetson's board.
    pub fn identified(&self, catalog: &Catalog) -> Vec<Identified> {
        let board = self.board.as_ref().and_then(|board| {
            let known = |c: &String| catalog.gpus.iter().find(|g| g.compatible.contains(c));
            Some((board, board.compatible.iter().find_map(known)?))
        });
        if self.gpus.is_empty() {
            let own = board.map(|(board, gpu)| Identified {
                name: board.model.clone().unwrap_or_else(|| gpu.about.clone()),
                gpu: Some(gpu.name.clone()),
                sm: Some(gpu.sm),
                memory: self.memory.total,
                mig: None,
            });
            return own.into_iter().collect();
        }
        let identified = self.gpus.iter().map(|gpu| {
            let by_name = gpu_by_driver_name(catalog, &gpu.name);
            let by_board = board.map(|(_, gpu)| gpu);
            // For a board's own GPU the device tree is more exact than the driver.
            let known = match (by_name, by_board) {
                (Some(a), Some(b)) if a.sm == b.sm => Some(b),
                (Some(a), _) => Some(a),
                (None, b) => b,
            };
            // The hardware's answer wins over what its name suggests.
            let known = known.filter(|g| gpu.sm.is_none_or(|sm| sm == g.sm));
            Identified {
                name: gpu.name.clone(),
                gpu: known.map(|g| g.name.clone()),
                sm: gpu.sm.or(known.map(|g| g.sm)),
                memory: gpu.memory,
                mig: gpu.mig.clone(),
            }
        });
        identified.collect()
    }

    /// Returns the instruction sets that the device's processors have.
    pub fn isas<'a>(&self, catalog: &'a Catalog) -> Vec<&'a Isa> {
        catalog
            .isas
            .iter()
            .filter(|isa| Some(isa.platform) == self.platform)
            .filter(|isa| !isa.cpuinfo.is_empty())
            .filter(|isa| isa.cpuinfo.iter().all(|f| self.cpu.flags.contains(f)))
            .collect()
    }

    /// Returns the Jetson release that the device runs.
    pub fn jetson<'a>(&self, catalog: &'a Catalog) -> Option<&'a JetsonRelease> {
        catalog.jetson_release(self.l4t.as_deref()?)
    }

    /// Returns the newest CUDA version that the device's driver was made for: from NVML, else by its version.
    pub fn driver_cuda(&self, catalog: &Catalog) -> Option<String> {
        let driver = self.driver.as_ref();
        if let Some(cuda) = driver.and_then(|d| d.cuda.clone()) {
            return Some(cuda);
        }
        if self.l4t.is_some() {
            return self.jetson(catalog)?.cuda.last().cloned();
        }
        let version = numbers(driver?.version()?);
        let made_for = |t: &&Toolkit| {
            let floor = t.driver.toolkit.as_deref().map(numbers);
            floor.is_some_and(|floor| floor <= version)
        };
        let newest = catalog.toolkits.iter().filter(made_for);
        newest
            .max_by_key(|t| numbers(&t.version))
            .map(|t| t.version.clone())
    }
}

/// Returns the product whose name is the longest prefix of the driver's name.
fn gpu_by_driver_name<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a Gpu> {
    let begins = |own: &str| {
        name.strip_prefix(own)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
    };
    catalog
        .gpus
        .iter()
        .flat_map(|gpu| gpu.nvml.iter().map(move |own| (own, gpu)))
        .filter(|(own, _)| begins(own))
        .max_by_key(|(own, _)| own.len())
        .map(|(_, gpu)| gpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_s_name_means_the_product_that_it_begins_with() {
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let name = |n: &str| gpu_by_driver_name(&catalog, n).map(|g| g.name.as_str());
        assert_eq!(name("NVIDIA H100 80GB HBM3"), Some("h100"));
        assert_eq!(name("NVIDIA A100-SXM4-80GB"), Some("a100"));
        assert_eq!(name("NVIDIA A10G"), Some("a10"));
        assert_eq!(name("NVIDIA L40S"), Some("l40s"));
        assert_eq!(name("NVIDIA L4"), Some("l4"));
        assert_eq!(name("NVIDIA GH200 480GB"), Some("gh200"));
        assert_eq!(name("NVIDIA GeForce RTX 4090 Laptop GPU"), Some("rtx4090"));
        assert_eq!(name("NVIDIA GB10"), Some("gb10"));
        assert_eq!(name("NVIDIA H1000"), None);
        assert_eq!(name(""), None);
    }
}
