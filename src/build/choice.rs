//! Which engine builds a plan when the user does not say.

use crate::plan::Plan;

/// Why a Docker engine is taken where one answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wants {
    /// Everything is there as files: the native engine assembles them.
    Nothing,
    /// Libraries that have to be compiled: a Docker engine keeps its own caches of that.
    Compiles(Vec<String>),
    /// A base that is pulled, and may lie in the engine already.
    Base(String),
    /// None can build it: the steps of a Dockerfile need a shell.
    NoShell(String),
    /// None can build it: wheels are installed without some of their device code.
    Prune,
}

impl Wants {
    /// Whether a Docker engine builds it, should one answer.
    pub fn docker(&self) -> bool {
        matches!(self, Self::Compiles(_) | Self::Base(_))
    }

    /// Whether the native engine alone builds it.
    pub fn native(&self) -> bool {
        matches!(self, Self::NoShell(_) | Self::Prune)
    }
}

/// What of the plan a Docker engine is wanted for.
pub fn wants(plan: &Plan) -> Wants {
    let parts = &plan.parts;
    if !parts.shell {
        return Wants::NoShell(parts.base.name.clone());
    }
    if parts.prune {
        return Wants::Prune;
    }
    if !parts.compiles.is_empty() {
        let libraries = parts.compiles.iter().map(|c| c.library.clone());
        return Wants::Compiles(libraries.collect());
    }
    match parts.bootstrap {
        true => Wants::Nothing,
        false => Wants::Base(parts.base.name.clone()),
    }
}

impl std::fmt::Display for Wants {
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
        }
    }
}
