//! Chooses the engine that builds a plan, and where the image goes when the user names no place.

use crate::error::BuildError;
use crate::output::Output;
use crate::recorded::sandboxes_start;
use stackforge_engine::EngineError;
use stackforge_engine::docker::Docker;
use stackforge_plan::Plan;
use stackforge_stack::spec::Platform;

/// What builds an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// A Docker engine.
    Docker,
    /// stackforge itself.
    Native,
}

/// What a user says about the engine of a build.
#[derive(Debug)]
pub struct EngineRequest<'a> {
    /// `None`: whichever fits the plan.
    pub kind: Option<EngineKind>,
    /// Where the image goes.
    pub outputs: Vec<Output>,
    /// Engines for the plan's platform, in the form of `DOCKER_HOST`.
    pub builders: &'a [String],
}

/// The engine of a build.
pub struct ChosenEngine {
    /// `None` for the native engine.
    pub docker: Option<Docker>,
    /// Where the image goes, besides the store of the native engine.
    pub outputs: Vec<Output>,
}

impl EngineRequest<'_> {
    /// Chooses the engine and connects to it.
    ///
    /// # Errors
    /// If the engine that was asked for does not answer, or the environment's setting does not name one.
    pub async fn choose(self, plan: &Plan) -> Result<ChosenEngine, BuildError> {
        let mut outputs = self.outputs;
        let docker = match self.kind {
            Some(EngineKind::Native) => None,
            Some(EngineKind::Docker) => Some(connect(self.builders).await?),
            None if !wants(plan).docker() => None,
            // Layers of the native engine are smaller to pull, but it compiles only for this machine's platform.
            None if !outputs.is_empty() => {
                let host = Platform::host();
                let elsewhere =
                    host != Some(plan.platform) && (!self.builders.is_empty() || host.is_none());
                if elsewhere && outputs.iter().all(Output::of_engine) {
                    reached(connect(self.builders).await)?
                } else {
                    None
                }
            }
            None => reached(connect(self.builders).await)?,
        };
        // Every image is in the store. If there is a Docker engine, users expect the image there too.
        if docker.is_none() && outputs.is_empty() {
            match Docker::connect(None).await {
                Ok(_) => outputs.push(Output::Docker),
                Err(e @ EngineError::Invalid { .. }) => {
                    tracing::warn!("the image goes to the store alone: {e}");
                }
                Err(_) => {}
            }
        }
        Ok(ChosenEngine { docker, outputs })
    }
}

/// Returns the engine, or `None` to build natively if no engine answers.
///
/// # Errors
/// The user's setting does not name an engine.
pub fn reached(connected: Result<Docker, EngineError>) -> Result<Option<Docker>, EngineError> {
    match connected {
        Ok(docker) => Ok(Some(docker)),
        Err(e @ EngineError::Invalid { .. }) => Err(e),
        Err(e) => {
            if names_engine() {
                tracing::warn!("{e}: going on without it");
            }
            Ok(None)
        }
    }
}

/// Whether the environment names an engine.
pub fn names_engine() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("DOCKER_HOST") || is_set("DOCKER_CONTEXT")
}

/// Connects to the engine that the environment names, else to the first builder that answers, else to this
/// machine's.
async fn connect(builders: &[String]) -> Result<Docker, EngineError> {
    let named = names_engine();
    let mut failed = None;
    for address in builders.iter().filter(|_| !named) {
        match Docker::connect(Some(address)).await {
            Ok(docker) => return Ok(docker),
            Err(error) => {
                tracing::warn!("a builder is passed over: {error}");
                failed.get_or_insert(error);
            }
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Docker::connect(None).await,
    }
}

/// Why a plan is built by a Docker engine or by the native engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineNeed {
    /// Nothing is compiled or pulled: the native engine assembles the image from files.
    Nothing,
    /// These libraries are compiled, and a Docker engine may have cached that.
    Compiles(Vec<String>),
    /// This base is pulled, and the engine may already have it.
    Base(String),
    /// No sandbox starts on this machine, so only a Docker engine can validate the image here.
    NoSandbox,
    /// No Docker engine can build it: this base has no shell for the Dockerfile's steps.
    NoShell(String),
    /// No Docker engine can build it: device code is pruned from wheels.
    Prune,
}

impl EngineNeed {
    /// Whether to use a Docker engine if one answers.
    pub fn docker(&self) -> bool {
        matches!(self, Self::Compiles(_) | Self::Base(_) | Self::NoSandbox)
    }

    /// Whether only the native engine can build the plan.
    pub fn native(&self) -> bool {
        matches!(self, Self::NoShell(_) | Self::Prune)
    }
}

/// Returns what decides the engine of a plan.
pub fn wants(plan: &Plan) -> EngineNeed {
    let base = plan.base();
    if !base.shell {
        return EngineNeed::NoShell(base.lock.name.clone());
    }
    if plan.image().prune {
        return EngineNeed::Prune;
    }
    let libraries: Vec<String> = plan.compiles().map(|c| c.library.clone()).collect();
    if !libraries.is_empty() {
        EngineNeed::Compiles(libraries)
    } else if base.bootstrap && !sandboxes_start() {
        EngineNeed::NoSandbox
    } else if base.bootstrap {
        EngineNeed::Nothing
    } else {
        EngineNeed::Base(base.lock.name.clone())
    }
}

impl std::fmt::Display for EngineNeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => write!(f, "native: nothing is compiled, and no base is pulled"),
            Self::NoShell(base) => write!(f, "native: {base} has no shell"),
            Self::Prune => write!(f, "native: device code is pruned"),
            Self::Compiles(libraries) => write!(
                f,
                "docker where it answers, to compile {}; else native",
                libraries.join(", ")
            ),
            Self::Base(base) => write!(
                f,
                "docker where it answers, for its copy of {base}; else native"
            ),
            Self::NoSandbox => write!(
                f,
                "docker where it answers, to validate the image; else native, not validated"
            ),
        }
    }
}
