//! Errors in a tar stream, and their position.

use std::io;

use super::header::MemberKind;

/// A tar stream that is damaged, or that programs read differently.
#[derive(Debug, thiserror::Error)]
#[error("tar stream, offset {offset:#x}: {problem}")]
pub struct TarError {
    /// Offset of the wrong header, or of the missing byte.
    pub offset: u64,
    /// The problem at this offset.
    #[source]
    pub problem: Problem,
}

/// A problem of a tar stream. Each text completes "tar stream, offset `N`: …".
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The stream could not be read.
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    /// The stream ends within a member.
    #[error("it is cut short: {missing} more bytes are expected")]
    Short {
        /// Least number of missing bytes.
        missing: u64,
    },
    /// A block in the place of a header is not a header.
    #[error("this is not a tar header: its checksum is wrong")]
    Checksum,
    /// A number is not octal or base-256, or is too large.
    #[error("its {0} is not a number that fits")]
    Number(&'static str),
    /// The type flag is unknown.
    #[error("its type `{}` is unknown", char::from(*.0).escape_debug())]
    Type(u8),
    /// The member uses GNU's or pax's sparse format.
    #[error("it is a sparse file; make the archive without sparse files")]
    Sparse,
    /// The member uses GNU's multi-volume format.
    #[error("it continues in another volume; join the volumes first")]
    Volumes,
    /// A name cannot be used as a path.
    #[error("its {what} `{found}` {why}")]
    Name {
        /// The name that is wrong.
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
    Content(MemberKind),
    /// Names or records are longer than the limit that keeps memory small.
    #[error("its name or records have {size} bytes, more than {most}")]
    Long {
        /// Size in bytes according to the header.
        size: u64,
        /// The limit in bytes.
        most: u64,
    },
    /// A record of a pax header is not `LENGTH KEY=VALUE`.
    #[error("its extended header is damaged: {0}")]
    Pax(&'static str),
    /// Two headers before one member set the same thing.
    #[error("it has more than one {0}, which programs read differently")]
    Twice(&'static str),
    /// No member follows a long name or a pax header.
    #[error("the archive ends after a header that describes another member")]
    Dangling,
    /// There is one zero block instead of two at the end.
    #[error("a single zero block stands between members")]
    LoneZero,
    /// An earlier call failed.
    #[error("nothing can be read after an error")]
    Failed,
}

pub(super) fn fault(offset: u64, problem: Problem) -> TarError {
    TarError { offset, problem }
}
