//! What each step of a plan is called.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A step of a plan. As text `base`, `wheels:torch`, `compile:flash-attn`, `runtime`, `validate`, `image`:
/// in that form it stands in documents and in the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepId {
    /// The base, with an interpreter.
    Base,
    /// One group of the locked wheels, installed.
    Wheels(WheelGroup),
    /// A library's wheel, compiled from source.
    Compile(String),
    /// What the image holds besides locked wheels: OS packages and compiled wheels.
    Runtime,
    /// The libraries are imported and tried.
    Validate,
    /// The image with its configuration.
    Image,
}

/// Wheels that change together, from what changes least to what changes most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WheelGroup {
    /// CUDA's own libraries.
    Cuda,
    /// torch with what it asks for.
    Torch,
    /// Everything else.
    Libraries,
}

impl StepId {
    /// The step that compiles a library.
    pub fn compile(library: &str) -> Self {
        Self::Compile(library.to_owned())
    }

    /// The library that the step compiles.
    pub fn library(&self) -> Option<&str> {
        match self {
            Self::Compile(library) => Some(library),
            _ => None,
        }
    }
}

impl WheelGroup {
    pub const ALL: [Self; 3] = [Self::Cuda, Self::Torch, Self::Libraries];

    /// `cuda`, `torch` or `libraries`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Torch => "torch",
            Self::Libraries => "libraries",
        }
    }
}

impl fmt::Display for WheelGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.write_str("base"),
            Self::Wheels(group) => write!(f, "wheels:{group}"),
            Self::Compile(library) => write!(f, "compile:{library}"),
            Self::Runtime => f.write_str("runtime"),
            Self::Validate => f.write_str("validate"),
            Self::Image => f.write_str("image"),
        }
    }
}

impl FromStr for WheelGroup {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|group| group.name() == text)
            .ok_or(())
    }
}

impl Serialize for StepId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
