//! What happens while bytes move, for whoever shows it.

use std::sync::Arc;
use std::time::Duration;

use stackforge_types::Digest;

/// Something that happened during a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes of a blob that arrived.
    Received {
        /// The blob.
        digest: Digest,
        /// How many more.
        bytes: u64,
    },
    /// Bytes of a blob that were sent.
    Sent {
        /// The blob.
        digest: Digest,
        /// How many more.
        bytes: u64,
    },
    /// Bytes of a blob that did not have to arrive, because they were here.
    Reused {
        /// The blob.
        digest: Digest,
        /// How many.
        bytes: u64,
    },
    /// Bytes of a blob that count no more: they were damaged, or the registry lost them.
    Lost {
        /// The blob.
        digest: Digest,
        /// How many.
        bytes: u64,
    },
    /// Something failed and is tried again.
    Retrying {
        /// The error's text.
        error: String,
        /// How long the pause is.
        pause: Duration,
    },
}

/// Hears of every event; called from the transfer itself, so it must be quick.
pub type Observer = Arc<dyn Fn(Event) + Send + Sync>;
