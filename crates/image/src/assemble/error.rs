//! Why an image could not be put together or written.

use std::io;
use std::path::PathBuf;

/// Why an image cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// A document cannot be written as JSON.
    #[error("writing the image's documents as JSON")]
    Json(#[source] serde_json::Error),
    /// A file or directory cannot be used.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The directory has other content than an image layout.
    #[error("{} exists and is not an image layout; remove it or name another place", .0.display())]
    NoLayout(PathBuf),
}
