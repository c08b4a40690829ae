//! `app`, `image` and the checks of `validate` that are the user's own: what makes a service of a Python environment.
//!
//! In: the stack's keys. Out: [`App`], [`ImageConfig`] and [`AppChecks`], whose values are checked. The folder that
//! `app` names is not read here.

mod health;
mod port;
mod project;
pub mod raw;
mod read;
mod requirements;
mod secret;

pub use health::Health;
pub use port::{Port, Protocol};
pub use project::Project;
pub use requirements::{Asked, expand};

use super::At;
use crate::diag::Span;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Where an app goes if the stack does not say.
pub const APP_HOME: &str = "/app";

/// A project of the user's, whose files are the last layer of the image.
#[derive(Debug, Clone, Serialize)]
pub struct App {
    /// Its folder. A relative path starts at the stack file's folder.
    pub source: At<String>,
    /// Where its files go: an absolute path of the image.
    pub to: String,
    /// Files of requirements, which are locked together with the libraries.
    pub requirements: Vec<At<String>>,
    /// Dependency groups (PEP 735) of its `pyproject.toml`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Extras of its `pyproject.toml`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extras: Vec<String>,
    /// Whether it is installed. `None` if its `pyproject.toml` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<At<bool>>,
    /// How its wheel is built. `None` if it is not installed, or before its folder was looked at.
    #[serde(skip)]
    pub project: Option<Project>,
    /// What the files of requirements ask for.
    #[serde(skip)]
    pub asked: Vec<Asked>,
    /// The files that `asked` was read from.
    #[serde(skip)]
    pub files: Vec<PathBuf>,
}

/// What the image starts, and how. What is not set is the base's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImageConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd: Option<Vec<String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where the values of `env` stand.
    #[serde(skip)]
    pub env_spans: BTreeMap<String, Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Files beside the stack by their absolute paths in the image.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, At<String>>,
}

/// The user that the image's programs run as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum User {
    /// Numbers alone: nothing is added to the image.
    Ids { uid: u32, gid: u32 },
    /// A user by name. If the base does not have it, it is created, with these numbers or the first free ones.
    Named {
        name: String,
        uid: Option<u32>,
        gid: Option<u32>,
    },
}

/// Checks of the app's own, which run in the finished image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AppChecks {
    /// Modules that are imported.
    pub imports: Vec<String>,
    pub run: Vec<SmokeTest>,
}

/// A program that has to end with exit status 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SmokeTest {
    pub cmd: Vec<String>,
    /// When it is ended, and has failed.
    pub timeout: Duration,
    /// Whether it needs a GPU; then it runs only where the validation has one.
    pub gpu: bool,
}

impl AppChecks {
    pub fn is_empty(&self) -> bool {
        self.imports.is_empty() && self.run.is_empty()
    }
}
