//! Describes a device by the facts that variants are chosen by.

use super::choose::Machine;
use stackforge_device::Device;
use stackforge_stack::catalog::Catalog;
use stackforge_types::Sm;

impl Machine {
    /// Derives the facts from what was read of a device.
    pub fn of(device: &Device, catalog: &Catalog) -> Self {
        let gpus = device.identified(catalog);
        let known: Vec<Sm> = gpus.iter().filter_map(|gpu| gpu.sm).collect();
        let driver = device.driver.as_ref().and_then(|d| d.version());
        let mut isas = device.isas(catalog);
        // An instruction set that requires more CPU flags is the more advanced one.
        isas.sort_by_key(|isa| isa.cpuinfo.len());
        let release = device.jetson(catalog);
        let driver = driver
            .or_else(|| release.and_then(|r| r.driver.as_deref()))
            .and_then(|version| version.parse().ok());
        Self {
            platform: device.platform,
            unknown_gpus: gpus.len() - known.len(),
            gpus: known,
            no_driver: driver.is_none() && device.l4t.is_none(),
            driver,
            l4t: device.l4t.clone(),
            l4t_cuda: release.map_or(Vec::new(), |r| r.cuda.clone()),
            l4t_runs_server: release.is_some_and(|release| {
                let own = |name: &String| catalog.images.get(name);
                release
                    .bases
                    .iter()
                    .filter_map(own)
                    .any(|i| i.l4t.is_none())
            }),
            isas: (!device.cpu.flags.is_empty())
                .then(|| isas.iter().map(|isa| isa.name.to_string()).collect()),
        }
    }

    /// Returns the same machine with another GPU and an unknown driver.
    pub fn with_gpu(self, sm: Sm) -> Self {
        Self {
            gpus: vec![sm],
            unknown_gpus: 0,
            no_driver: false,
            driver: None,
            ..self
        }
    }
}
