//! Reports on this machine: what it is, what it can build and run, and what to do about the rest.
//!
//! In: the catalog, and answers of [`Device`], the container engine and the network. Out: [`Report`],
//! with findings as diagnostics. Never fails and changes nothing: a fact that could not be found out is
//! reported as such. The report contains no address of an index or mirror.

mod engines;
mod fit;
mod judge;
mod network;
mod next;
mod table;

use crate::{Device, Identified, free};
use serde::Serialize;
use stackforge_sandbox::Capabilities;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::Diagnostic;
use std::path::{Path, PathBuf};

pub use engines::{Engine, Program};
pub use fit::{Build, Can, Run, bases};
pub use network::{Answer, Network};
pub use next::next;
pub use table::table;

/// The input of a report.
pub struct Question<'a> {
    pub catalog: &'a Catalog,
    /// Root directory of a mounted machine, to examine instead of this one.
    pub root: Option<&'a Path>,
    pub offline: bool,
    /// Directory of the store.
    pub store: &'a Path,
    /// Debian mirrors in the user's configuration.
    pub mirrors: &'a [String],
}

#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub machine: Machine,
    pub can: Can,
    pub findings: Vec<Diagnostic>,
}

/// All facts that were read or answered.
#[derive(Debug, Serialize)]
pub struct Machine {
    pub device: Device,
    pub gpus: Vec<Identified>,
    /// Instruction sets of the processors: names of cpus.yaml.
    pub isas: Vec<String>,
    /// Newest CUDA version that the driver was made for.
    pub driver_cuda: Option<String>,
    /// JetPack version of the device's L4T release.
    pub jetpack: Option<String>,
    /// `None` for a mounted machine, which has no running engine.
    pub live: Option<Live>,
}

/// Facts that only a running machine has.
#[derive(Debug, Serialize)]
pub struct Live {
    pub engine: Engine,
    /// How programs run here without an engine. `None` if that could not be found out.
    pub sandbox: Option<Capabilities>,
    /// Programs for containers and packages on PATH.
    pub programs: Vec<Program>,
    pub disks: Vec<Disk>,
    pub network: Network,
}

#[derive(Debug, Serialize)]
pub struct Disk {
    /// What the disk holds: `engine` or `store`.
    pub holds: &'static str,
    pub path: PathBuf,
    /// Free space in bytes.
    pub free: Option<u64>,
}

/// Examines the machine.
pub async fn examine(question: &Question<'_>) -> Report {
    let catalog = question.catalog;
    let (device, live) = match question.root {
        Some(root) => (Device::read(root), None),
        None => (Device::here(), Some(live(question).await)),
    };
    let machine = Machine {
        gpus: device.identified(catalog),
        isas: device
            .isas(catalog)
            .iter()
            .map(|i| i.name.to_string())
            .collect(),
        driver_cuda: device.driver_cuda(catalog),
        jetpack: device.jetson(catalog).map(|r| r.jetpack.clone()),
        device,
        live,
    };
    let can = fit::can(&machine, catalog);
    let findings = judge::judge(&machine, catalog);
    Report {
        machine,
        can,
        findings,
    }
}

async fn live(question: &Question<'_>) -> Live {
    let (engine, network, sandbox) = tokio::join!(
        engines::docker(),
        network::ask(question),
        stackforge_sandbox::probe(None)
    );
    let programs = engines::programs();
    let mut disks = vec![Disk {
        holds: "store",
        path: question.store.to_owned(),
        free: free(question.store),
    }];
    // The disk of a remote engine, or of one outside of this container, is not here.
    if let Some(data) = engine.data.as_ref().filter(|d| engine.local && d.is_dir()) {
        disks.insert(
            0,
            Disk {
                holds: "engine",
                path: data.clone(),
                free: free(data),
            },
        );
    }
    Live {
        engine,
        sandbox: sandbox.ok(),
        programs,
        disks,
        network,
    }
}
