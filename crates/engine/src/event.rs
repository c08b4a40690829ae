//! Progress of an engine: one [`Event`] per thing that happens.
//!
//! The same events feed live bars, plain lines and JSON lines. A line in an event has no control
//! characters besides tabs, and none of the build's secrets.

use serde::Serialize;
use stackforge_types::LogStream;

/// The kind of a build step that is shown to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// Prepares a base image.
    From,
    /// Runs a command.
    Run,
    /// Copies files from the context or another stage.
    Copy,
    /// Adds files from the context or a URL.
    Add,
    /// Writes the layers and the image's configuration.
    Export,
    /// Makes one layer without a container engine. Most such steps are short.
    Layer,
}

/// Something that happened during a build. A step keeps its number for the whole build; steps are
/// counted from 1 in the order in which the engine first named them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// An engine has answered. This is the first event.
    Connected {
        /// The engine and its version: `Docker 20.10.24`, `Podman 4.3.1`.
        server: String,
        /// Version of the API in use, such as `1.41`.
        api: String,
    },
    /// Part of the context was sent.
    Uploading {
        /// Bytes sent so far.
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
        /// The stream that the line was printed on.
        stream: LogStream,
        /// The line without its line break.
        line: String,
    },
    /// A step transfers bytes, for instance a layer of a base image.
    StepProgress {
        /// The step's number.
        id: u32,
        /// What is transferred.
        what: String,
        /// Bytes transferred so far.
        current: u64,
        /// Bytes in total, if known.
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
        /// Duration in seconds.
        seconds: f64,
        /// Why the step failed. `None` if it did not.
        error: Option<String>,
    },
    /// The engine warns of something in the Dockerfile.
    Warning {
        /// Text of the warning.
        message: String,
        /// Line of the Dockerfile, counted from 1.
        line: Option<u32>,
    },
}
