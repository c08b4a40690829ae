//! What is published and what is pulled: images and their variants in registries, and the evidence beside them.
//!
//! In: an image of the store, a reference, a device. Out: an image in a registry, or the one that fits the
//! device, in the store, in an engine or as a root file system. A tag never shows half an image.

pub mod evidence;
pub mod publish;
pub mod pull;
