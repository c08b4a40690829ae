//! What can be wrong with a tar stream, and where in it.

use std::io;

use super::Kind;

/// A tar stream that is damaged, or that programs read differently.
#[derive(Debug, thiserror::Error)]
#[error("tar stream, offset {offset:#x}: {problem}")]
pub struct TarError {
    /// Of the header that is wrong, or of the byte that is missing.
    pub offset: u64,
    /// What is wrong there.
    #[source]
    pub problem: Problem,
}

/// What can be wrong with a tar stream. Each text completes "tar stream, offset `N`: …".
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The stream itself failed.
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    /// The stream ends within a member.
    #[error("it is cut short: {missing} more bytes are expected")]
    Short {
        /// How many bytes are expected at least.
        missing: u64,
    },
    /// A block where a header is due is not one.
    #[error("this is no tar header: its checksum is wrong")]
    Checksum,
    /// A number is not octal or base-256, or too large.
    #[error("its {0} is no number that fits")]
    Number(&'static str),
    /// The type flag is none that is known.
    #[error("its type `{}` is unknown", char::from(*.0).escape_debug())]
    Type(u8),
    /// GNU's or pax's sparse format.
    #[error("it is a sparse file; make the archive without sparse files")]
    Sparse,
    /// GNU's multi-volume format.
    #[error("it continues in another volume; join the volumes first")]
    Volumes,
    /// A name cannot be used as a path.
    #[error("its {what} `{found}` {why}")]
    Name {
        /// Which of the names.
        what: &'static str,
        /// The name, shortened.
        found: String,
        /// What is wrong with it; completes "its path `NAME` …".
        why: &'static str,
    },
    /// A hard or symbolic link has no target.
    #[error("it is a link without a target")]
    NoLink,
    /// A member that is not a file has content.
    #[error("it is a {0:?} with content, which programs read differently")]
    Content(Kind),
    /// Names or records are longer than the bound that keeps memory small.
    #[error("its name or records have {size} bytes, more than {most}")]
    Long {
        /// Bytes, as the header says.
        size: u64,
        /// The bound.
        most: u64,
    },
    /// A record of a pax header is not `LENGTH KEY=VALUE`.
    #[error("its extended header is damaged: {0}")]
    Pax(&'static str),
    /// Two headers before one member say the same thing.
    #[error("it has more than one {0}, which programs read differently")]
    Twice(&'static str),
    /// A long name or a pax header has no member after it.
    #[error("the archive ends after a header that describes another member")]
    Dangling,
    /// One zero block where the format has two at the end.
    #[error("a single zero block stands between members")]
    LoneZero,
    /// An earlier call failed.
    #[error("nothing can be read after an error")]
    Failed,
}

pub(super) fn fault(offset: u64, problem: Problem) -> TarError {
    TarError { offset, problem }
}
