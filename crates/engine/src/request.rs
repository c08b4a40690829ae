//! What an engine is asked to do.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use stackforge_types::login::{Login, Secret};

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

/// A request to start a container that its user talks to, or that goes on by itself.
#[derive(Debug, Clone, Default)]
pub struct StartRequest {
    /// Name or ID of an image that the engine has.
    pub image: String,
    /// Name of the container. `None` for one that the engine makes up.
    pub name: Option<String>,
    /// Replaces the image's entrypoint, and its arguments with it.
    pub entrypoint: Option<Vec<String>>,
    /// Arguments of the entrypoint. If empty, the image's own are used.
    pub cmd: Vec<String>,
    /// Environment variables besides the image's, as `NAME=VALUE`; `NAME` alone takes the image's away.
    pub env: Vec<String>,
    /// Mounts as `SOURCE:TARGET[:OPTIONS]`, with the source on the engine's host or the name of a volume.
    pub binds: Vec<String>,
    /// Ports that the engine's host answers on.
    pub ports: Vec<Published>,
    /// Size of `/dev/shm` in bytes.
    pub shm_size: Option<u64>,
    /// Devices of the engine's host.
    pub devices: Vec<Devices>,
    /// Name of the program that starts containers. `None` for the engine's default.
    pub runtime: Option<String>,
    /// Whether a small process is process 1.
    pub init: bool,
    /// Whether the program has a terminal.
    pub terminal: bool,
}

/// A port of a container that the engine's host answers on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Address of the host. `None` for all of them.
    pub address: Option<IpAddr>,
    /// The host's port.
    pub host: u16,
    /// The container's port.
    pub inside: u16,
    /// Whether it is a port of UDP, not TCP.
    pub udp: bool,
}

/// Devices that a container gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Devices {
    /// All GPUs, by the NVIDIA Container Toolkit's hook.
    AllGpus,
    /// GPUs by index or UUID, by the NVIDIA Container Toolkit's hook.
    Gpus(Vec<String>),
    /// Devices by their names in CDI specifications.
    Cdi(Vec<String>),
}

/// The streams of a container's user.
#[derive(Debug)]
pub struct Streams<I, O, E> {
    /// What the program reads.
    pub input: I,
    /// Takes what the program writes to standard output, or to its terminal.
    pub output: O,
    /// Takes what the program writes to standard error.
    pub errors: E,
}

/// What reaches a running container besides its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// A signal, by its number.
    Signal(i32),
    /// The terminal has this size now, in characters.
    Resize {
        /// Lines.
        rows: u16,
        /// Characters of a line.
        columns: u16,
    },
}

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
