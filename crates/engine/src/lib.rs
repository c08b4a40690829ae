//! Container engines, which run rendered builds and containers of the images that they build.
//!
//! The input is a [`BuildRequest`]: a context, a Dockerfile in it, tags, labels and secrets. The output
//! is [`Event`]s while the engine works and a [`BuildOutcome`], or an [`EngineError`] that says which
//! step failed and how. The types do no I/O; [`docker`] talks to dockerd and
//! to Podman's socket. The crate does not know stacks. It must never let a [`Secret`] reach a layer, a
//! log or an error, and never leave a tag behind for a build that failed.

pub mod docker;
mod error;
mod event;
mod notes;
mod outcome;
mod request;

pub use error::{EngineError, StepFailure};
pub use event::{Event, StepKind};
pub use notes::{Notes, Temporary};
pub use outcome::{BuildOutcome, EngineInfo, Fault, ImageInfo, ImageSize, RunOutcome, StepSummary};
pub use request::{
    BuildRequest, ContextEntry, Control, Devices, ImportRequest, Published, RunRequest, Source,
    StartRequest, Streams,
};
pub use stackforge_types::{Cancel, LogStream};

pub use stackforge_types::login::{Login, Secret};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
