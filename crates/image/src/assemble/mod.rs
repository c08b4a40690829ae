//! Makes an image of layers that exist as blobs and of its metadata.
//!
//! In: a [`Draft`]: a base's configuration and layers, more [`Layer`](crate::Layer)s, environment,
//! labels. Out: an [`Assembled`] with its two documents, and its [outputs](output): layouts and archives
//! that other programs read. The same draft gives the same bytes: no clock, no host, maps sorted by key. Never reads or
//! changes a layer's content.
//!
//! Sources: OCI's image specification 1.1 (manifest, config, image-layout), Docker's image
//! specification 1.2 for `manifest.json` in archives.

mod draft;
mod error;
pub mod output;
#[cfg(test)]
mod tests;

pub use draft::{Assembled, CONFIG, Draft, MANIFEST};
pub use error::AssembleError;
