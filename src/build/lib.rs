//! Does a plan's steps: in a Docker engine ([`build`]), or without one ([`native::assemble`]).
//!
//! In: a [`Plan`](stackforge_plan::Plan), for which [`locking`] makes the lock that it lacks. Out: [`Built`]. Each engine
//! makes an image without a name in its own way; the end of a build is the same (`finish.rs`). The user's tags are set
//! only after the validation and the audit passed, and a compiled wheel is used only after its own audit.

mod at_rest;
mod audit;
mod base;
mod choice;
mod context;
mod docker;
pub mod emit;
mod error;
mod existing;
mod finish;
pub mod fleet;
mod in_place;
mod installed;
pub mod last;
pub mod locking;
pub mod native;
mod objects;
mod output;
mod reach;
mod recorded;
pub mod render;
mod secrets;
mod service;
mod shared;
mod trusted;
mod unmet;
mod unpacked;
pub mod validate;
mod validation;

pub use at_rest::{topmost, unpacked, validate_at_rest};
pub use audit::{AUDIT_PATH, OnProgress, audit_image};
pub use choice::{
    ChosenEngine, EngineKind, EngineNeed, EngineRequest, names_engine, reached, wants,
};
pub use context::render_context;
pub use docker::{build, noted, plan_step, push_image, stage};
pub use error::BuildError;
pub use in_place::{root_environment, validate_rootfs};
pub use objects::Objects;
pub use output::Output;
pub use recorded::cached;
pub use secrets::{IndexSettings, ca_bundle};
pub use validation::{ValidationRequest, validate_image};

use crate::validate::Report;
use serde::Serialize;
use stackforge_audit::Count;
use stackforge_engine::{Event, ImageSize};
use stackforge_image::store::Store;
use stackforge_plan::StepId;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::config::Config;
use stackforge_stack::spec::Stack;
use stackforge_transfer::registry::PlainHttp;
use std::path::{Path, PathBuf};

pub struct Options<'a> {
    pub store: &'a Store,
    pub catalog: &'a Catalog,
    pub overlay: Option<&'a Path>,
    /// References to tag the image with.
    pub tags: Vec<String>,
    /// Further outputs; an engine keeps its image in any case.
    pub outputs: Vec<Output>,
    /// Registries to reach over plain HTTP.
    pub plain_http: PlainHttp,
    /// Upper bound on parallel compilers, besides that of cores and memory.
    pub jobs: Option<u32>,
    pub no_cache: bool,
    /// Whether compiles take objects that earlier ones kept, and keep theirs.
    pub compile_cache: bool,
    pub index: IndexSettings,
    pub config: &'a Config,
    /// The stack whose package indexes are asked for the locked files.
    pub stack: Option<&'a Stack>,
    /// Whether to use no network.
    pub offline: bool,
    /// Whether the validation runs on a GPU, and fails without one.
    pub gpu: bool,
}

impl Options<'_> {
    /// The repository for shared compiled wheels and layers: the configuration's, else the stack's if the
    /// configuration allows it.
    fn shared(&self) -> Option<&str> {
        let own = self.config.cache.registry.as_deref();
        own.or_else(|| self.of_stack().filter(|name| self.allows(name)))
    }

    /// The stack's repository, if it would be used but the configuration does not allow it.
    fn refused(&self) -> Option<&str> {
        let none = self.config.cache.registry.is_none();
        self.of_stack().filter(|name| none && !self.allows(name))
    }

    fn of_stack(&self) -> Option<&str> {
        Some(&self.stack?.cache.as_ref()?.registry)
    }

    fn allows(&self, repository: &str) -> bool {
        self.config
            .cache
            .allow
            .iter()
            .any(|name| name == repository)
    }
}

/// A progress event of a build.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum BuildEvent {
    /// A phase begins.
    Phase {
        name: &'static str,
    },
    Download {
        what: String,
        done: u64,
        total: u64,
    },
    /// A compile was killed for lack of memory and starts again.
    Retry {
        step: String,
        jobs: u32,
    },
    /// Another build does the same step, and this one waits for it.
    Waiting {
        step: String,
    },
    /// A compile ended, in success or not, and asked the cache of objects.
    Objects {
        library: String,
        #[serde(flatten)]
        objects: Objects,
    },
    #[serde(untagged)]
    Engine(Event),
}

#[derive(Debug, Clone, Serialize)]
pub struct StepResult {
    pub id: StepId,
    pub cached: bool,
    pub seconds: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Built {
    /// The engine's ID of the image.
    pub id: String,
    pub tags: Vec<String>,
    pub size: ImageSize,
    /// The layers, lowest first; empty if the engine keeps them.
    pub layers: Vec<stackforge_image::Layer>,
    pub steps: Vec<StepResult>,
    pub report: Report,
    pub audit: Count,
    /// Whether everything already existed.
    pub noop: bool,
    pub log: Option<PathBuf>,
}
