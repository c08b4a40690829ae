//! Debian and Ubuntu packages as verified inputs.
//!
//! In come a suite's name, a keyring, and wanted packages; out go locked packages
//! ([`LockedDeb`]) and, from their files, one deterministic root file system. Nothing of the
//! host is used but the network: no `dpkg`, no `debootstrap`, no root.
//!
//! The chain of trust is keyring → InRelease → package index → package file, each link checked
//! before the next is read. This module knows no stack and no container engine, and it must never
//! use a byte that was not verified, nor name a mirror's host: where packages come from is the
//! caller's, the user's or the host's to say ([`mirror`]).

mod ahead;
pub mod archive;
pub mod configure;
pub mod control;
pub mod deb;
pub mod download;
mod dpkg;
pub mod fetch;
pub mod finish;
pub mod index;
pub mod keyring;
mod members;
pub mod mirror;
mod newest;
pub mod package;
pub mod relation;
pub mod release;
pub mod resolve;
pub mod rootfs;
mod tarball;
mod tree;
pub mod version;

pub use package::LockedDeb;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
