//! Writes blobs: a locked temporary file, verified, synced to disk, then renamed.

use super::error::StoreError;
use super::files::sync_folder;
use super::handle::Store;
use stackforge_types::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const PIECE: usize = 256 << 10;
/// Precision of the time of last use: a blob of every build is stamped at most once an hour.
const STAMP: Duration = Duration::from_secs(3600);

/// A blob of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Digest of its content.
    pub digest: Digest,
    /// Size of its content in bytes.
    pub size: u64,
    /// Its file, which must not be changed.
    pub path: PathBuf,
}

/// A temporary file whose digest the caller computes; dropping it removes the file.
#[derive(Debug)]
pub struct Temp {
    store: Store,
    file: File,
    path: PathBuf,
    /// Its final size in bytes, if known.
    size: Option<u64>,
    written: u64,
}

/// A temporary file that is hashed as it is written.
#[derive(Debug)]
pub struct Writer {
    temp: Temp,
    hash: Sha256,
}

impl Store {
    /// The path where a blob is, or would be.
    pub fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.root().join("blobs/sha256").join(digest.hex())
    }

    /// The path of an existing blob with the right bytes; a damaged blob counts as missing, so that it is
    /// made or fetched again. It is not collected while this store, or a clone of it, is open.
    pub fn blob(&self, digest: &Digest) -> Option<PathBuf> {
        let path = self.blob_path(digest);
        if !path.is_file() {
            return None;
        }
        // A store that cannot be written cannot be collected from either.
        if let Err(e) = self.lease([digest]) {
            tracing::debug!("{e}");
        }
        if !self.is_sound(digest) {
            tracing::warn!("{} is damaged and not used", path.display());
            return None;
        }
        if stamp(&path) {
            self.verified(digest);
        }
        path.is_file().then_some(path)
    }

    /// Stores the content of a reader, which must have the `expected` digest if one is given.
    ///
    /// # Errors
    /// [`StoreError::Altered`] if the digest differs, or if `content` or the store fails.
    pub fn put(
        &self,
        mut content: impl Read,
        expected: Option<&Digest>,
    ) -> Result<Blob, StoreError> {
        let mut writer = self.writer()?;
        let mut piece = vec![0; PIECE];
        loop {
            match content.read(&mut piece) {
                Ok(0) => return writer.commit(expected),
                Ok(count) => writer.append(&piece[..count])?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(StoreError::at("read what becomes", &writer.temp.path, e)),
            }
        }
    }

    /// Begins a new blob that is written piece by piece.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn writer(&self) -> Result<Writer, StoreError> {
        Ok(Writer {
            temp: self.temp()?,
            hash: Sha256::new(),
        })
    }

    /// Creates a new file in the store, which is removed on drop unless it is committed.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn temp(&self) -> Result<Temp, StoreError> {
        let (path, file) = self.claim_tmp(|path| {
            let mut options = File::options();
            options.read(true).write(true).create_new(true).open(path)
        })?;
        Ok(Temp {
            store: self.clone(),
            file,
            path,
            size: None,
            written: 0,
        })
    }

    /// Path for a growing download of a blob. The downloader locks and verifies it and renames it to
    /// [`Store::blob_path`]. An abandoned download stays and can be resumed.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn part(&self, digest: &Digest) -> Result<PathBuf, StoreError> {
        Ok(self.dir("parts")?.join(format!("{}.part", digest.hex())))
    }
}

impl Temp {
    /// Sets the final size, so that too little space fails now and not halfway.
    ///
    /// # Errors
    /// [`StoreError::Full`] if the file system has less free space.
    pub fn expect(&mut self, size: u64) -> Result<(), StoreError> {
        self.size = Some(size);
        match self.lacks() {
            Some(missing) if missing > 0 => Err(StoreError::Full {
                doing: "write",
                path: self.path.clone(),
                missing: Some(missing),
                source: io::ErrorKind::StorageFull.into(),
            }),
            _ => Ok(()),
        }
    }

    fn lacks(&self) -> Option<u64> {
        let system = rustix::fs::statvfs(&self.path).ok()?;
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        Some((self.size? - self.written.min(self.size?)).saturating_sub(free))
    }

    /// The open file, for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes bytes at the file's current position.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(bytes).map_err(|e| {
            let mut error = StoreError::at("write", &self.path, e);
            if let StoreError::Full { missing, .. } = &mut error {
                *missing = self.lacks();
            }
            error
        })?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Makes the file the blob with that digest, which the caller computed over all its bytes.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn commit(self, digest: Digest) -> Result<Blob, StoreError> {
        let failed = |e| StoreError::at("write", &self.path, e);
        let size = self.file.metadata().map_err(failed)?.len();
        // Read-only, so that no user of the blob changes it by accident.
        let mode = std::fs::Permissions::from_mode(0o444);
        self.file.set_permissions(mode).map_err(failed)?;
        self.file.sync_all().map_err(failed)?;
        self.store.lease([&digest])?;
        let path = self.store.blob_path(&digest);
        match std::fs::metadata(&path) {
            // The blob exists already: keep its file, so that hard links to it stay links to the blob.
            Ok(metadata) if metadata.len() == size && self.store.is_sound(&digest) => {
                if stamp(&path) {
                    self.store.verified(&digest);
                }
            }
            _ => {
                self.store.forget_names(&digest);
                std::fs::rename(&self.path, &path).map_err(|e| StoreError::at("name", &path, e))?;
                sync_folder(&self.store.root().join("blobs/sha256"))?;
                self.store.verified(&digest);
            }
        }
        Ok(Blob { digest, size, path })
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        // The file is already gone if it was renamed.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Write for Temp {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Writer {
    /// Sets the final size, as [`Temp::expect`].
    ///
    /// # Errors
    /// [`StoreError::Full`] if the file system has less free space.
    pub fn expect(&mut self, size: u64) -> Result<(), StoreError> {
        self.temp.expect(size)
    }

    /// Writes the next bytes.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.hash.update(bytes);
        self.temp.append(bytes)
    }

    /// Makes the file a blob. If another digest was expected, fails and keeps nothing.
    ///
    /// # Errors
    /// [`StoreError::Altered`] if the digest differs, or if the store cannot be written.
    pub fn commit(self, expected: Option<&Digest>) -> Result<Blob, StoreError> {
        let found = Digest::from_hash(&self.hash.finalize());
        match expected {
            Some(expected) if *expected != found => Err(StoreError::Altered {
                expected: Box::new(expected.clone()),
                found: Box::new(found),
            }),
            _ => self.temp.commit(found),
        }
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Records the last use of a blob or an action as its modification time: access times are off on many
/// systems, and these files never change. Returns whether the file's times changed.
pub(super) fn stamp(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
    let fresh = |m: std::fs::Metadata| {
        let age = SystemTime::now().duration_since(m.modified()?);
        Ok::<_, io::Error>(age.is_ok_and(|age| age < STAMP))
    };
    if std::fs::metadata(path).and_then(fresh).unwrap_or(true) {
        return false;
    }
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    // In a store that belongs to another user the time stays as it is.
    utimensat(CWD, path, &times, AtFlags::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        (dir, store)
    }

    #[test]
    fn only_what_was_expected_becomes_a_blob() {
        let (dir, store) = store();
        let digest = Digest::of(b"hello");
        assert_eq!(store.blob(&digest), None);
        let error = store.put(&b"hullo"[..], Some(&digest)).unwrap_err();
        assert!(matches!(error, StoreError::Altered { .. }));
        assert_eq!(
            std::fs::read_dir(dir.path().join("tmp")).unwrap().count(),
            0
        );
        assert_eq!(store.blob(&digest), None);
        let blob = store.put(&b"hello"[..], Some(&digest)).unwrap();
        assert_eq!((blob.size, &blob.digest), (5, &digest));
        assert_eq!(store.blob(&digest), Some(blob.path.clone()));
        assert_eq!(store.put(&b"hello"[..], None).unwrap(), blob);
        let mut temp = store.temp().unwrap();
        temp.append(b"hello").unwrap();
        assert_eq!(temp.commit(digest).unwrap(), blob);
        assert_eq!(
            std::fs::read_dir(dir.path().join("tmp")).unwrap().count(),
            0
        );
    }

    #[test]
    fn a_blob_that_was_cut_is_replaced_when_it_is_put_again() {
        let (_dir, store) = store();
        let blob = store.put(&b"hello"[..], None).unwrap();
        let named = store.named(&blob.digest, "h.whl").unwrap();
        std::fs::remove_file(&blob.path).unwrap();
        std::fs::write(&blob.path, "he").unwrap();
        store.put(&b"hello"[..], None).unwrap();
        assert_eq!(std::fs::read(&blob.path).unwrap(), b"hello");
        assert!(!named.exists());
    }

    #[test]
    fn too_little_space_is_said_before_anything_is_written() {
        let (_dir, store) = store();
        let mut writer = store.writer().unwrap();
        let error = writer.expect(u64::MAX / 2).unwrap_err();
        assert!(matches!(
            error,
            StoreError::Full {
                missing: Some(1..),
                ..
            }
        ));
        writer.expect(1).unwrap();
    }

    #[test]
    fn a_use_is_stamped_once_in_an_hour() {
        let (_dir, store) = store();
        let blob = store.put(&b"x"[..], None).unwrap();
        let at = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
        let set = |age: u64| {
            let then = SystemTime::now() - Duration::from_secs(age);
            File::open(&blob.path).unwrap().set_modified(then).unwrap();
            at(&blob.path)
        };
        let then = set(60);
        store.blob(&blob.digest).unwrap();
        assert_eq!(at(&blob.path), then);
        let then = set(7200);
        store.blob(&blob.digest).unwrap();
        assert!(at(&blob.path) > then + STAMP);
    }
}
