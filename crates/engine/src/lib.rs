//! Engines: what runs a rendered build, and containers of what it built.
//!
//! In comes a [`BuildRequest`]: a context, a Dockerfile in it, tags, labels and secrets. Out go
//! [`Event`]s while the engine works and a [`BuildOutcome`], or an [`EngineError`] that says which
//! step broke and how. This module holds the nouns and does no I/O; [`docker`] talks to dockerd
//! and to Podman's socket. It knows no stack. It must never let a [`Secret`] reach a layer, a log
//! or an error, and never leave a tag behind for a build that failed.

pub mod docker;
mod error;
mod event;
mod notes;

pub use error::{EngineError, StepFailure};
pub use event::{Event, StepKind};
pub use notes::{Notes, Temporary};
pub use stackforge_types::{Cancel, LogStream};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Everything an engine needs to build one image.
#[derive(Debug, Clone, Default)]
pub struct BuildRequest {
    /// The files the build may read, in any order. The Dockerfile is one of them.
    pub context: Vec<ContextEntry>,
    /// Path of the Dockerfile in the context.
    pub dockerfile: String,
    /// The stage to stop at; the last one when absent.
    pub target: Option<String>,
    /// References the engine gives to the image once every step has succeeded.
    pub tags: Vec<String>,
    /// Labels of the image, by key.
    pub labels: BTreeMap<String, String>,
    /// Values of the Dockerfile's `ARG`s, by name.
    pub build_args: BTreeMap<String, String>,
    /// What `RUN --mount=type=secret,id=…` may read, by id.
    pub secrets: BTreeMap<String, Secret>,
    /// `os/architecture[/variant]`; the engine's own when absent.
    pub platform: Option<String>,
    /// Network of RUN steps: `default`, `host` or `none`.
    pub network: Option<String>,
    /// Runs every step, whatever the engine's cache has.
    pub no_cache: bool,
    /// Images in registries whose inline cache may be reused; one that is not there costs nothing.
    pub cache_from: Vec<String>,
    /// Who the engine is to registries that it reads from, by host (`docker.io` for Docker Hub).
    pub logins: BTreeMap<String, Login>,
}

/// A regular file of a build context, or one that is put into a container before it starts.
#[derive(Debug, Clone)]
pub struct ContextEntry {
    /// Relative, with `/` between its parts and no `.` or `..` among them.
    pub path: String,
    /// Permission bits, such as `0o644`.
    pub mode: u32,
    /// Where its content is.
    pub source: Source,
}

/// Where the bytes of a [`ContextEntry`] are.
#[derive(Clone)]
pub enum Source {
    /// In memory.
    Bytes(Vec<u8>),
    /// Read while it is sent, never held in memory whole.
    File(PathBuf),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Source::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

/// A value that only a RUN step may see. It has no `Display` and no `Serialize`, and its `Debug`
/// shows nothing, not even a length.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Keeps a value from being shown.
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Secret(value.into())
    }

    /// The bytes, for whoever hands them to the step that asked.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Who somebody is to a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// A name and a password, or an access token in its place.
    Password {
        /// The user's name.
        user: String,
        /// The password or token.
        password: Secret,
    },
    /// A refresh token, which the registry's token service turns into access tokens.
    Identity(Secret),
}

/// What a successful build left.
#[derive(Debug, Clone, Serialize)]
pub struct BuildOutcome {
    /// `sha256:…` of the image's configuration.
    pub image_id: String,
    /// Every step that the engine named.
    pub steps: Vec<StepSummary>,
}

/// One step of a finished build, in the order in which the engine first named them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepSummary {
    /// The step's number, as in its [`Event`]s.
    pub id: u32,
    /// The step as the engine names it.
    pub name: String,
    /// What the step did.
    pub kind: StepKind,
    /// Whether it was taken from the cache.
    pub cached: bool,
    /// How long it took.
    pub seconds: f64,
}

/// An image as the engine describes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ImageInfo {
    /// `sha256:…` of its configuration.
    pub id: String,
    /// The names that it has in the engine.
    pub tags: Vec<String>,
    /// By key.
    pub labels: BTreeMap<String, String>,
    /// As OCI writes it: `amd64`.
    pub architecture: String,
    /// As OCI writes it: `linux`.
    pub os: String,
    /// Bytes of its layers.
    pub size: ImageSize,
    /// `NAME=value`, in the image's order.
    pub env: Vec<String>,
    /// RFC 3339, as the engine writes it.
    pub created: Option<String>,
}

/// Bytes of all layers of an image, as far as somebody counted them: engines with a graph driver and Podman
/// count what is unpacked, those that keep images in containerd what is packed, and newer ones of them both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSize {
    /// Compressed, as registries have them.
    #[serde(rename = "packed_size")]
    pub packed: Option<u64>,
    /// As containers see them.
    #[serde(rename = "unpacked_size")]
    pub unpacked: Option<u64>,
}

impl ImageSize {
    /// A size of which only the compressed bytes are known.
    pub fn packed(bytes: u64) -> Self {
        Self {
            packed: Some(bytes),
            unpacked: None,
        }
    }

    /// The packed size, else the unpacked one, else zero.
    pub fn bytes(&self) -> u64 {
        self.packed.or(self.unpacked).unwrap_or_default()
    }
}

/// The engine and the machine that it runs on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineInfo {
    /// The host's name.
    pub name: String,
    /// The engine's own version.
    pub server_version: String,
    /// The newest version of the API that both sides speak.
    pub api_version: String,
    /// As the kernel says it: `x86_64`, `aarch64`.
    pub architecture: String,
    /// The kernel's release: `6.1.0-18-amd64`.
    pub kernel: String,
    /// Processors that the engine may use.
    pub cpus: u32,
    /// Containers that run now.
    pub running: u32,
    /// Bytes.
    pub memory: u64,
    /// Names of the OCI runtimes that containers can be run with, sorted.
    pub runtimes: Vec<String>,
    /// Whether it hands devices to containers by CDI.
    pub cdi: bool,
    /// `overlay2`, for instance.
    pub storage_driver: String,
    /// Whether it keeps images in containerd, as they come from a registry, and not by a graph driver.
    pub in_containerd: bool,
    /// Where it keeps images, on its own machine.
    pub data: PathBuf,
    /// Whether it is Podman.
    pub is_podman: bool,
}

/// A fault of an engine that only its own project can mend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Reads after the engine's name and a colon.
    pub what: &'static str,
    /// What to do about it.
    pub help: &'static str,
    /// Who says so.
    pub source: &'static str,
}

/// A root file system that becomes an image.
#[derive(Debug, Clone, Default)]
pub struct ImportRequest {
    /// The name that the image gets.
    pub reference: String,
    /// Labels of the image, by key.
    pub labels: BTreeMap<String, String>,
    /// Variables of the image, by name.
    pub env: BTreeMap<String, String>,
    /// `os/architecture[/variant]`; the engine's own when absent.
    pub platform: Option<String>,
}

/// A container that is run to its end and removed.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// A name or id of an image that the engine has.
    pub image: String,
    /// Replaces the image's entrypoint; an empty list clears it.
    pub entrypoint: Option<Vec<String>>,
    /// Arguments of the entrypoint; the image's own when empty.
    pub cmd: Vec<String>,
    /// Variables besides the image's, by name.
    pub env: BTreeMap<String, String>,
    /// Files put into the container before it starts, with paths relative to its root.
    pub files: Vec<ContextEntry>,
    /// `SOURCE:DESTINATION[:ro]` on the engine's host.
    pub binds: Vec<String>,
    /// All GPUs of the engine's host.
    pub gpus: bool,
    /// `none`, `host`, …; the engine's default when absent.
    pub network: Option<String>,
    /// Limit in bytes, swap included.
    pub memory: Option<u64>,
    /// Size of `/dev/shm` in bytes.
    pub shm_size: Option<u64>,
    /// How much of each of stdout and stderr is kept, in bytes.
    pub output_limit: usize,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunOutcome {
    /// 128 and the signal if one ended it.
    pub exit_code: i64,
    /// Whether the kernel killed it for memory, as far as can be known.
    pub oom_killed: bool,
    /// What it printed, up to [`RunRequest::output_limit`].
    pub stdout: String,
    /// What it printed as errors, up to the same limit.
    pub stderr: String,
    /// Whether stdout or stderr went over the limit and lost its end.
    pub truncated: bool,
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nothing() {
        let request = BuildRequest {
            secrets: BTreeMap::from([("token".into(), Secret::new("hunter2-hunter2"))]),
            ..BuildRequest::default()
        };
        let shown = format!("{request:?} {request:#?}");
        assert!(shown.contains("***"));
        assert!(!shown.contains("hunter2"));
    }
}
