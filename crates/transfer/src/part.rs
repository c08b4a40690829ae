//! A partly received file, which gets its final name only after verification.
//!
//! The process that holds the lock on a part file fills it; the lock ends with the process, and what a
//! killed process left is resumed. All calls except [`PartFile::lock`] block. Never: gives a final name
//! before the bytes are on disk, writes through a link.

use stackforge_types::system::begin_to_write;
use stackforge_types::{Digest, Sha256};
use std::fs::{File, Permissions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often to check whether another process has released the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
const BUFFER: usize = 256 << 10;
/// Bytes after which the kernel is asked to begin to write them, so that [`PartFile::sync`] waits for the last ones only.
const BEGUN: u64 = 8 << 20;

/// A locked part file, and the hash of its bytes.
pub(crate) struct PartFile {
    file: File,
    path: PathBuf,
    hash: Sha256,
    have: u64,
    /// The bytes up to here the kernel was asked to write.
    begun: u64,
}

impl PartFile {
    /// Opens the part file, which is created if it is missing, and takes its lock. `None` if another process
    /// holds the lock.
    pub(crate) fn try_lock(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
                .open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // The last owner may have renamed or removed it before releasing the lock.
            let own = file.metadata()?;
            match std::fs::symlink_metadata(path) {
                Ok(named) if (named.dev(), named.ino()) == (own.dev(), own.ino()) => {}
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            return Ok(Some(Self {
                file,
                path: path.to_owned(),
                hash: Sha256::new(),
                have: 0,
                begun: 0,
            }));
        }
    }

    /// Like [`PartFile::try_lock`], but waits for the lock. Calls `on_busy` once if there is a wait.
    pub(crate) async fn lock(path: &Path, on_busy: impl FnOnce()) -> io::Result<Self> {
        let mut on_busy = Some(on_busy);
        loop {
            if let Some(part) = Self::try_lock(path)? {
                return Ok(part);
            }
            if let Some(on_busy) = on_busy.take() {
                on_busy();
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
    }

    /// Continues with the bytes of an earlier attempt if they can be the start of a file with this digest
    /// and size; otherwise empties the file.
    pub(crate) fn recover(&mut self, sha256: &Digest, size: Option<u64>) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if size.is_some_and(|size| size < length) {
            return self.restart();
        }
        self.file.seek(SeekFrom::Start(0))?;
        (self.hash, self.have) = hash_of(&mut self.file)?;
        self.begun = self.have;
        // It has all bytes, and some are wrong, so it cannot be resumed.
        if size == Some(self.have) && self.digest() != *sha256 {
            self.restart()?;
        }
        Ok(())
    }

    /// Number of bytes in the part.
    pub(crate) fn have(&self) -> u64 {
        self.have
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Digest of the bytes so far.
    pub(crate) fn digest(&self) -> Digest {
        Digest::from_hash(&self.hash.clone().finalize())
    }

    /// Drops the bytes of the part.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        (self.hash, self.have, self.begun) = (Sha256::new(), 0, 0);
        Ok(())
    }

    /// Writes and hashes bytes. After an error, the bytes that [`PartFile::have`] counts are kept.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.hash.update(&rest[..count]);
                    self.have += count as u64;
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.have - self.begun >= BEGUN {
            begin_to_write(&self.file, self.begun..self.have);
            self.begun = self.have;
        }
        Ok(())
    }

    /// Makes the file read-only, for files that are never written again.
    pub(crate) fn make_read_only(&self) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(0o444))
    }

    /// Waits until the bytes are on disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Gives the file its final name, in a directory of the same file system, after its bytes are on disk.
    pub(crate) fn finish(self, name: &Path) -> io::Result<()> {
        self.sync()?;
        std::fs::rename(&self.path, name)?;
        match name.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }

    /// Removes the file.
    pub(crate) fn discard(self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// Removes a file. A missing file is not an error.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Hash and number of the bytes from the file's position to its end.
fn hash_of(file: &mut File) -> io::Result<(Sha256, u64)> {
    let (mut hash, mut have, mut buffer) = (Sha256::new(), 0, vec![0; BUFFER]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((hash, have)),
            Ok(count) => {
                hash.update(&buffer[..count]);
                have += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the length in bytes of a regular file if it has this digest and size. `None` if it is missing,
/// cannot be read, or has other content.
pub(crate) fn verified(path: &Path, sha256: &Digest, size: Option<u64>) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    if size.is_some_and(|size| size != found.len()) {
        return None;
    }
    let (hash, have) = hash_of(&mut file).ok()?;
    (Digest::from_hash(&hash.finalize()) == *sha256).then_some(have)
}

/// Runs work that blocks on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(path: &Path) -> PartFile {
        PartFile::try_lock(path).unwrap().unwrap()
    }

    #[test]
    fn a_part_is_resumed_only_if_it_can_be_the_start_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.part");
        let wanted = Digest::of(b"hello");
        let mut part = locked(&path);
        assert!(PartFile::try_lock(&path).unwrap().is_none());
        part.append(b"hel").unwrap();
        drop(part);

        let mut part = locked(&path);
        part.recover(&wanted, Some(5)).unwrap();
        assert_eq!(part.have(), 3);
        part.append(b"lo").unwrap();
        assert_eq!(part.digest(), wanted);
        let name = dir.path().join("x");
        part.finish(&name).unwrap();
        assert_eq!(verified(&name, &wanted, None), Some(5));
        assert_eq!(verified(&name, &wanted, Some(4)), None);
        assert_eq!(verified(&name, &Digest::of(b"other"), None), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

        for size in [2, 3] {
            std::fs::write(&path, b"hel").unwrap();
            let mut part = locked(&path);
            part.recover(&wanted, Some(size)).unwrap();
            assert_eq!(part.have(), 0, "of {size} bytes");
            part.discard().unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, b"kept").unwrap();
        let path = dir.path().join("x.part");
        std::os::unix::fs::symlink(&outside, &path).unwrap();
        assert!(PartFile::try_lock(&path).is_err());
        assert_eq!(std::fs::read(outside).unwrap(), b"kept");
    }

    #[test]
    fn a_full_disk_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut part = locked(&dir.path().join("x.part"));
        part.file = File::options().write(true).open("/dev/full").unwrap();
        let error = part.append(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(part.have(), 0);
    }
}
