//! What a path below a directory may lead through.

/// What a path may lead through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// Directories alone: a symbolic link is `ELOOP`, a way out of the directory `EXDEV`.
    Folders,
    /// The same on one mount; another one is `EXDEV`.
    OneMount,
    /// Symbolic links too, followed as if the directory were `/`.
    Root,
}
