//! Container engines, which run rendered builds and containers of the images that they build.
//!
//! The input is a [`BuildRequest`]: a context, a Dockerfile in it, tags, labels and secrets. The output
//! is [`Event`]s while the engine works and a [`BuildOutcome`], or an [`EngineError`] that says which
//! step failed and how. This module defines the types and does no I/O; [`docker`] talks to dockerd and
//! to Podman's socket. The crate does not know stacks. It must never let a [`Secret`] reach a layer, a
//! log or an error, and never leave a tag behind for a build that failed.

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

pub use stackforge_types::login::{Login, Secret};

/// Everything an engine needs to build one image.
#[derive(Debug, Clone, Default)]
pub struct BuildRequest {
    /// Files that the build may read, in any order. The Dockerfile is one of them.
    pub context: Vec<ContextEntry>,
    /// Path of the Dockerfile in the context.
    pub dockerfile: String,
    /// Stage to stop at. `None` for the last one.
    pub target: Option<String>,
    /// Names that the engine gives to the image once every step has succeeded.
    pub tags: Vec<String>,
    /// Labels of the image, by key.
    pub labels: BTreeMap<String, String>,
    /// Values of the Dockerfile's `ARG`s, by name.
    pub build_args: BTreeMap<String, String>,
    /// Values that `RUN --mount=type=secret,id=…` may read, by ID.
    pub secrets: BTreeMap<String, Secret>,
    /// Platform as `os/architecture[/variant]`. `None` for the engine's own.
    pub platform: Option<String>,
    /// Network of RUN steps: `default`, `host` or `none`.
    pub network: Option<String>,
    /// Whether to run every step, whatever is in the engine's cache.
    pub no_cache: bool,
    /// Images in registries whose inline cache may be reused. A missing image is ignored.
    pub cache_from: Vec<String>,
    /// Logins for registries that the engine reads from, by host (`docker.io` for Docker Hub).
    pub logins: BTreeMap<String, Login>,
}

/// A regular file of a build context, or one that is put into a container before it starts.
#[derive(Debug, Clone)]
pub struct ContextEntry {
    /// Relative path with `/` between its parts, none of which is `.` or `..`.
    pub path: String,
    /// Permission bits, such as `0o644`.
    pub mode: u32,
    /// Where the content comes from.
    pub source: Source,
}

/// Where the bytes of a [`ContextEntry`] come from.
#[derive(Clone)]
pub enum Source {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A file that is read while it is sent, and never held in memory in full.
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

/// The result of a successful build.
#[derive(Debug, Clone, Serialize)]
pub struct BuildOutcome {
    /// ID of the image: `sha256:…` of its configuration.
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
    /// Duration in seconds.
    pub seconds: f64,
}

/// An image as the engine describes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ImageInfo {
    /// ID of the image. It is the `sha256:…` of its configuration, or of its manifest in an engine that
    /// stores images in containerd.
    pub id: String,
    /// Names of the image in the engine.
    pub tags: Vec<String>,
    /// Labels of the image, by key.
    pub labels: BTreeMap<String, String>,
    /// Architecture in OCI's spelling, such as `amd64`.
    pub architecture: String,
    /// Operating system in OCI's spelling, such as `linux`.
    pub os: String,
    /// Size of its layers.
    pub size: ImageSize,
    /// Environment variables as `NAME=value`, in the image's order.
    pub env: Vec<String>,
    /// Time of creation in RFC 3339, as the engine writes it.
    pub created: Option<String>,
}

/// Size of all layers of an image in bytes, as far as the engine counts it. Engines with a graph driver
/// and Podman count the unpacked size, those that store images in containerd the packed one, and newer
/// ones of these both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSize {
    /// Compressed size, as in registries.
    #[serde(rename = "packed_size")]
    pub packed: Option<u64>,
    /// Size as containers see it.
    #[serde(rename = "unpacked_size")]
    pub unpacked: Option<u64>,
}

impl ImageSize {
    /// Creates a size of which only the compressed bytes are known.
    pub fn packed(bytes: u64) -> Self {
        Self {
            packed: Some(bytes),
            unpacked: None,
        }
    }

    /// Returns the packed size, else the unpacked one, else zero.
    pub fn bytes(&self) -> u64 {
        self.packed.or(self.unpacked).unwrap_or_default()
    }
}

/// The engine and the machine that it runs on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineInfo {
    /// Name of the host.
    pub name: String,
    /// Version of the engine.
    pub server_version: String,
    /// Newest version of the API that both sides support.
    pub api_version: String,
    /// Architecture in the kernel's spelling: `x86_64`, `aarch64`.
    pub architecture: String,
    /// Release of the kernel, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// Number of processors that the engine may use.
    pub cpus: u32,
    /// Number of running containers.
    pub running: u32,
    /// Memory of the machine in bytes.
    pub memory: u64,
    /// Names of the OCI runtimes that containers can use, sorted.
    pub runtimes: Vec<String>,
    /// Whether the engine gives devices to containers by CDI.
    pub cdi: bool,
    /// Storage driver, such as `overlay2`.
    pub storage_driver: String,
    /// Whether the engine stores images in containerd, as they come from a registry, and not with a
    /// graph driver.
    pub in_containerd: bool,
    /// Directory of the engine's images, on its own machine.
    pub data: PathBuf,
    /// Whether the engine is Podman.
    pub is_podman: bool,
}

/// A known fault of an engine that only the engine's own project can fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Description that reads well after the engine's name and a colon.
    pub what: &'static str,
    /// What to do about it.
    pub help: &'static str,
    /// Source of the information.
    pub source: &'static str,
}

/// A request to make an image from a root file system.
#[derive(Debug, Clone, Default)]
pub struct ImportRequest {
    /// Name of the new image.
    pub reference: String,
    /// Labels of the image, by key.
    pub labels: BTreeMap<String, String>,
    /// Environment variables of the image, by name.
    pub env: BTreeMap<String, String>,
    /// Platform as `os/architecture[/variant]`. `None` for the engine's own.
    pub platform: Option<String>,
}

/// A request to run a container to its end and remove it.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// Name or ID of an image that the engine has.
    pub image: String,
    /// Replaces the image's entrypoint. An empty list clears it.
    pub entrypoint: Option<Vec<String>>,
    /// Arguments of the entrypoint. If empty, the image's own are used.
    pub cmd: Vec<String>,
    /// Environment variables besides the image's, by name.
    pub env: BTreeMap<String, String>,
    /// Files that are put into the container before it starts, with paths relative to its root.
    pub files: Vec<ContextEntry>,
    /// Bind mounts as `SOURCE:DESTINATION[:ro]`, with the source on the engine's host.
    pub binds: Vec<String>,
    /// Whether the container gets all GPUs of the engine's host.
    pub gpus: bool,
    /// Network: `none`, `host`, …; `None` for the engine's default.
    pub network: Option<String>,
    /// Memory limit in bytes, including swap.
    pub memory: Option<u64>,
    /// Size of `/dev/shm` in bytes.
    pub shm_size: Option<u64>,
    /// Number of bytes of stdout, and of stderr, that are kept.
    pub output_limit: usize,
}

/// The result of a container that has ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunOutcome {
    /// Exit code; 128 plus the signal if a signal ended the container.
    pub exit_code: i64,
    /// Whether the kernel killed the container for memory, as far as that can be known.
    pub oom_killed: bool,
    /// Output of the container, up to [`RunRequest::output_limit`].
    pub stdout: String,
    /// Error output of the container, up to the same limit.
    pub stderr: String,
    /// Whether stdout or stderr exceeded the limit and was cut off.
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
