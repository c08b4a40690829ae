//! The common nouns of container images for GPUs.
//!
//! Values that are parsed once, where they enter the program, and are always valid afterwards: [`Digest`],
//! [`Platform`], [`Sm`] (compute capability), [`PythonVersion`], image [`reference`]s and [`wheel`] names.
//! Besides them what every layer above needs: [`printable`] text, a machine's files below its [`root`]
//! directory, [`date`]s, [`yaml`] of bounded depth, a [`login`] whose secrets are never shown, a [`Cancel`] that can be shared, files
//! [`beneath`] a directory, [`remove`], which removes a directory of any depth, and what differs between operating
//! [`system`]s.

pub mod beneath;
mod cancel;
pub mod date;
pub mod digest;
pub mod login;
mod nouns;
pub mod printable;
pub mod reference;
mod remove;
pub mod root;
mod sha256;
mod stream;
pub mod system;
pub mod wheel;
mod within;
pub mod yaml;

pub use cancel::Cancel;
pub use digest::Digest;
pub use nouns::{
    IsaName, LibraryName, Malformed, OsPackage, Platform, PythonVersion, Sm, StackName, Suffix,
    malformed,
};
pub use remove::{remove, remove_at};
pub use sha256::Sha256;
pub use stream::LogStream;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
