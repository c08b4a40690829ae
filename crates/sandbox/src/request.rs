//! What is run: a root, a command, and what the command may access; what is archived of what it wrote.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::text;

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
    /// Who the program runs as; `None` for root.
    pub user: Option<User>,
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
    /// The executable to re-execute, whose `main` begins with [`child_main`](super::child_main); this process's own when
    /// absent.
    #[serde(skip)]
    pub launcher: Option<PathBuf>,
}

/// The IDs of a program that does not run as root. It has no capability.
///
/// Where this user has no subordinate IDs, the program has these IDs and every file of the root belongs
/// to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Further groups. They are set only with the machine's own IDs: an ordinary user's own groups stay,
    /// because one of them may grant access to a GPU.
    pub groups: Vec<u32>,
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

    pub(super) fn target(&self) -> &PathBuf {
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

/// What to archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// The directory that a run wrote to.
    #[serde(with = "text::one")]
    pub changed: PathBuf,
    /// The file that the tar is written to; it must exist.
    #[serde(with = "text::one")]
    pub out: PathBuf,
    /// The latest modification time in the tar, in seconds since 1970.
    pub latest: u64,
    /// Whether the directory is a whole root, which gets a member of its own.
    pub whole: bool,
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
            user: None,
            mounts: Vec::new(),
            stdin: Vec::new(),
            network: Network::None,
            limits: Limits::default(),
            shm_size: None,
            launcher: None,
        }
    }
}
