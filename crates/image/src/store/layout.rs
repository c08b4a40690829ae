//! The store's directory: where it is, what makes it a store and an OCI image layout, and the leftovers of
//! killed processes.

use super::error::StoreError;
use super::files::{entries, weight, write_new};
use super::handle::{Inner, Store};
use super::lock::{is_at, try_lock};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// Version of the store's format; a stackforge that knows only lower ones does not use the store.
const FORMAT: u32 = 1;
const FORMAT_FILE: &str = "store.json";
const LAYOUT: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";
/// Marks a cache for programs that copy folders (Cache Directory Tagging Specification).
const CACHE: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# What stackforge made and fetched: `stackforge cache` shows it.\n";
pub(super) const EMPTY_INDEX: &str = "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[]}";
/// Folder with the notes on blobs that were read against their digests.
pub(super) const VERIFIED: &str = "verified";
const FOLDERS: [&str; 8] = [
    "blobs/sha256",
    "actions",
    "names",
    "parts",
    "tmp",
    "locks",
    "leases",
    VERIFIED,
];

#[derive(Serialize, Deserialize)]
struct Format {
    version: u32,
}

/// A temporary directory of the store, removed on drop, or later if its process was killed.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Scratch {
    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = stackforge_types::remove(&self.path);
    }
}

impl Store {
    /// Opens the store at `--store`, else STACKFORGE_STORE, else `stackforge` in the user's cache directory.
    /// Nothing is created until something is stored.
    ///
    /// # Errors
    /// [`StoreError::NoPlace`], or [`StoreError::Newer`] for a store of a newer format.
    pub fn open(explicit: Option<&Path>) -> Result<Self, StoreError> {
        let env = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let root = explicit
            .map(Path::to_owned)
            .or_else(|| env("STACKFORGE_STORE").map(PathBuf::from))
            // By the XDG specification relative paths are ignored: they would name a store in each working
            // directory.
            .or_else(|| {
                let caches = env("XDG_CACHE_HOME").map(PathBuf::from);
                Some(caches.filter(|d| d.is_absolute())?.join("stackforge"))
            })
            .or_else(|| env("HOME").map(|d| Path::new(&d).join(".cache/stackforge")))
            .ok_or(StoreError::NoPlace)?;
        if let Ok(text) = std::fs::read(root.join(FORMAT_FILE))
            && let Ok(Format { version }) = serde_json::from_slice(&text)
            && version > FORMAT
        {
            return Err(StoreError::Newer {
                path: root,
                version,
            });
        }
        // Programs of the store are started in other working directories.
        let root = std::path::absolute(&root).map_err(|e| StoreError::at("find", &root, e))?;
        Ok(Self(Arc::new(Inner {
            root,
            prepared: AtomicBool::new(false),
            lease: Mutex::new(None),
        })))
    }

    /// The store's directory.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Returns a directory of the store, and creates it if it is missing.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn dir(&self, name: &str) -> Result<PathBuf, StoreError> {
        self.prepare()?;
        let path = self.root().join(name);
        std::fs::create_dir_all(&path).map_err(|e| StoreError::at("create", &path, e))?;
        Ok(path)
    }

    /// Makes the directory a store, once for each process.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn prepare(&self) -> Result<(), StoreError> {
        if self.0.prepared.load(Ordering::Acquire) {
            return Ok(());
        }
        let root = self.root();
        if !root.exists() {
            make_closed(root).map_err(|e| StoreError::at("create", root, e))?;
        }
        for folder in FOLDERS {
            let path = root.join(folder);
            std::fs::create_dir_all(&path).map_err(|e| StoreError::at("create", &path, e))?;
        }
        let format = format!("{{\"version\":{FORMAT}}}\n");
        for (name, text) in [
            ("oci-layout", LAYOUT),
            ("index.json", EMPTY_INDEX),
            (FORMAT_FILE, format.as_str()),
            ("CACHEDIR.TAG", CACHE),
        ] {
            let path = root.join(name);
            if !path.exists() {
                write_new(&path, text.as_bytes()).map_err(|e| StoreError::at("write", &path, e))?;
            }
        }
        self.0.prepared.store(true, Ordering::Release);
        // Leftovers that cannot be removed now may be removed next time.
        let _ = self.sweep();
        Ok(())
    }

    /// Removes what ended processes left in `tmp/`; returns the freed bytes.
    pub(super) fn sweep(&self) -> Result<u64, StoreError> {
        let mut freed = 0;
        for path in entries(&self.root().join("tmp"))? {
            let Ok(file) = File::open(&path) else {
                continue;
            };
            if !try_lock(&file, &path)? || !is_at(&file, &path) {
                continue;
            }
            let (size, _) = weight(&path);
            let gone = if file.metadata().is_ok_and(|m| m.is_dir()) {
                stackforge_types::remove(&path)
            } else {
                std::fs::remove_file(&path)
            };
            if gone.is_ok() {
                freed += size;
            }
        }
        Ok(freed)
    }

    /// Creates a name in `tmp/` that is locked as long as the returned file is open.
    pub(super) fn claim_tmp(
        &self,
        make: impl Fn(&Path) -> io::Result<File>,
    ) -> Result<(PathBuf, File), StoreError> {
        let folder = self.dir("tmp")?;
        loop {
            let name = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
            let path = folder.join(name);
            let file = match make(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(|e| StoreError::at("create", &path, e))?,
            };
            // Between creating and locking it, another process may have taken it for an abandoned one.
            if try_lock(&file, &path)? && is_at(&file, &path) {
                return Ok((path, file));
            }
        }
    }

    /// Creates an empty directory on the store's file system, which is removed on drop.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn scratch(&self) -> Result<Scratch, StoreError> {
        let (path, lock) = self.claim_tmp(|path| {
            std::fs::create_dir(path)?;
            File::open(path)
        })?;
        Ok(Scratch { path, _lock: lock })
    }

    /// Path of a new log file; the names sort by time.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn new_log(&self, name: &str) -> Result<PathBuf, StoreError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let file = format!("{name}-{}.{:03}.log", now.as_secs(), now.subsec_millis());
        Ok(self.dir("logs")?.join(file))
    }
}

/// Creates a store's directory, closed to other users: it holds files of untrusted images, some with set-uid
/// bits. To share a store, its owner opens the directory.
fn make_closed(root: &Path) -> io::Result<()> {
    if let Some(above) = root.parent() {
        std::fs::create_dir_all(above)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(root) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_one_place_wherever_its_programs_start() {
        let store = Store::open(Some(Path::new("somewhere/store"))).unwrap();
        let expected = std::env::current_dir().unwrap().join("somewhere/store");
        assert_eq!(store.root(), expected);
    }

    #[test]
    fn what_nobody_holds_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let scratch = store.scratch().unwrap();
        std::fs::write(scratch.path().join("kept"), "x").unwrap();
        let tmp = dir.path().join("tmp");
        std::fs::write(tmp.join("left"), "12345").unwrap();
        std::fs::create_dir(tmp.join("left.d")).unwrap();
        std::fs::write(tmp.join("left.d/x"), "123").unwrap();
        assert_eq!(store.sweep().unwrap(), 8);
        assert_eq!(entries(&tmp).unwrap(), [scratch.path().to_owned()]);
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_newer_store_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for (text, newer) in [
            ("{\"version\":2}", true),
            ("{\"version\":1}", false),
            ("", false),
        ] {
            std::fs::write(dir.path().join(FORMAT_FILE), text).unwrap();
            let opened = Store::open(Some(dir.path()));
            assert_eq!(
                matches!(opened, Err(StoreError::Newer { .. })),
                newer,
                "{text}"
            );
        }
    }

    #[test]
    fn a_new_store_is_closed_and_one_that_is_there_stays_as_it_is() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let mode = |name: &str| {
            let found = std::fs::metadata(dir.path().join(name)).unwrap();
            found.permissions().mode() & 0o777
        };
        let of = |name: &str| Store::open(Some(&dir.path().join(name))).unwrap();
        of("deep/new").dir("blobs").unwrap();
        assert_eq!(mode("deep/new"), 0o700);
        std::fs::create_dir(dir.path().join("shared")).unwrap();
        let open = std::fs::Permissions::from_mode(0o775);
        std::fs::set_permissions(dir.path().join("shared"), open).unwrap();
        of("shared").dir("blobs").unwrap();
        assert_eq!(mode("shared"), 0o775);
    }

    #[test]
    fn a_store_says_that_it_is_a_cache() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(&dir.path().join("store"))).unwrap();
        store.prepare().unwrap();
        let tag = std::fs::read_to_string(store.root().join("CACHEDIR.TAG")).unwrap();
        assert!(tag.starts_with("Signature: 8a477f597d28d172789f06886806bc55\n"));
    }

    #[test]
    fn opening_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(&dir.path().join("store"))).unwrap();
        assert!(!store.has(&stackforge_types::Digest::of(b"x")));
        assert!(!store.root().exists());
    }
}
