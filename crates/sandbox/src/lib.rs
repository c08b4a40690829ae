//! Runs programs in namespaces on an unpacked root file system, without a daemon.
//!
//! In: a [`Sandbox`], which is a root, a command and what the command may access. Out: the program's
//! lines while it runs ([`Sandbox::run`]) or its own way to the caller's streams, terminal and signals
//! ([`Sandbox::attach`]), and an [`Outcome`]; its writes are in an upper directory that [`changes`]
//! reads. Works as root and as an ordinary user, with and without subordinate IDs. Knows no stack and
//! no image. Never follows a link out of the root, leaves a process or a mount behind, or gives the
//! program more than was requested.
//!
//! A re-executed, single-threaded process (`linux/child.rs`) does the work, because a process with threads
//! cannot safely fork and change namespaces. A program that starts a sandbox must therefore call
//! [`child_main`] before anything else.
//!
//! Other systems than Linux have no namespaces: there every run ends with [`SandboxError::NotLinux`].

mod capabilities;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
mod error;
pub mod gpu;
#[cfg(target_os = "linux")]
mod linux;
pub mod mountinfo;
mod outcome;
mod request;
mod text;

#[cfg(not(target_os = "linux"))]
use elsewhere as own;
#[cfg(target_os = "linux")]
use linux as own;

pub use capabilities::{Answer, Capabilities};
pub use error::SandboxError;
#[cfg(target_os = "linux")]
pub use linux::{Change, ChangeKind, changes};
pub use outcome::{Applied, End, Identity, Memory, Outcome};
pub use own::{archive, child_main, probe, remove, supported};
pub use request::{Archive, Limits, MOST_LAYERS, Mount, Network, OWN, Root, Sandbox, User, Writes};
pub use stackforge_types::{Cancel, LogStream};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
