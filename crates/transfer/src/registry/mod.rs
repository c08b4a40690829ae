//! Registries: a client of the OCI distribution specification, version 1.1.
//!
//! In: references, digests, credentials as Docker and Podman keep them. Out: manifests and blobs
//! that have the digest they were asked by, or an error that names what failed and what to do. Reads
//! go to mirrors first; what breaks off is taken up where it broke. Plain HTTP is for loopback, or
//! where it was asked for.
//!
//! Never: bytes whose digest is wrong are handed out as right, credentials go to another server than
//! the registry and its token service, a secret is shown, a stack is known.
//!
//! Nothing here spawns tasks: to cancel, drop the future.

mod attach;
mod auth;
mod blob;
mod body;
pub mod challenge;
mod client;
mod connection;
mod credentials;
mod endpoint;
mod error;
mod event;
mod fetch;
pub mod header;
mod listing;
mod manifest;
mod pace;
mod parts;
mod patch;
mod publish;
mod reader;
mod retry;
mod transfer;
mod upload;

pub use attach::{Artifact, EMPTY};
pub use blob::BlobStream;
pub use client::{Options, PlainHttp, Registry};
pub use credentials::{Credentials, Keychain, Login, Secret};
pub use error::{ApiError, ApiErrors, RegistryError};
pub use event::{Event, Observer};
pub use fetch::Fetched;
pub use manifest::{Descriptor, MANIFEST_TYPES, Manifest};
pub use parts::Merged;
pub use patch::Piece;
pub use publish::Published;
pub use reader::BlobReader;
pub use retry::Patience;
pub use stackforge_types::reference::{Reference, Repository, Tag, Target};
pub use upload::{Payload, Pushed};
