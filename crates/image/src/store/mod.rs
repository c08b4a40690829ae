//! What stackforge keeps between runs: one directory, itself an OCI image layout, safe to delete.
//!
//! In: bytes, and what a step with a key gave. Out: paths of blobs, records of steps. Wheels,
//! sdists, debs, layers, configurations and reports are blobs alike, in `blobs/sha256/`;
//! `actions/KEY.json` says which blobs a step gave, `index.json` names images, `names/HEX/FILE`
//! are links for those who need a file's own name; `unpacked/HEX/root` are directories of files. `parts/` are downloads on their way, `tmp/` and
//! `locks/` belong to whoever holds a lock there, `leases/` tell what running processes use, `begun/` what they
//! have to end elsewhere.
//! `logs/`, `last/`, `indices/` and `tools/` are plain files of other modules.
//!
//! Several processes share it. Locks are `flock`s, which go with their process, so a killed one
//! blocks nobody. Never: a final name for bytes that were not verified and on disk, the removal of
//! what a running process uses, half a file.

mod action;
mod blob;
mod clean;
mod error;
mod export;
mod images;
mod import;
mod journal;
mod layout;
mod lease;
mod list;
mod lock;
mod names;
mod place;
mod salvage;
mod save;
mod sound;
mod trees;
mod verify;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

pub use action::Action;
pub use blob::{Blob, Temp, Writer};
pub use clean::{Collected, Limits};
pub use error::StoreError;
pub use export::{Exported, Selection, Sign};
pub use images::Ref;
pub use import::{HasSigned, Imported};
pub use journal::Journal;
pub use layout::{Scratch, write_atomically};
pub use list::{Entry, Kind, Listing};
pub use lock::Alone;
pub use place::LayoutLock;
pub use save::{Save, save, save_new, stdout_is_taken};
pub use verify::{Damaged, Verified};

/// Hears how many bytes of how many are done, and says whether to go on; from any thread.
pub type Hear<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// One store. Clones share what they use: see [`Store::blob`].
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    prepared: AtomicBool,
    lease: Mutex<Option<lease::Lease>>,
}
