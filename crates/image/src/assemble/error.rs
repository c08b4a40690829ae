//! Why an image could not be put together or written.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    #[error("writing the image's documents as JSON")]
    Json(#[source] serde_json::Error),
    #[error("{doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is there and is no image layout; remove it or name another place", .0.display())]
    NoLayout(PathBuf),
}
