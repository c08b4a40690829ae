//! The handle of an open store, which the other files give their methods.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use stackforge_types::Digest;

/// Progress callback, called from any thread with the bytes done and the total; returns whether to go on.
pub type OnProgress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// One store. Clones share their leases: see [`Store::blob`].
#[derive(Debug, Clone)]
pub struct Store(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub root: PathBuf,
    pub prepared: AtomicBool,
    pub lease: Mutex<Option<Lease>>,
}

/// The file of a process that lists what it uses (`lease.rs`).
#[derive(Debug)]
pub(super) struct Lease {
    pub path: PathBuf,
    pub file: File,
    pub held: BTreeSet<Digest>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
