//! Verified transfers of files and images over the network.
//!
//! [`fetch`] fetches files of known content over HTTP, [`registry`] manifests and blobs from OCI registries.
//! They differ in their requests, and share the rest: how often a request is tried again ([`RetryPolicy`]),
//! which failures may pass, the HTTP client, and the part file. Only verified bytes get a final name,
//! interrupted transfers are resumed, and no message contains a credential. Everything runs on the caller's Tokio runtime; dropping a future cancels it. Sizes are in
//! bytes.

mod body;
mod client;
mod failure;
pub mod fetch;
pub mod header;
mod part;
pub mod registry;
mod retry;

pub use retry::RetryPolicy;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
