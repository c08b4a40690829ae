//! Files and images over the network, verified.
//!
//! [`fetch`] brings files of known content over HTTP, [`registry`] manifests and blobs from OCI
//! registries. No byte that was not verified gets a final name, what breaks off is taken up where it
//! broke, and no message holds a credential. Everything runs on a Tokio runtime of the caller's;
//! dropping a future cancels it. Sizes are in bytes.

pub mod fetch;
pub mod registry;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
