//! What can be wrong with a tar stream, and where in it.

use std::io;

use super::Kind;

#[derive(Debug, thiserror::Error)]
#[error("tar stream, offset {offset:#x}: {problem}")]
pub struct TarError {
    /// Of the header that is wrong, or of the byte that is missing.
    pub offset: u64,
    #[source]
    pub problem: Problem,
}

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    #[error("it is cut short: {missing} more bytes are expected")]
    Short { missing: u64 },
    #[error("this is no tar header: its checksum is wrong")]
    Checksum,
    #[error("its {0} is no number that fits")]
    Number(&'static str),
    #[error("its type `{}` is unknown", char::from(*.0).escape_debug())]
    Type(u8),
    #[error("it is a sparse file; make the archive without sparse files")]
    Sparse,
    #[error("it continues in another volume; join the volumes first")]
    Volumes,
    #[error("its {what} `{found}` {why}")]
    Name {
        what: &'static str,
        found: String,
        why: &'static str,
    },
    #[error("it is a link without a target")]
    NoLink,
    #[error("it is a {0:?} with content, which programs read differently")]
    Content(Kind),
    #[error("its name or records have {size} bytes, more than {most}")]
    Long { size: u64, most: u64 },
    #[error("its extended header is damaged: {0}")]
    Pax(&'static str),
    #[error("it has more than one {0}, which programs read differently")]
    Twice(&'static str),
    #[error("the archive ends after a header that describes another member")]
    Dangling,
    #[error("a single zero block stands between members")]
    LoneZero,
    #[error("nothing can be read after an error")]
    Failed,
}

pub(super) fn fault(offset: u64, problem: Problem) -> TarError {
    TarError { offset, problem }
}
