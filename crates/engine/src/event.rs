//! What an engine says while it works: one [`Event`] per thing that happened.
//!
//! The same events feed live bars, plain lines and JSON lines. A line in an event has no control
//! characters besides tabs and none of the build's secrets.

use serde::Serialize;
use stackforge_types::LogStream;

/// The kind of a build step that is worth showing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// A base image is made ready.
    From,
    /// A command runs.
    Run,
    /// Files are copied from the context or another stage.
    Copy,
    /// Files are added from the context or an address.
    Add,
    /// The engine writes the layers and the image's configuration.
    Export,
}

/// Something that happened during a build. Steps carry a number that is theirs for the whole
/// build, counted from 1 in the order in which the engine first named them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first event: an engine has answered.
    Connected {
        /// `Docker 20.10.24`, `Podman 4.3.1`.
        server: String,
        /// The version of the API that is spoken: `1.41`.
        api: String,
    },
    /// Bytes of the context sent so far.
    Uploading {
        /// All of them together.
        bytes: u64,
    },
    /// A step began.
    StepStarted {
        /// The step's number.
        id: u32,
        /// The step as the engine names it.
        name: String,
        /// What the step does.
        kind: StepKind,
    },
    /// A step printed a line.
    StepLog {
        /// The step's number.
        id: u32,
        /// On which stream.
        stream: LogStream,
        /// The line without its end.
        line: String,
    },
    /// A step moves bytes: a layer of a base image, for instance.
    StepProgress {
        /// The step's number.
        id: u32,
        /// What moves.
        what: String,
        /// Bytes up to now.
        current: u64,
        /// Bytes in all, if they are known.
        total: Option<u64>,
    },
    /// A step ended.
    StepFinished {
        /// The step's number.
        id: u32,
        /// The step as the engine names it.
        name: String,
        /// Whether it was taken from the cache.
        cached: bool,
        /// How long it took.
        seconds: f64,
        /// Why it failed; `None` if it did not.
        error: Option<String>,
    },
    /// The engine warns of something in the Dockerfile.
    Warning {
        /// What it says.
        message: String,
        /// Line of the Dockerfile, counted from 1.
        line: Option<u32>,
    },
}
