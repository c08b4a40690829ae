//! Directories that are made once and shared: unpacked layers, installed packages.
//!
//! `unpacked/HEX` holds `root/`, the files, and `bytes`, their size. A tree gets its name once it is
//! complete and on disk, and is made by one process at a time. Trees whose files keep their owners are
//! separate from trees whose files belong to this user. Each tree is closed to other users (mode 0700): it
//! may hold set-uid programs of an untrusted image.

use super::error::StoreError;
use super::files::{entries, write_atomically};
use super::handle::Store;
use super::layout::Scratch;
use super::list::{Entry, EntryKind};
use stackforge_types::Digest;
use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const FOLDER: &str = "unpacked";
/// A tree in a scratch directory.
const MADE: &str = "tree";
const ROOT: &str = "root";
const BYTES: &str = "bytes";
/// Mode of a tree: access for its owner only.
const CLOSED: u32 = 0o700;

/// A directory of files that has no key yet; removed with the value.
#[derive(Debug)]
pub struct UnnamedTree {
    scratch: Scratch,
    root: PathBuf,
}

impl UnnamedTree {
    /// Where the files go.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Syncs the directory and moves it to `tree`.
    fn named(self, tree: &Path, bytes: u64) -> Result<(), StoreError> {
        let made = self.scratch.path().join(MADE);
        let note = made.join(BYTES);
        write_atomically(&note, bytes.to_string().as_bytes())
            .map_err(|e| StoreError::at("write", &note, e))?;
        // The tree's name states that it is complete, so sync first, in case the power fails.
        File::open(&made)
            .and_then(stackforge_types::system::sync)
            .map_err(|e| StoreError::at("write", &made, e))?;
        // A tree without its note is incomplete.
        if tree.exists() {
            discard(tree)?;
        }
        std::fs::rename(&made, tree).map_err(|e| StoreError::at("write", tree, e))
    }
}

impl Store {
    /// Returns the directory for `key`; if it is missing, `make` fills it and returns the bytes that it
    /// wrote. It stays while this store is open. A layer's key is its diff ID.
    ///
    /// # Errors
    /// What `make` fails with, or if the store cannot be written.
    pub fn tree<E: From<StoreError>>(
        &self,
        key: &Digest,
        make: impl FnOnce(&Path) -> Result<u64, E>,
    ) -> Result<PathBuf, E> {
        self.named_tree(key, || {
            let unnamed = self.unnamed_tree()?;
            let bytes = make(&unnamed.root)?;
            Ok((unnamed, bytes))
        })
    }

    /// Returns the directory for `key`; if it is missing, it is the complete one that `make` returns with its bytes.
    fn named_tree<E: From<StoreError>>(
        &self,
        key: &Digest,
        make: impl FnOnce() -> Result<(UnnamedTree, u64), E>,
    ) -> Result<PathBuf, E> {
        self.lease([key])?;
        let own = if rustix::process::geteuid().is_root() {
            key.hex().to_owned()
        } else {
            format!("{}-{}", key.hex(), rustix::process::geteuid().as_raw())
        };
        let folder = self.dir(FOLDER)?;
        close(&folder).map_err(|e| StoreError::at("close", &folder, e))?;
        let tree = folder.join(own);
        let root = tree.join(ROOT);
        if used(&tree) {
            return Ok(root);
        }
        let _alone = self.alone(key)?;
        if used(&tree) {
            return Ok(root);
        }
        let (unnamed, bytes) = make()?;
        unnamed.named(&tree, bytes)?;
        Ok(root)
    }

    /// Creates a directory for files whose key is not known before they are written. It is closed to other users.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn unnamed_tree(&self) -> Result<UnnamedTree, StoreError> {
        let scratch = self.scratch()?;
        let made = scratch.path().join(MADE);
        let root = made.join(ROOT);
        let created = DirBuilder::new().mode(CLOSED).create(&made);
        created
            .and_then(|()| std::fs::create_dir(&root))
            .map_err(|e| StoreError::at("create", &root, e))?;
        Ok(UnnamedTree { scratch, root })
    }

    /// Makes a complete directory of `bytes` bytes the one of `key`, unless there is one. It stays while this store
    /// is open.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn name_tree(
        &self,
        key: &Digest,
        unnamed: UnnamedTree,
        bytes: u64,
    ) -> Result<PathBuf, StoreError> {
        self.named_tree(key, || Ok((unnamed, bytes)))
    }

    pub(super) fn trees(&self) -> Result<Vec<Entry>, StoreError> {
        let mut found = Vec::new();
        for path in entries(&self.root().join(FOLDER))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let note = path.join(BYTES);
            let size = std::fs::read_to_string(&note).ok();
            let used = std::fs::metadata(&note).and_then(|m| m.modified());
            found.push(Entry {
                kind: EntryKind::Unpacked,
                name: name.clone().into_owned(),
                digest: name.get(..64).and_then(|hex| Digest::from_hex(hex).ok()),
                size: size.and_then(|s| s.parse().ok()).unwrap_or_default(),
                used: used.unwrap_or(UNIX_EPOCH),
                path,
            });
        }
        Ok(found)
    }

    /// Removes a tree: first its name, so that a killed process leaves no incomplete tree.
    pub(super) fn remove_tree(&self, tree: &Path) -> Result<(), StoreError> {
        let scratch = self.scratch()?;
        let moved = scratch.path().join("tree");
        match std::fs::rename(tree, &moved) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(StoreError::at("remove", tree, e)),
            Ok(()) => discard(&moved),
        }
    }
}

/// Whether the tree exists; also records its use.
fn used(tree: &Path) -> bool {
    let note = File::options().append(true).open(tree.join(BYTES));
    note.is_ok_and(|note| note.set_modified(SystemTime::now()).is_ok())
}

/// Closes the directory of all trees to other users, if an earlier version left it and the trees open. If
/// others may write into it, it is shared with them: then each tree is closed instead.
fn close(folder: &Path) -> std::io::Result<()> {
    let own = |at: &Path| {
        let found = std::fs::symlink_metadata(at)?;
        let own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
        Ok::<_, std::io::Error>((own, found.mode() & 0o777))
    };
    let (mine, mode) = own(folder)?;
    if !mine || mode == CLOSED {
        return Ok(());
    }
    if mode & 0o022 == 0 {
        return std::fs::set_permissions(folder, Permissions::from_mode(CLOSED));
    }
    for entry in std::fs::read_dir(folder)? {
        let tree = entry?.path();
        if own(&tree).is_ok_and(|(mine, mode)| mine && mode != CLOSED) {
            std::fs::set_permissions(&tree, Permissions::from_mode(CLOSED))?;
        }
    }
    Ok(())
}

fn discard(tree: &Path) -> Result<(), StoreError> {
    stackforge_types::remove(tree).map_err(|e| StoreError::at("remove", tree, e))
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

    fn made(store: &Store, key: &Digest, times: &mut u32) -> PathBuf {
        let make = |dir: &Path| {
            *times += 1;
            std::fs::write(dir.join("file"), "content").unwrap();
            Ok::<_, StoreError>(7)
        };
        store.tree(key, make).unwrap()
    }

    #[test]
    fn a_tree_is_made_once_and_collected_when_nobody_uses_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let (key, mut times) = (Digest::of(b"layer"), 0);
        let root = made(&store, &key, &mut times);
        assert_eq!(std::fs::read(root.join("file")).unwrap(), b"content");
        assert_eq!(made(&store, &key, &mut times), root);
        assert_eq!(times, 1);

        let other = Store::open(Some(dir.path())).unwrap();
        let limits = Limits {
            max_size: Some(0),
            ..Limits::default()
        };
        assert_eq!(other.gc(&limits).unwrap().in_use, 7);
        assert!(root.exists());
        drop(store);
        let done = other.gc(&limits).unwrap();
        assert_eq!((done.freed, done.left), (7, 0));
        assert!(!root.exists());
        assert!(entries(&dir.path().join(FOLDER)).unwrap().is_empty());
        made(&other, &key, &mut times);
        assert_eq!(times, 2);
    }

    #[test]
    fn a_tree_is_closed_to_other_users_while_it_is_made_and_after() {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
        for (shared, expected) in [(0o755, 0o700), (0o775, 0o775)] {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(Some(dir.path())).unwrap();
            // As an earlier version left it.
            let unpacked = store.dir(FOLDER).unwrap();
            let older = unpacked.join("0".repeat(64));
            for (path, mode) in [(&older, 0o755), (&unpacked, shared)] {
                std::fs::create_dir_all(path).unwrap();
                std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            }
            let make = |into: &Path| {
                assert_eq!(mode(into.parent().unwrap()), 0o700);
                Ok::<_, StoreError>(0)
            };
            let root = store.tree(&Digest::of(b"layer"), make).unwrap();
            assert_eq!(mode(root.parent().unwrap()), 0o700);
            assert_eq!(mode(&unpacked), expected);
            let open = |path: &Path| mode(path) & 0o077 != 0;
            assert!(!open(&unpacked) || !open(&older));
        }
    }

    #[test]
    fn files_that_were_written_before_their_key_was_known_are_its_tree() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let unnamed = |content: &str| {
            let unnamed = store.unnamed_tree().unwrap();
            let closed = std::fs::metadata(unnamed.root().parent().unwrap()).unwrap();
            assert_eq!(closed.mode() & 0o777, CLOSED);
            std::fs::write(unnamed.root().join("file"), content).unwrap();
            unnamed
        };
        let key = Digest::of(b"layer");
        let root = store.name_tree(&key, unnamed("content"), 7).unwrap();
        assert_eq!(made(&store, &key, &mut 0), root);
        // The first stays, and nothing else does.
        assert_eq!(store.name_tree(&key, unnamed("other"), 5).unwrap(), root);
        assert_eq!(std::fs::read(root.join("file")).unwrap(), b"content");
        assert_eq!(store.trees().unwrap()[0].size, 7);
        drop(unnamed("given up"));
        assert!(entries(&dir.path().join("tmp")).unwrap().is_empty());
    }

    #[test]
    fn what_failed_leaves_no_tree() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let key = Digest::of(b"layer");
        let fails = |dir: &Path| {
            std::fs::write(dir.join("half"), "x").unwrap();
            Err(StoreError::NoPlace)
        };
        assert!(store.tree(&key, fails).is_err());
        assert!(entries(&dir.path().join(FOLDER)).unwrap().is_empty());
        assert!(entries(&dir.path().join("tmp")).unwrap().is_empty());
        let root = made(&store, &key, &mut 0);
        assert!(root.join("file").exists() && !root.join("half").exists());
    }
}
