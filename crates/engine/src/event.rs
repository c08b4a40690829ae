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
    From,
    Run,
    Copy,
    Add,
    /// The engine writes the layers and the image's configuration.
    Export,
}

/// Something that happened during a build. Steps carry a number that is theirs for the whole
/// build, counted from 1 in the order in which the engine first named them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Connected {
        /// `Docker 20.10.24`, `Podman 4.3.1`.
        server: String,
        api: String,
    },
    /// Bytes of the context sent so far.
    Uploading { bytes: u64 },
    StepStarted {
        id: u32,
        name: String,
        kind: StepKind,
    },
    StepLog {
        id: u32,
        stream: LogStream,
        line: String,
    },
    StepProgress {
        id: u32,
        what: String,
        current: u64,
        total: Option<u64>,
    },
    StepFinished {
        id: u32,
        name: String,
        cached: bool,
        seconds: f64,
        error: Option<String>,
    },
    Warning {
        message: String,
        /// Line of the Dockerfile, counted from 1.
        line: Option<u32>,
    },
}
