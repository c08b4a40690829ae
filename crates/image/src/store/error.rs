//! What can go wrong in a store, and what to do.

use stackforge_types::Digest;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{doing} {}: no space is left{}", path.display(), needed(*.missing))]
    Full {
        doing: &'static str,
        path: PathBuf,
        /// Bytes that are needed beyond those that are free, where the size was known.
        missing: Option<u64>,
        source: io::Error,
    },
    #[error("{doing} {}: the store cannot be written", path.display())]
    Denied {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("lock {}: the file system has no locks", path.display())]
    NoLocks { path: PathBuf, source: io::Error },
    #[error("no place for the store: neither STACKFORGE_STORE, XDG_CACHE_HOME nor HOME is set")]
    NoPlace,
    #[error("the store {} has format {version}, of a newer stackforge", path.display())]
    Newer { path: PathBuf, version: u32 },
    #[error("`{}` is no index of an OCI image layout: {why}", path.display())]
    Index { path: PathBuf, why: String },
    #[error("what was to be {expected} has {found}")]
    Altered {
        expected: Box<Digest>,
        found: Box<Digest>,
    },
    #[error("blob {digest} is damaged: its bytes have {found}")]
    Damaged {
        digest: Box<Digest>,
        found: Box<Digest>,
    },
    #[error("the store has no blob {0}")]
    Missing(Digest),
    #[error("`{0}` is not the name of a file")]
    Name(String),
    #[error("`{}` is not an exported cache: {why}", path.display())]
    Foreign { path: PathBuf, why: String },
    #[error("{} is not signed by that key", .0.display())]
    Unsigned(PathBuf),
    #[error("{} is in the store {}, which holds nothing but its own files", path.display(), store.display())]
    Inside { path: PathBuf, store: PathBuf },
    #[error("interrupted")]
    Interrupted,
}

fn needed(missing: Option<u64>) -> String {
    missing.map_or_else(String::new, |bytes| {
        format!(", {} MiB more are needed", bytes.div_ceil(1 << 20))
    })
}

impl StoreError {
    /// An error of the system, told apart by what it asks of the user.
    pub fn at(doing: &'static str, path: &Path, source: io::Error) -> Self {
        use io::ErrorKind::{
            FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
        };
        let path = path.to_owned();
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Self::Full {
                doing,
                path,
                missing: None,
                source,
            },
            PermissionDenied | ReadOnlyFilesystem => Self::Denied {
                doing,
                path,
                source,
            },
            _ => Self::Io {
                doing,
                path,
                source,
            },
        }
    }
}
