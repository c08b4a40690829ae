//! How a run ended.

use serde::{Deserialize, Serialize};

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
    /// Whether [`Limits::memory`](super::Limits::memory) is in force.
    pub memory: bool,
    /// Whether [`Limits::pids`](super::Limits::pids) is in force.
    pub pids: bool,
    /// Whether [`Limits::cpus`](super::Limits::cpus) is in force.
    pub cpus: bool,
    /// Why a requested limit is not in force.
    pub reason: Option<String>,
}

/// Which IDs a program in the sandbox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// The machine's own IDs; the program runs as root.
    Real,
    /// Root is the caller, and other IDs are the caller's subordinate IDs.
    Subordinate,
    /// Root is the caller, and there is no other ID.
    Single,
}
