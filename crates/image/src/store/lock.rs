//! Kernel locks on files of the store, released when their process ends, however that ends.

use super::error::StoreError;
use super::handle::Store;
use stackforge_types::Digest;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(super) struct Guard(#[allow(dead_code, reason = "the open file is the lock")] File);

/// The exclusive right to make or fetch a blob or a step's output, held until this is dropped.
#[derive(Debug)]
pub struct Alone {
    path: PathBuf,
    _file: File,
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Removed while it is still locked: a waiting process sees that the file has lost its name and takes
        // a new one.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Store {
    /// Held while something is leased, so that it is not collected meanwhile.
    pub(super) fn shared(&self) -> Result<Guard, StoreError> {
        let (file, path) = self.lock_file("store")?;
        wait(&path, || file.lock_shared())?;
        Ok(Guard(file))
    }

    /// Held while something is removed.
    pub(super) fn exclusive(&self) -> Result<Guard, StoreError> {
        let (file, path) = self.lock_file("store")?;
        wait(&path, || file.lock())?;
        Ok(Guard(file))
    }

    /// Held while `index.json` is changed.
    pub(super) fn index_lock(&self) -> Result<Guard, StoreError> {
        let (file, path) = self.lock_file("index")?;
        wait(&path, || file.lock())?;
        Ok(Guard(file))
    }

    fn lock_file(&self, name: &str) -> Result<(File, PathBuf), StoreError> {
        let path = self.dir("locks")?.join(name);
        Ok((open(&path)?, path))
    }

    /// Waits until no other process makes what `digest` names: a blob, or the output of the step with that
    /// key. Check again whether it exists once this returns.
    ///
    /// # Errors
    /// If the store cannot be written, or [`StoreError::NoLocks`].
    pub fn alone(&self, digest: &Digest) -> Result<Alone, StoreError> {
        loop {
            let (file, path) = self.lock_file(digest.hex())?;
            wait(&path, || file.lock())?;
            if is_at(&file, &path) {
                return Ok(Alone { path, _file: file });
            }
        }
    }

    /// Like [`Store::alone`] without waiting. `None` while another process has the lock.
    ///
    /// # Errors
    /// If the store cannot be written, or [`StoreError::NoLocks`].
    pub fn try_alone(&self, digest: &Digest) -> Result<Option<Alone>, StoreError> {
        loop {
            let (file, path) = self.lock_file(digest.hex())?;
            if !try_lock(&file, &path)? {
                return Ok(None);
            }
            if is_at(&file, &path) {
                return Ok(Some(Alone { path, _file: file }));
            }
        }
    }
}

pub(super) fn open(path: &Path) -> Result<File, StoreError> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)
        .map_err(|e| StoreError::at("open the lock", path, e))
}

fn wait(path: &Path, lock: impl Fn() -> io::Result<()>) -> Result<(), StoreError> {
    loop {
        match lock() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map_err(|e| failed(path, e)),
        }
    }
}

/// Takes the lock if it is free, and returns whether it did.
pub(super) fn try_lock(file: &File, path: &Path) -> Result<bool, StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(failed(path, e)),
    }
}

fn failed(path: &Path, source: io::Error) -> StoreError {
    use rustix::io::Errno;
    let lacking = [Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
    let number = source.raw_os_error();
    if source.kind() == io::ErrorKind::Unsupported
        || lacking.iter().any(|e| Some(e.raw_os_error()) == number)
    {
        let path = path.to_owned();
        return StoreError::NoLocks { path, source };
    }
    StoreError::at("lock", path, source)
}

/// Whether the file still has this path.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(own), Ok(named)) => (own.dev(), own.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_one_is_alone_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let digest = Digest::of(b"x");
        let alone = store.alone(&digest).unwrap();
        assert!(store.try_alone(&digest).unwrap().is_none());
        let waits = store.clone();
        let named = digest.clone();
        let thread = std::thread::spawn(move || drop(waits.alone(&named).unwrap()));
        drop(alone);
        thread.join().unwrap();
        assert!(store.try_alone(&digest).unwrap().is_some());
        assert!(!dir.path().join("locks").join(digest.hex()).exists());
    }

    #[test]
    fn a_file_system_without_locks_is_named() {
        for errno in [rustix::io::Errno::NOLCK, rustix::io::Errno::OPNOTSUPP] {
            let e = failed(Path::new("/x"), errno.into());
            assert!(matches!(e, StoreError::NoLocks { .. }), "{e}");
        }
    }
}
