//! The Docker engine: dockerd (20.10 or newer), and Podman's socket as far as it can.
//!
//! The input is the types of this crate's root; requests go over HTTP on a [`dial::Wire`]: a Unix
//! socket, TCP, TLS or ssh. Dropping a future closes its stream, which stops the engine's work. What a
//! call creates besides its result (containers, sessions) must never outlive it.

mod address;
mod answer;
mod build;
mod build_log;
mod candidates;
mod client;
mod container;
mod context;
mod contexts;
mod dial;
mod dockerfile;
mod failure;
mod faults;
mod files;
mod image;
mod interactive;
mod kinds;
mod lines;
mod load;
mod podman;
mod progress;
mod push;
mod reference;
mod session;
mod step;
mod temporary;

pub use client::Docker;
pub use files::Files;
pub use kinds::FileKind;
