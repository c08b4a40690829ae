//! What stackforge keeps between runs: one directory, itself an OCI image layout, safe to delete.
//!
//! In: bytes, and the results of steps by key. Out: paths of blobs, records of steps. Wheels, sdists, debs,
//! layers, configurations and reports are all blobs in `blobs/sha256/`; `actions/KEY.json` names the blobs
//! that a step made, `index.json` names images, `names/HEX/FILE` are links for programs that need a file's
//! own name; `unpacked/HEX/root` are directories of files. `parts/` are unfinished downloads, `tmp/` and
//! `locks/` belong to the processes that hold the locks there, `leases/` list what running processes use,
//! `begun/` what they began elsewhere and have to end there.
//! `logs/`, `last/`, `indices/` and `tools/` are plain files of other modules.
//!
//! Several processes share it. Locks are `flock`s, which end with their process, so a killed one
//! blocks nobody. Never: gives a final name to bytes that were not verified and synced to disk, removes what
//! a running process uses, leaves a file half written.

mod action;
mod blob;
mod clean;
mod error;
mod export;
mod files;
mod handle;
mod images;
mod import;
mod journal;
mod layout;
mod lease;
mod list;
mod lock;
mod names;
mod objects;
mod place;
mod salvage;
mod save;
mod sound;
mod trees;
mod verify;

pub use action::Action;
pub use blob::{Blob, Temp, Writer};
pub use clean::{Collected, Limits};
pub use error::StoreError;
pub use export::{Exported, Selection, Sign};
pub use files::write_atomically;
pub use handle::{OnProgress, Store};
pub use images::Ref;
pub use import::{HasSigned, Imported};
pub use journal::Journal;
pub use layout::Scratch;
pub use list::{Entry, EntryKind, Listing};
pub use lock::Alone;
pub use objects::ObjectFolder;
pub use place::LayoutLock;
pub use save::{Save, save, save_new, stdout_has_output};
pub use trees::UnnamedTree;
pub use verify::{Damaged, DamagedObject, Verified};
