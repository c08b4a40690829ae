//! What can go wrong in a store, and what to do.

use stackforge_types::Digest;
use std::io;
use std::path::{Path, PathBuf};

/// Why a store cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory of the store fails.
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
        /// Bytes that are needed beyond those that are free, where the size was known.
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
    /// Two processes could spoil each other's work.
    #[error("lock {}: the file system has no locks", path.display())]
    NoLocks {
        /// The file to lock.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Nobody named a directory.
    #[error("no place for the store: neither STACKFORGE_STORE, XDG_CACHE_HOME nor HOME is set")]
    NoPlace,
    /// An older program must not touch it.
    #[error("the store {} has format {version}, of a newer stackforge", path.display())]
    Newer {
        /// The store.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
    /// The store's `index.json` was changed by others.
    #[error("`{}` is no index of an OCI image layout: {why}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What was to be kept has another digest. Nothing of it was kept.
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
    /// The blob.
    #[error("the store has no blob {0}")]
    Missing(Digest),
    /// The name, as given.
    #[error("`{0}` is not the name of a file")]
    Name(String),
    /// It does not have the parts of an export.
    #[error("`{}` is not an exported cache: {why}", path.display())]
    Foreign {
        /// The file or directory.
        path: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// The signature is missing, or of another key.
    #[error("{} is not signed by that key", .0.display())]
    Unsigned(PathBuf),
    /// Something is to be written into the store's own directory.
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
