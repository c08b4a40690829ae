//! Registries: a client of the OCI distribution specification, version 1.1.
//!
//! In: references, digests, credentials as Docker and Podman store them. Out: manifests and blobs with the
//! requested digest, or an error that names what failed and what to do. Reads go to mirrors first;
//! interrupted transfers are resumed. Plain HTTP is for loopback, or where the options allow it.
//!
//! Never: returns bytes with a wrong digest as verified, sends credentials to another server than the
//! registry and its token service, shows a secret, knows about stacks.
//!
//! Nothing here spawns tasks: to cancel, drop the future.

mod attach;
mod auth;
mod blob;
pub mod challenge;
mod client;
mod connection;
mod credentials;
mod endpoint;
mod error;
mod event;
mod fetch;
mod listing;
mod manifest;
mod options;
mod pace;
mod parts;
mod patch;
mod payload;
mod publish;
mod reader;
mod transfer;
mod upload;

pub use attach::{Artifact, EMPTY};
pub use blob::BlobStream;
pub use client::Registry;
pub use credentials::{Credentials, Keychain};
pub use error::{ApiError, ApiErrors, RegistryError};
pub use event::{Event, Observer};
pub use fetch::FetchedBlob;
pub use manifest::{Descriptor, MANIFEST_TYPES, Manifest};
pub use options::{Options, PlainHttp};
pub use parts::Merged;
pub use patch::Piece;
pub use payload::Payload;
pub use publish::Published;
pub use reader::BlobReader;
pub use stackforge_types::login::{Login, Secret};
pub use stackforge_types::reference::{Reference, Repository, Tag, Target};
pub use upload::Pushed;
