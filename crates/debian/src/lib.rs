//! Debian and Ubuntu packages as verified inputs.
//!
//! The input is a suite's name, a keyring and the wanted packages. The output is a list of locked
//! packages ([`LockedDeb`]) and, from their files, one deterministic root file system. Nothing of the
//! host is used except the network: no `dpkg`, no `debootstrap`, no root.
//!
//! The chain of trust is keyring → InRelease → package index → package file, and each link is checked
//! before the next is read. This crate does not know stacks or container engines. It must never use a
//! byte that was not verified, and never name a mirror's host: the caller, the user or the host says
//! where packages come from ([`mirror`]).

mod ahead;
pub mod archive;
pub mod configure;
pub mod contents;
pub mod control;
pub mod deb;
mod dpkg;
pub mod fetch;
pub mod finish;
pub mod index;
mod members;
pub mod mirror;
mod newest;
pub mod package;
pub mod relation;
pub mod release;
pub mod resolve;
pub mod rootfs;
pub mod soname;
mod tree;
pub mod version;

pub use package::LockedDeb;
pub use stackforge_openpgp::{Keyring, KeyringError};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
