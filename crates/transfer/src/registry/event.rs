//! Progress events of transfers.

use std::sync::Arc;
use std::time::Duration;

use stackforge_types::Digest;

/// A progress event of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes of a blob that arrived.
    Received {
        /// The blob.
        digest: Digest,
        /// Bytes since the last event.
        bytes: u64,
    },
    /// Bytes of a blob that were sent.
    Sent {
        /// The blob.
        digest: Digest,
        /// How many more.
        bytes: u64,
    },
    /// Bytes of a blob that were not fetched because they were already here.
    Reused {
        /// The blob.
        digest: Digest,
        /// How many.
        bytes: u64,
    },
    /// Bytes that no longer count: they were damaged, or the registry lost them.
    Lost {
        /// The blob.
        digest: Digest,
        /// How many.
        bytes: u64,
    },
    /// A request failed and is tried again.
    Retrying {
        /// The error's text.
        error: String,
        /// How long the pause before the next attempt is.
        pause: Duration,
    },
}

/// Receives every event. Called from within the transfer, so it must return quickly.
pub type Observer = Arc<dyn Fn(Event) + Send + Sync>;
