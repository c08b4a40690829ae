//! What an engine has done, and what it says of itself and of its images.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::event::StepKind;

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
    /// The step's number, as in its [`Event`](super::Event)s.
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

/// The result of a container that has ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunOutcome {
    /// Exit code; 128 plus the signal if a signal ended the container.
    pub exit_code: i64,
    /// Whether the kernel killed the container for memory, as far as that can be known.
    pub oom_killed: bool,
    /// Output of the container, up to [`RunRequest::output_limit`](super::RunRequest::output_limit).
    pub stdout: String,
    /// Error output of the container, up to the same limit.
    pub stderr: String,
    /// Whether stdout or stderr exceeded the limit and was cut off.
    pub truncated: bool,
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
    /// User that its programs run as, as the image names it; empty for root.
    pub user: String,
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
    /// Devices that it found by CDI: `nvidia.com/gpu=0`. Docker before 28.2 does not tell.
    pub cdi_devices: Vec<String>,
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
