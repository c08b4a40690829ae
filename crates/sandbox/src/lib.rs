//! Runs programs in namespaces on an unpacked root file system, without a daemon.
//!
//! In: a [`Sandbox`], which is a root, a command and what the command may access. Out: the program's
//! lines while it runs, and an [`Outcome`]; its writes are in an upper directory that [`changes`]
//! reads. Works as root and as an ordinary user, with and without subordinate IDs. Knows no stack and
//! no image. Never follows a link out of the root, leaves a process or a mount behind, or gives the
//! program more than was requested.
//!
//! A re-executed, single-threaded process (`child`) does the work, because a process with threads
//! cannot safely fork and change namespaces. A program that calls [`Sandbox::run`] must therefore call
//! [`child_main`] before anything else.

mod cgroup;
mod changes;
mod child;
mod confine;
mod error;
mod fault;
pub mod gpu;
mod identity;
mod init;
mod lines;
pub mod mountinfo;
mod place;
mod probe;
mod rootfs;
mod run;
mod seccomp;
mod stubs;
mod system;
mod text;
mod wire;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use changes::{Change, Kind, changes};
pub use child::child_main;
pub use error::SandboxError;
pub use identity::Identity;
pub use probe::{Answer, Capabilities, probe};
pub use run::remove;
pub use stackforge_types::{Cancel, LogStream};

/// Most layers of one root; overlay itself takes 500.
pub const MOST_LAYERS: usize = 400;
/// Directory for the sandbox's own mounts. No image has files there: `/dev` is part of none.
pub const OWN: &str = "/dev/stackforge";

/// A program to run, and everything that it gets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sandbox {
    /// The file system that the program sees as `/`.
    pub root: Root,
    /// The program, looked up in the PATH of `env` inside the root, and its arguments.
    #[serde(with = "text::list")]
    pub command: Vec<OsString>,
    /// The whole environment; none of the caller's variables is added.
    #[serde(with = "text::map")]
    pub env: BTreeMap<OsString, OsString>,
    /// The working directory, inside the root.
    #[serde(with = "text::one")]
    pub cwd: PathBuf,
    /// Mounts, made in this order after `/dev`, `/proc` and `/sys`.
    pub mounts: Vec<Mount>,
    /// The program's standard input.
    #[serde(skip)]
    pub stdin: Vec<u8>,
    /// The network that the program can use.
    pub network: Network,
    /// Upper bounds on resources.
    pub limits: Limits,
    /// Size of `/dev/shm` in bytes; half of the memory when absent.
    pub shm_size: Option<u64>,
    /// The executable to re-execute, whose `main` begins with [`child_main`]; this process's own when
    /// absent.
    #[serde(skip)]
    pub launcher: Option<PathBuf>,
}

/// A root file system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Root {
    /// Layer directories, lowest first, at most [`MOST_LAYERS`]. With a single layer, file systems
    /// mounted below it are visible too, read-only.
    #[serde(with = "text::list")]
    pub layers: Vec<PathBuf>,
    /// Where the program's writes to the root go.
    pub writes: Writes,
}

/// Where the program's writes to its root go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Writes {
    /// To memory; they are lost at the end. For an ordinary user, a root with something mounted below
    /// it, such as this machine's own, is read-only instead: the kernel refuses an overlay on it.
    Discard,
    /// To this directory, which is created if it is missing and whose file system must support extended
    /// attributes. A sibling directory with `.work` appended to its name is used during the run.
    Keep(#[serde(with = "text::one")] PathBuf),
    /// To the root's only layer itself.
    InPlace,
}

/// A mount or link that the sandbox has besides its root. A target is an absolute path inside the
/// sandbox, without `..`; it is created if it is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mount {
    /// A file or directory of the host, including what is mounted below it.
    Bind {
        /// The path on the host.
        #[serde(with = "text::one")]
        source: PathBuf,
        /// The path inside.
        #[serde(with = "text::one")]
        target: PathBuf,
        /// Whether the program may write to it.
        writable: bool,
    },
    /// An empty directory in memory, writable by everyone as `/tmp` is.
    Tmpfs {
        /// The path inside.
        #[serde(with = "text::one")]
        target: PathBuf,
        /// Size in bytes; half of the memory when absent.
        size: Option<u64>,
    },
    /// A read-only directory in memory with these files.
    Files {
        /// The path inside.
        #[serde(with = "text::one")]
        target: PathBuf,
        /// The text of each file, by its path relative to `target`.
        files: BTreeMap<String, String>,
    },
    /// A symbolic link that is removed after the run. An existing file or link stays.
    Link {
        /// The path of the link.
        #[serde(with = "text::one")]
        target: PathBuf,
        /// The target of the link, as written.
        #[serde(with = "text::one")]
        to: PathBuf,
    },
}

impl Mount {
    /// Returns a read-only bind mount.
    pub fn read_only(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Mount::Bind {
            source: source.into(),
            target: target.into(),
            writable: false,
        }
    }

    fn target(&self) -> &PathBuf {
        match self {
            Mount::Bind { target, .. }
            | Mount::Tmpfs { target, .. }
            | Mount::Files { target, .. }
            | Mount::Link { target, .. } => target,
        }
    }
}

/// The network that a program can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Only a loopback interface of its own.
    None,
    /// The host's network, with its `/etc/resolv.conf` and `/etc/hosts`.
    Host,
}

/// Upper bounds on what the program and all processes that it starts use together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory in bytes, swap included.
    pub memory: Option<u64>,
    /// Processes and threads at one time.
    pub pids: Option<u64>,
    /// Processors, for example `1.5`.
    pub cpus: Option<f64>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How the program ended.
    pub end: End,
    /// Whether the program ended because memory ran out.
    pub memory: Memory,
    /// The limits that were in force.
    pub limits: Applied,
    /// The IDs that it ran with.
    pub identity: Identity,
}

impl Outcome {
    /// The exit status as shells report it: 128 plus the signal number if a signal ended the program.
    pub fn code(&self) -> i32 {
        match self.end {
            End::Exited(code) => code,
            End::Signalled(signal) => 128 + signal,
        }
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It exited with this status, 0 to 255.
    Exited(i32),
    /// It was ended by the signal with this number.
    Signalled(i32),
}

/// Whether memory ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// Nothing shows that memory ran out.
    Enough,
    /// The kernel counted an OOM kill, and the program failed.
    KilledFor,
    /// The program, or one that it waited for, got SIGKILL from outside and no counter gives the
    /// reason. The usual reason is lack of memory.
    MaybeKilledFor,
}

/// Which of the requested limits are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Whether [`Limits::memory`] is in force.
    pub memory: bool,
    /// Whether [`Limits::pids`] is in force.
    pub pids: bool,
    /// Whether [`Limits::cpus`] is in force.
    pub cpus: bool,
    /// Why a requested limit is not in force.
    pub reason: Option<String>,
}

impl Root {
    /// An existing root file system, which is not changed.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Root {
            layers: vec![path.into()],
            writes: Writes::Discard,
        }
    }

    /// Unpacked layers, lowest first; writes go to `upper`.
    pub fn layers(layers: Vec<PathBuf>, upper: impl Into<PathBuf>) -> Self {
        Root {
            layers,
            writes: Writes::Keep(upper.into()),
        }
    }
}

impl Sandbox {
    /// A command in a root, with a usual PATH and nothing else: `/` as its working directory, an empty
    /// standard input, no network and no limits.
    pub fn new<S: Into<OsString>>(root: Root, command: impl IntoIterator<Item = S>) -> Self {
        Sandbox {
            root,
            command: command.into_iter().map(Into::into).collect(),
            env: BTreeMap::from([(
                "PATH".into(),
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
            )]),
            cwd: "/".into(),
            mounts: Vec::new(),
            stdin: Vec::new(),
            network: Network::None,
            limits: Limits::default(),
            shm_size: None,
            launcher: None,
        }
    }
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
