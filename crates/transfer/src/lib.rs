//! Verified transfers of files and images over the network.
//!
//! [`fetch`] fetches files of known content over HTTP, [`registry`] manifests and blobs from OCI registries.
//! Only verified bytes get a final name, interrupted transfers are resumed, and no message contains a
//! credential. Everything runs on the caller's Tokio runtime; dropping a future cancels it. Sizes are in
//! bytes.

pub mod fetch;
pub mod registry;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
