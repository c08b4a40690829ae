//! What can go wrong in a store, and what to do about it.

use stackforge_types::Digest;
use std::io;
use std::path::{Path, PathBuf};

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An operation on a file or directory of the store failed.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The disk or the user's quota is full.
    #[error("{doing} {}: no space is left{}", path.display(), needed(*.missing))]
    Full {
        /// What was being done.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Missing bytes, beyond those that are free, if the size was known.
        missing: Option<u64>,
        /// What the operating system says.
        source: io::Error,
    },
    /// The user may not write there.
    #[error("{doing} {}: the store cannot be written", path.display())]
    Denied {
        /// What was being done.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The file system has no locks, so two processes could damage each other's work.
    #[error("lock {}: the file system has no locks", path.display())]
    NoLocks {
        /// The file to lock.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// No directory was given and none can be derived from the environment.
    #[error("no place for the store: neither STACKFORGE_STORE, XDG_CACHE_HOME nor HOME is set")]
    NoPlace,
    /// The store has a newer format, which an older program must not change.
    #[error("the store {} has format {version}, of a newer stackforge", path.display())]
    Newer {
        /// The store.
        path: PathBuf,
        /// The store's format version.
        version: u32,
    },
    /// The store's `index.json` is invalid, because another program changed it.
    #[error("`{}` is not an index of an OCI image layout: {why}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Content to be stored has another digest. Nothing of it was kept.
    #[error("what was to be {expected} has {found}")]
    Altered {
        /// The digest that it should have.
        expected: Box<Digest>,
        /// The digest that it has.
        found: Box<Digest>,
    },
    /// A blob of the store was changed.
    #[error("blob {digest} is damaged: its bytes have {found}")]
    Damaged {
        /// The blob.
        digest: Box<Digest>,
        /// The digest of its bytes.
        found: Box<Digest>,
    },
    /// The missing blob.
    #[error("the store has no blob {0}")]
    Missing(Digest),
    /// The invalid name, as given.
    #[error("`{0}` is not the name of a file")]
    Name(String),
    /// The file or directory is not an export.
    #[error("`{}` is not an exported cache: {why}", path.display())]
    Foreign {
        /// The file or directory.
        path: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// The signature is missing, or made by another key, or does not cover an image that is there.
    #[error("{} is not signed by that key, or not all of it", .0.display())]
    Unsigned(PathBuf),
    /// An output would be written into the store's own directory.
    #[error("{} is in the store {}, which holds nothing but its own files", path.display(), store.display())]
    Inside {
        /// The path.
        path: PathBuf,
        /// The store.
        store: PathBuf,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

fn needed(missing: Option<u64>) -> String {
    missing.map_or_else(String::new, |bytes| {
        format!(", {} MiB more are needed", bytes.div_ceil(1 << 20))
    })
}

impl StoreError {
    /// Maps an error of the system to the variant that tells the user what to do.
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
