//! Runs programs in namespaces on an unpacked root file system, without a daemon.
//!
//! In: a [`Sandbox`], which is a root, a command and what the command may access. Out: the program's
//! lines while it runs ([`Sandbox::run`]) or its own way to the caller's streams, terminal and signals
//! ([`Sandbox::attach`]), and an [`Outcome`]; its writes are in an upper directory that [`changes`]
//! reads. Works as root and as an ordinary user, with and without subordinate IDs. Knows no stack and
//! no image. Never follows a link out of the root, leaves a process or a mount behind, or gives the
//! program more than was requested.
//!
//! A re-executed, single-threaded process (`child`) does the work, because a process with threads
//! cannot safely fork and change namespaces. A program that starts a sandbox must therefore call
//! [`child_main`] before anything else.

mod archive;
mod attach;
mod cgroup;
mod changes;
mod child;
mod confine;
mod descriptors;
mod error;
mod fault;
pub mod gpu;
mod identity;
mod init;
mod lines;
pub mod mountinfo;
mod outcome;
mod outputs;
mod place;
mod probe;
mod refusal;
mod request;
mod rootfs;
mod run;
mod seccomp;
mod streams;
mod stubs;
mod system;
mod terminal;
mod text;
mod wire;

pub use archive::Archive;
pub use changes::{Change, Kind, changes};
pub use child::child_main;
pub use error::SandboxError;
pub use identity::Identity;
pub use outcome::{Applied, End, Memory, Outcome};
pub use probe::{Answer, Capabilities, probe};
pub use request::{Limits, MOST_LAYERS, Mount, Network, OWN, Root, Sandbox, User, Writes};
pub use run::{archive, remove};
pub use stackforge_types::{Cancel, LogStream};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
