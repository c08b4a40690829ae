//! Chooses the engine that builds a plan when the user does not.

use stackforge_plan::Plan;

/// Why a plan is built by a Docker engine or by the native engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineNeed {
    /// Nothing is compiled or pulled: the native engine assembles the image from files.
    Nothing,
    /// These libraries are compiled, and a Docker engine may have cached that.
    Compiles(Vec<String>),
    /// This base is pulled, and the engine may already have it.
    Base(String),
    /// This system has no sandbox, so only a Docker engine can validate the image here.
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
    } else if base.bootstrap && stackforge_sandbox::supported().is_err() {
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
