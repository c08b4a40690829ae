//! Files and images over the network, verified: wheels and packages over HTTP, blobs and manifests of OCI registries.

pub mod fetch;
pub mod registry;
