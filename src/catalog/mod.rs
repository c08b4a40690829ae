//! Compatibility knowledge as data: GPUs, CUDA toolkits, CPU ISAs, bases and recipes.
//!
//! In: YAML files, embedded in the binary and extended or replaced, entry by entry, by a
//! directory of the same layout. Out: [`Catalog`], checked whole. It never guesses: a name
//! that it does not hold is an error with the nearest one that it does.

mod diagnoses;
mod images;
mod library;
mod load;
mod pattern;
mod tools;

use crate::spec::nouns::{Digest, Platform, Sm};
use serde::Deserialize;
use std::collections::BTreeMap;

pub use diagnoses::{Diagnoses, Diagnosis, Rank};
pub use images::{Bootstrap, Image, OsRoles, Reference};
pub use library::{
    ArchFormat, ArchVariable, Build, BuildSource, Conditions, Facts, Jobs, OsRequirement, Patch,
    Recipe, Refusal, StaticMetadata, WheelSource,
};
pub use load::{CatalogError, keyring, template, templates_in};
pub use pattern::Pattern;
pub use tools::{Tool, ToolFile};

/// Facts that rules decide by; a lock records it so that a report can name it.
pub const RULES: u32 = 1;

#[derive(Debug, Clone)]
pub struct Catalog {
    pub sms: Vec<SmFacts>,
    pub gpus: Vec<Gpu>,
    pub toolkits: Vec<Toolkit>,
    pub isas: Vec<Isa>,
    pub tools: Vec<Tool>,
    pub images: BTreeMap<String, Image>,
    pub recipes: BTreeMap<String, Recipe>,
    /// Digest of the templates that a directory puts over the embedded ones.
    pub templates: Option<Digest>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmFacts {
    pub sm: Sm,
    pub generation: String,
    pub products: Vec<String>,
    /// An integrated GPU of a Tegra module: other cubin rules hold there.
    pub tegra: bool,
    pub cuda: CudaRange,
    pub platforms: Vec<Platform>,
    #[serde(default)]
    pub note: Option<String>,
    pub source: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CudaRange {
    pub first: String,
    /// Absent: still supported.
    #[serde(default)]
    pub last: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    pub name: String,
    pub about: String,
    pub sm: Sm,
    pub platforms: Vec<Platform>,
    #[serde(default)]
    pub memory_gb: Option<f64>,
    pub source: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toolkit {
    pub version: String,
    pub sms: Vec<Sm>,
    #[serde(default)]
    pub arch_specific: Vec<Sm>,
    #[serde(default)]
    pub family_specific: Vec<Sm>,
    /// Newest GCC major that its headers accept.
    pub gcc_max: u32,
    #[serde(default)]
    pub driver: DriverFloor,
    #[serde(default)]
    pub wheels: Option<ToolkitWheels>,
    #[serde(default)]
    pub note: Option<String>,
    pub source: String,
}

/// Lowest Linux driver: as shipped, and with minor-version compatibility.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverFloor {
    #[serde(default)]
    pub toolkit: Option<String>,
    #[serde(default)]
    pub minor: Option<String>,
}

/// The toolkit as Python wheels.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolkitWheels {
    pub package: String,
    pub versions: Vec<String>,
    /// Whether nvcc itself is in the wheels, not only ptxas.
    pub compiler: bool,
    /// Directory of the toolkit below site-packages.
    #[serde(default)]
    pub home: Option<String>,
    #[serde(default)]
    pub note: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Isa {
    pub name: String,
    pub platform: Platform,
    pub flags: Vec<String>,
    pub source: String,
}

impl Catalog {
    /// The SM that a stack's `gpu` entry means: a product's name or an SM itself.
    pub fn sm(&self, gpu: &str) -> Option<Sm> {
        if let Some(gpu) = self.gpus.iter().find(|g| g.name == gpu) {
            return Some(gpu.sm);
        }
        let sm: Sm = gpu.strip_prefix("sm_").and_then(|d| d.parse().ok())?;
        self.sms.iter().any(|f| f.sm == sm.base()).then_some(sm)
    }

    pub fn gpu(&self, name: &str) -> Option<&Gpu> {
        self.gpus.iter().find(|g| g.name == name)
    }

    pub fn toolkit(&self, version: &str) -> Option<&Toolkit> {
        let minor = version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
        self.toolkits.iter().find(|t| t.version == minor)
    }

    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|t| t.name == name)
    }

    pub fn recipe(&self, library: &str) -> Option<&Recipe> {
        self.recipes.get(library)
    }
}
