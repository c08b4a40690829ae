//! Programs run in namespaces on an unpacked root file system, without a daemon.
//!
//! In comes a [`Sandbox`]: a root, a command and what it may see. Out come its lines while it runs
//! and an [`Outcome`]; what it wrote lies in an upper directory that [`changes`] reads. It works as
//! root and as an ordinary user, with and without subordinate ids. It knows no stack and no image.
//! It must never follow a link of the root out of it, leave a process or a mount behind, or hand
//! the program more than it was given.
//!
//! The work is done by a re-executed, single-threaded process (`child`), for a process with
//! threads cannot safely fork and change namespaces: a program that calls [`Sandbox::run`] must
//! call [`child_main`] before anything else.

mod cgroup;
mod changes;
mod child;
mod confine;
mod error;
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

/// Most layers below one root: overlay itself takes 500.
pub const MOST_LAYERS: usize = 400;
/// Where the sandbox puts what belongs to no image: `/dev` is part of none.
pub const OWN: &str = "/dev/stackforge";

/// A program to run, and all that it gets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sandbox {
    /// What the program sees as `/`.
    pub root: Root,
    /// A program, looked up in `env`'s PATH inside the root, and its arguments.
    #[serde(with = "text::list")]
    pub command: Vec<OsString>,
    /// The whole environment: nothing of the caller's is added.
    #[serde(with = "text::map")]
    pub env: BTreeMap<OsString, OsString>,
    /// Inside the root.
    #[serde(with = "text::one")]
    pub cwd: PathBuf,
    /// In this order, after `/dev`, `/proc` and `/sys`.
    pub mounts: Vec<Mount>,
    /// What the program reads from its standard input.
    #[serde(skip)]
    pub stdin: Vec<u8>,
    /// Which network it has.
    pub network: Network,
    /// What it may take.
    pub limits: Limits,
    /// Bytes of `/dev/shm`; half of the memory when absent.
    pub shm_size: Option<u64>,
    /// The executable whose `main` begins with [`child_main`]; this process' own when absent.
    #[serde(skip)]
    pub launcher: Option<PathBuf>,
}

/// A root file system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Root {
    /// Directories over each other, lowest first, at most [`MOST_LAYERS`]. Of a single one, what
    /// is mounted below it is there as well, read-only.
    #[serde(with = "text::list")]
    pub layers: Vec<PathBuf>,
    /// Where its writes to the root go.
    pub writes: Writes,
}

/// Where what the program writes into its root goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Writes {
    /// Memory, lost at the end. An ordinary user's root with something mounted below it, as this
    /// machine's own, is read-only instead: the kernel puts no overlay over such.
    Discard,
    /// This directory, made if need be; its file system keeps extended attributes. A directory of
    /// the same name with `.work` at its end is used during the run.
    Keep(#[serde(with = "text::one")] PathBuf),
    /// The root's only layer itself.
    InPlace,
}

/// Something that the sandbox has besides its root. A target is an absolute path inside, without
/// `..`; it is made if it is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mount {
    /// A file or directory of the host, with what is mounted below it.
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
    /// An empty directory in memory, for everybody as `/tmp` is.
    Tmpfs {
        /// The path inside.
        #[serde(with = "text::one")]
        target: PathBuf,
        /// Bytes; half of the memory when absent.
        size: Option<u64>,
    },
    /// A directory in memory with these files, to read: paths in it, each with its text.
    Files {
        /// The path inside.
        #[serde(with = "text::one")]
        target: PathBuf,
        /// The text of each file, by its path relative to `target`.
        files: BTreeMap<String, String>,
    },
    /// A symbolic link that is gone after the run; one that is there already stays.
    Link {
        /// The path of the link.
        #[serde(with = "text::one")]
        target: PathBuf,
        /// What the link says, as written.
        #[serde(with = "text::one")]
        to: PathBuf,
    },
}

impl Mount {
    /// A read-only bind.
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

/// Which network a program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// A loopback interface of its own.
    None,
    /// The host's, with its `/etc/resolv.conf` and `/etc/hosts`.
    Host,
}

/// What the program and all that it starts may take together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes, swap included.
    pub memory: Option<u64>,
    /// Processes and threads at a time.
    pub pids: Option<u64>,
    /// Processors, `1.5` for instance.
    pub cpus: Option<f64>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How the program ended.
    pub end: End,
    /// Whether it ended for want of memory.
    pub memory: Memory,
    /// Which limits it ran under.
    pub limits: Applied,
    /// As whom it ran.
    pub identity: Identity,
}

impl Outcome {
    /// The exit code as shells give it: 128 and the signal where one ended the program.
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
    /// With this exit code, 0 to 255.
    Exited(i32),
    /// By this signal, as the kernel numbers it.
    Signalled(i32),
}

/// Whether memory ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// Nothing says that it ran out.
    Enough,
    /// The kernel counted a kill for memory, and the program failed.
    KilledFor,
    /// The program, or one that it waited for, got SIGKILL from outside, and nothing counts why:
    /// mostly for memory.
    MaybeKilledFor,
}

/// Which of the limits that were asked for hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Whether [`Limits::memory`] holds.
    pub memory: bool,
    /// Whether [`Limits::pids`] holds.
    pub pids: bool,
    /// Whether [`Limits::cpus`] holds.
    pub cpus: bool,
    /// Why one does not.
    pub reason: Option<String>,
}

impl Root {
    /// An existing root file system that stays as it is.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Root {
            layers: vec![path.into()],
            writes: Writes::Discard,
        }
    }

    /// Unpacked layers, lowest first; what is written goes to `upper`.
    pub fn layers(layers: Vec<PathBuf>, upper: impl Into<PathBuf>) -> Self {
        Root {
            layers,
            writes: Writes::Keep(upper.into()),
        }
    }
}

impl Sandbox {
    /// A command in a root, with a usual PATH and nothing else: `/` as its directory, an empty
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
