//! What this machine is, what it can build and run, and what to do about the rest.
//!
//! In: the catalog and what [`crate::device`], the container engine and the network answer. Out:
//! [`Report`], with findings as diagnostics. It never fails and changes nothing: what could not be
//! asked is said to be so. No address of an index or mirror is in it.

mod engines;
mod fit;
mod judge;
mod network;
mod table;

use crate::catalog::{Catalog, Identified};
use crate::device::{self, Device};
use crate::diag::Diagnostic;
use serde::Serialize;
use stackforge_sandbox::Capabilities;
use std::path::{Path, PathBuf};

pub use engines::{Engine, Program};
pub use fit::{Build, Can, Run, bases};
pub use network::{Answer, Network};
pub use table::table;

/// What is to be looked at.
pub struct Question<'a> {
    pub catalog: &'a Catalog,
    /// A mounted machine in place of this one.
    pub root: Option<&'a Path>,
    pub offline: bool,
    /// The store's directory.
    pub store: &'a Path,
    /// Debian mirrors of the user's configuration.
    pub mirrors: &'a [String],
}

#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub machine: Machine,
    pub can: Can,
    pub findings: Vec<Diagnostic>,
}

/// Everything that was read or answered.
#[derive(Debug, Serialize)]
pub struct Machine {
    pub device: Device,
    pub gpus: Vec<Identified>,
    /// Names of cpus.yaml.
    pub isas: Vec<String>,
    /// Newest CUDA that the driver is made for.
    pub driver_cuda: Option<String>,
    /// JetPack of the device's L4T release.
    pub jetpack: Option<String>,
    /// None: a mounted machine has no engine that could answer.
    pub live: Option<Live>,
}

/// What only a running machine answers.
#[derive(Debug, Serialize)]
pub struct Live {
    pub engine: Engine,
    /// How programs run here without an engine; None where that could not be asked.
    pub sandbox: Option<Capabilities>,
    /// Programs of containers and packages that are on PATH.
    pub programs: Vec<Program>,
    pub disks: Vec<Disk>,
    pub network: Network,
}

#[derive(Debug, Serialize)]
pub struct Disk {
    /// `engine` or `store`.
    pub holds: &'static str,
    pub path: PathBuf,
    /// Bytes.
    pub free: Option<u64>,
}

/// Looks at the machine.
pub async fn examine(question: &Question<'_>) -> Report {
    let catalog = question.catalog;
    let (device, live) = match question.root {
        Some(root) => (Device::read(root), None),
        None => (Device::here(), Some(live(question).await)),
    };
    let machine = Machine {
        gpus: catalog.gpus_of(&device),
        isas: catalog
            .isas_of(&device)
            .iter()
            .map(|i| i.name.to_string())
            .collect(),
        driver_cuda: catalog.driver_cuda(&device),
        jetpack: catalog.jetson_of(&device).map(|r| r.jetpack.clone()),
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
        free: device::free(question.store),
    }];
    // Another machine's engine, or one outside of this container, has its disk elsewhere.
    if let Some(data) = engine.data.as_ref().filter(|d| engine.local && d.is_dir()) {
        disks.insert(
            0,
            Disk {
                holds: "engine",
                path: data.clone(),
                free: device::free(data),
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
