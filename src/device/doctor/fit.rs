//! Decides what a machine can build and run, from the catalog's minimum drivers and Jetson releases.

use super::Machine;
use crate::Device;
use serde::Serialize;
use stackforge_gpu::{DriverVersion, Support};
use stackforge_stack::catalog::{Catalog, Image, Toolkit, numbers};
use stackforge_types::{Platform, Sm};

#[derive(Debug, Serialize)]
pub struct Can {
    pub build: Build,
    pub run: Run,
}

#[derive(Debug, Serialize)]
pub struct Build {
    /// The engine's own platform. Stacks for other platforms need another engine.
    pub platforms: Vec<Platform>,
    /// Why nothing can be built.
    pub why_not: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Run {
    /// CUDA releases that the driver was made for.
    pub cuda: Vec<String>,
    /// Releases that it runs by minor-version compatibility: their PTX is not compiled for the GPU.
    pub cuda_without_ptx: Vec<String>,
    /// Names in images/, the best fit first.
    pub bases: Vec<String>,
    /// Why nothing that needs a GPU runs.
    pub why_not: Option<String>,
}

/// How far a driver supports a toolkit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    No,
    WithoutPtx,
    Full,
}

pub(super) fn can(machine: &Machine, catalog: &Catalog) -> Can {
    Can {
        build: build(machine),
        run: run(machine, catalog),
    }
}

fn build(machine: &Machine) -> Build {
    let engine = machine.live.as_ref().map(|live| &live.engine);
    let why_not = match engine {
        None => Some("a mounted machine has no engine that could be asked".to_owned()),
        Some(engine) if engine.server.is_none() => Some("no container engine answers".to_owned()),
        Some(engine) if engine.platform.is_none() => {
            Some("the engine is of an architecture that CUDA does not have".to_owned())
        }
        Some(_) => None,
    };
    Build {
        platforms: engine.and_then(|e| e.platform).into_iter().collect(),
        why_not,
    }
}

fn run(machine: &Machine, catalog: &Catalog) -> Run {
    let device = &machine.device;
    let sms: Vec<Sm> = machine.gpus.iter().filter_map(|g| g.sm).collect();
    let why_not = match &device.driver {
        _ if machine.gpus.is_empty() && device.pci.is_empty() => Some("no NVIDIA GPU"),
        None if device.l4t.is_none() => Some("no driver"),
        _ if device.nvml.is_some() => Some("the driver does not answer"),
        _ if sms.is_empty() => Some("the GPU's SM is not known"),
        _ => None,
    };
    if let Some(why_not) = why_not {
        return Run {
            cuda: Vec::new(),
            cuda_without_ptx: Vec::new(),
            bases: Vec::new(),
            why_not: Some(why_not.to_owned()),
        };
    }
    let of = |wanted: Fit| -> Vec<String> {
        let mut toolkits: Vec<&Toolkit> = catalog
            .toolkits
            .iter()
            .filter(|t| t.sms.iter().any(|sm| sms.contains(sm)))
            .filter(|t| toolkit(t, device, catalog) == wanted)
            .collect();
        toolkits.sort_by_key(|t| numbers(&t.version));
        toolkits.iter().map(|t| t.version.clone()).collect()
    };
    Run {
        cuda: of(Fit::Full),
        cuda_without_ptx: of(Fit::WithoutPtx),
        bases: bases(catalog, device, &sms)
            .iter()
            .map(|i| i.image.clone())
            .collect(),
        why_not: None,
    }
}

/// Returns how far the device's driver supports the toolkit.
pub(super) fn toolkit(toolkit: &Toolkit, device: &Device, catalog: &Catalog) -> Fit {
    if device.l4t.is_some() {
        let own = device.jetson(catalog).map(|r| r.cuda.as_slice());
        return if own.unwrap_or_default().contains(&toolkit.version) {
            Fit::Full
        } else {
            Fit::No
        };
    }
    let driver = device.driver.as_ref().and_then(|d| d.version());
    let Some(driver) = driver.and_then(|v| v.parse::<DriverVersion>().ok()) else {
        return Fit::No;
    };
    match toolkit.supported_by(&driver) {
        Support::Full => Fit::Full,
        Support::SassOnly => Fit::WithoutPtx,
        Support::No | Support::Unknown => Fit::No,
    }
}

/// Returns the bases whose images run on the device: the best fit first, then by CUDA, the newest first.
pub fn bases<'a>(catalog: &'a Catalog, device: &Device, sms: &[Sm]) -> Vec<&'a Image> {
    let knows = |image: &Image| match image.cuda.as_deref().and_then(|c| catalog.toolkit(c)) {
        Some(toolkit) => sms.iter().any(|sm| toolkit.sms.contains(&sm.base())),
        None => true,
    };
    if device.l4t.is_some() {
        let own = device.jetson(catalog).map(|r| r.bases.as_slice());
        let images = own.unwrap_or_default().iter();
        return images
            .filter_map(|name| catalog.images.get(name))
            .filter(|i| knows(i))
            .collect();
    }
    let fit = |image: &Image| match image.cuda.as_deref().and_then(|c| catalog.toolkit(c)) {
        Some(known) => toolkit(known, device, catalog),
        // CUDA comes with the wheels here, so the lock decides its version.
        None => Fit::WithoutPtx,
    };
    let mut images: Vec<&Image> = catalog
        .images
        .values()
        .filter(|i| i.l4t.is_none() && device.platform.is_some_and(|p| i.platforms.contains(&p)))
        .filter(|i| knows(i) && fit(i) != Fit::No)
        .collect();
    let rank = |i: &&Image| {
        let cuda = i.cuda.as_deref().map(numbers);
        (fit(i), cuda, numbers(&i.os.version))
    };
    images.sort_by_key(|i| std::cmp::Reverse(rank(i)));
    images
}
