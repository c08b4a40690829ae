//! The names of a plan's steps.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The ID of a step. Documents and the store use its text: `base`, `tools`, `wheels:torch`,
/// `compile:flash-attn`, `runtime`, `packages`, `environment`, `wheel:torch`, `bytecode`,
/// `bytecode:torch`, `bytecode:python3.11`, `validate`, `image`, `project`, `app`, `service`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepId {
    /// The base image with a Python interpreter.
    Base,
    /// The installers, and what compilers need.
    Tools,
    /// Installs one group of the locked wheels.
    Wheels(WheelGroup),
    /// Compiles this library's wheel from source.
    Compile(String),
    /// Adds what the image holds besides locked wheels: OS packages and compiled wheels.
    Runtime,
    /// The layer of OS packages.
    Packages,
    /// The layer with the empty Python environment.
    Environment,
    /// A layer with this wheel alone.
    Wheel(String),
    /// A layer of several wheels, by the name of the first.
    SmallWheels(String),
    /// Byte code of everything that is installed.
    Bytecode,
    /// A layer with the byte code of a layer of wheels, by that layer's name, or of Python's own library.
    LayerBytecode(String),
    /// Imports and tries the libraries.
    Validate,
    /// The image of the Python environment.
    Image,
    /// The wheel of the app's own project.
    Project,
    /// The layer of the user's own files.
    App,
    /// The image with the app and its configuration.
    Service,
}

/// A group of wheels that change together, from the least to the most frequent changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WheelGroup {
    /// CUDA's own libraries.
    Cuda,
    /// torch and its dependencies.
    Torch,
    /// Everything else.
    Libraries,
}

impl StepId {
    /// Returns the step that compiles a library.
    pub fn compile(library: &str) -> Self {
        Self::Compile(library.to_owned())
    }

    /// Returns the library that the step compiles. `None` for other steps.
    pub fn library(&self) -> Option<&str> {
        match self {
            Self::Compile(library) => Some(library),
            _ => None,
        }
    }
}

impl WheelGroup {
    pub const ALL: [Self; 3] = [Self::Cuda, Self::Torch, Self::Libraries];

    /// Returns `cuda`, `torch` or `libraries`.
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
            Self::Tools => f.write_str("tools"),
            Self::Wheels(group) => write!(f, "wheels:{group}"),
            Self::Compile(library) => write!(f, "compile:{library}"),
            Self::Runtime => f.write_str("runtime"),
            Self::Packages => f.write_str("packages"),
            Self::Environment => f.write_str("environment"),
            Self::Wheel(name) => write!(f, "wheel:{name}"),
            Self::SmallWheels(first) => write!(f, "wheels:{first}…"),
            Self::Bytecode => f.write_str("bytecode"),
            Self::LayerBytecode(of) => write!(f, "bytecode:{of}"),
            Self::Validate => f.write_str("validate"),
            Self::Image => f.write_str("image"),
            Self::Project => f.write_str("project"),
            Self::App => f.write_str("app"),
            Self::Service => f.write_str("service"),
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

impl Serialize for WheelGroup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
