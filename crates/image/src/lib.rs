//! OCI images and their layers as bytes, and the store that keeps them.
//!
//! [`layer`] makes layers of wheels and [`pack`] of anything else; [`assemble`] makes an image of layers;
//! [`oci`] reads images and [`unpack`] unpacks their layers into directories; [`store`] keeps their blobs.
//! Same input, same bytes. Nothing here uses the network or runs programs. Sizes are in bytes and times in
//! seconds since 1970.

pub mod assemble;
pub mod layer;
pub mod oci;
pub mod pack;
pub mod store;
pub mod unpack;

pub use oci::Layer;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
