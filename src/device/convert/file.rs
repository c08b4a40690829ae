//! A foreign file's text.

use std::path::PathBuf;

/// A text file.
#[derive(Debug, Clone)]
pub struct File {
    pub path: PathBuf,
    /// Its name in messages and comments: as the user or the including file named it.
    pub shown: String,
    pub text: String,
}
