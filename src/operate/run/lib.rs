//! Starts an image on this device: with its container engine, or without one in namespaces.
//!
//! In: a [`Request`], what the device is, and the engine or the image at rest, which [`locate`] finds. Out: a [`Launch`],
//! the engine's command with a reason for each argument that nobody asked for, which replaces this process, or where it
//! is not there, the same by the engine's API; or [`native`], which runs the image in a sandbox and returns its exit
//! status. Decisions are pure functions of facts (`gpus.rs`, `models.rs`, `launch.rs`), so `--print` shows exactly what
//! would run. Never: gives a container the GPU in another way than it says, changes an image, leaves what a program wrote
//! behind.

mod api;
mod choice;
mod engine;
mod error;
mod gpus;
mod launch;
pub mod locate;
mod models;
pub mod native;
mod quote;
mod request;
mod setting;
pub mod shared_memory;
mod user;

pub use api::Outcome;
pub use choice::Choice;
pub use engine::{ContainerProgram, Engine};
pub use error::RunError;
pub use launch::{Launch, launch};
pub use models::Surroundings;
pub use request::{Cache, Gpus, Port, Request, Source, Variable, Volume};
pub use setting::Setting;

/// What an image says of how it is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// Its variables, as `NAME=VALUE`. `None` if they are not known.
    pub env: Option<Vec<String>>,
}
