//! What the command line says of a store's errors.

use stackforge_image::store::StoreError;

use super::{Code, Explained, codes};

impl Explained for StoreError {
    fn code(&self) -> Code {
        match self {
            Self::Full { .. } => codes::NO_SPACE,
            Self::Denied { .. } => codes::STORE_DENIED,
            Self::NoLocks { .. } => codes::STORE_NO_LOCKS,
            Self::Newer { .. } => codes::STORE_NEWER,
            Self::Altered { .. } | Self::Damaged { .. } | Self::Missing(_) | Self::Index { .. } => {
                codes::STORE_DAMAGED
            }
            Self::Foreign { .. } | Self::Name(_) => codes::NO_EXPORTED_CACHE,
            Self::Unsigned(_) => codes::UNSIGNED_CACHE,
            Self::Inside { .. } => codes::BAD_VALUE,
            Self::Interrupted => codes::INTERRUPTED,
            Self::Io { .. } | Self::NoPlace => codes::STORE_IO,
        }
    }

    fn help(&self) -> &'static str {
        match self {
            Self::Full { .. } => {
                "free space there, let `stackforge cache gc --max-size SIZE` do so, or name another directory with `--store`"
            }
            Self::Denied { .. } => {
                "change its owner or mode, or name another directory with `--store`"
            }
            Self::NoLocks { .. } => "put the store on a local file system with `--store`",
            Self::NoPlace => "set one of them, or name a directory with `--store`",
            Self::Newer { .. } => "update stackforge, or name another directory with `--store`",
            Self::Index { .. } | Self::Damaged { .. } | Self::Altered { .. } | Self::Missing(_) => {
                "`stackforge cache verify --repair` removes what is damaged, and the next run makes or fetches it again"
            }
            Self::Foreign { .. } | Self::Name(_) => {
                "name what `stackforge cache export` wrote, a directory or an uncompressed archive"
            }
            Self::Unsigned(_) => {
                "write it with `stackforge cache export --key`, or import it without `--verify`: then its blobs are taken and its steps are made again"
            }
            Self::Inside { .. } => "name a place outside of the store",
            Self::Interrupted => "run it again: what was finished is kept",
            Self::Io { .. } => {
                "check permissions and free space, or name another directory with `--store`"
            }
        }
    }

    fn exit(&self) -> u8 {
        match self {
            Self::Interrupted => 130,
            Self::Foreign { .. } | Self::Name(_) | Self::Inside { .. } => 2,
            Self::Altered { .. }
            | Self::Damaged { .. }
            | Self::Missing(_)
            | Self::Index { .. }
            | Self::Unsigned(_) => 1,
            _ => 3,
        }
    }
}
