//! OCI images and their layers as bytes, and the store that keeps them.

pub mod assemble;
pub mod layer;
pub mod oci;
pub mod pack;
pub mod store;
pub mod unpack;
