//! Fetches a blob into a file, which gets its final name only after verification.
//!
//! In: a blob's descriptor and a directory. Out: the path of a file named by the digest's hex digits. A
//! download that a killed process left is resumed; if several processes want the same blob, one fetches it
//! and the others wait.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use sha2::{Digest as _, Sha256};
use stackforge_types::Digest;
use tokio::task::JoinSet;

use super::event::Event;
use super::manifest::Descriptor;
use super::patch::Piece;
use super::reader::BlobReader;
use super::{Registry, RegistryError};
use stackforge_types::reference::Repository;

/// How often a blob is fetched as a whole when what arrived was damaged.
const WHOLE_ATTEMPTS: u32 = 3;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// A verified blob in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Path of the file `HEX` in the given directory.
    pub path: PathBuf,
    /// Bytes received over the network; 0 if the blob existed.
    pub bytes: u64,
}

impl Registry {
    /// Fetches a blob to the file `HEX` in `dir`. An existing file is read and verified.
    ///
    /// # Errors
    /// If the blob is missing or damaged at every endpoint, the network fails for as long as
    /// [`Patience`](super::Patience) lasts, or the file cannot be written.
    pub async fn fetch_blob(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        dir: &Path,
    ) -> Result<Fetched, RegistryError> {
        tokio::fs::create_dir_all(dir)
            .await
            .map_err(|source| written(dir, source))?;
        let part = dir.join(format!(".{}.part", blob.digest.hex()));
        self.fetch_blob_through(repository, blob, dir, part).await
    }

    /// Like [`Registry::fetch_blob`], growing at `part`, which must be on the same file system.
    ///
    /// # Errors
    /// As [`Registry::fetch_blob`].
    pub async fn fetch_blob_through(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        dir: &Path,
        part: PathBuf,
    ) -> Result<Fetched, RegistryError> {
        self.fetch_blob_from(repository, blob, dir, part, &[]).await
    }

    /// Like [`Registry::fetch_blob_through`], combining local pieces with fetched ones; without pieces the
    /// whole blob is fetched.
    ///
    /// # Errors
    /// As [`Registry::fetch_blob`]. Pieces that do not make up the blob are not an error.
    pub async fn fetch_blob_from(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        dir: &Path,
        part: PathBuf,
        pieces: &[Piece],
    ) -> Result<Fetched, RegistryError> {
        let path = dir.join(blob.digest.hex());
        let failed = |source| written(&path, source);
        if is_whole(&path, blob).await.map_err(failed)? {
            return Ok(Fetched { path, bytes: 0 });
        }
        let file = lock(&part).await.map_err(|source| written(&part, source))?;
        // The previous holder of the lock may have finished.
        if is_whole(&path, blob).await.map_err(failed)? {
            tokio::fs::remove_file(&part).await.map_err(failed)?;
            return Ok(Fetched { path, bytes: 0 });
        }
        let mut bytes = 0;
        let turn = self.turn().await;
        let patched = !pieces.is_empty()
            && (self.patch(repository, blob, pieces, &file, &part, &mut bytes)).await?;
        if !patched {
            self.fetch_whole(repository, blob, &file, &part, &mut bytes)
                .await?;
        }
        // Other blobs can be fetched while this one is synced to disk.
        drop(turn);
        let synced = file.try_clone().map_err(failed)?;
        let done = move || {
            // Read-only like every blob, which is never written again.
            synced.set_permissions(std::fs::Permissions::from_mode(0o444))?;
            synced.sync_all()
        };
        blocking(done).await.map_err(failed)?;
        tokio::fs::rename(&part, &path).await.map_err(failed)?;
        Ok(Fetched { path, bytes })
    }

    /// Fills the part file in one go, and again from its start if the received bytes were damaged.
    async fn fetch_whole(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        file: &File,
        part: &Path,
        bytes: &mut u64,
    ) -> Result<(), RegistryError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut reader = self.read_blob(repository, &blob.digest, blob.size);
            if attempts > 1 {
                reader = reader.without_mirrors();
            }
            let done = fill(reader, file, part, bytes).await;
            match done {
                Ok(()) => return Ok(()),
                Err(error @ RegistryError::Corrupt { .. }) => {
                    // It is unknown which of the bytes are right.
                    file.set_len(0).map_err(|source| written(part, source))?;
                    if attempts == WHOLE_ATTEMPTS {
                        return Err(error);
                    }
                    tracing::debug!(%error, "fetching it again");
                    self.notify(Event::Lost {
                        digest: blob.digest.clone(),
                        bytes: blob.size,
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Fetches the bytes that the file lacks.
async fn fill(
    reader: BlobReader,
    file: &File,
    part: &Path,
    bytes: &mut u64,
) -> Result<(), RegistryError> {
    let failed = |source| written(part, source);
    let copy = || file.try_clone().map_err(failed);
    let (size, existing) = (reader.size(), copy()?);
    let (hash, offset) = blocking(move || hash_part(existing, size))
        .await
        .map_err(failed)?;
    let (mut reader, mut file) = (reader.resume(hash, offset), copy()?);
    let path = part.to_owned();
    // A separate task, so that blobs are hashed on several cores. Each chunk is hashed where it arrives: in
    // another thread it would no longer be in the CPU's cache. A slow disk blocks the runtime's threads and
    // thereby the transfer. If the task is dropped halfway, the received bytes are already written.
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut came = 0;
        let result = loop {
            match reader.next().await {
                Ok(Some(chunk)) => {
                    came += chunk.len() as u64;
                    if let Err(error) = file.write_all(&chunk) {
                        break Err(written(&path, error));
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        (came, result)
    });
    let lost = || failed(io::Error::other("the task that writes it ended"));
    let done = task.join_next().await.and_then(Result::ok);
    let (came, result) = done.ok_or_else(lost)?;
    *bytes += came;
    result
}

/// Opens and locks the part file, and checks that it still has its name.
async fn lock(part: &Path) -> io::Result<File> {
    loop {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(part)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let own = file.metadata()?;
                match std::fs::symlink_metadata(part) {
                    Ok(named) if (named.dev(), named.ino()) == (own.dev(), own.ino()) => {
                        return Ok(file);
                    }
                    // It was renamed to the blob meanwhile.
                    _ => {}
                }
            }
            Err(rustix::io::Errno::WOULDBLOCK) => tokio::time::sleep(LOCK_PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// The hash and the length in bytes of a part file; the file position is left at its end. A file longer than
/// `size` is emptied.
pub(super) fn hash_part(mut file: File, size: u64) -> io::Result<(Sha256, u64)> {
    if file.metadata()?.len() > size {
        file.set_len(0)?;
    }
    file.seek(SeekFrom::Start(0))?;
    let (hash, length) = hash_all(&mut file)?;
    Ok((hash, length))
}

fn hash_all(file: &mut File) -> io::Result<(Sha256, u64)> {
    let (mut hash, mut length, mut buffer) = (Sha256::new(), 0, vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((hash, length)),
            Ok(count) => {
                hash.update(&buffer[..count]);
                length += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

async fn is_whole(path: &Path, blob: &Descriptor) -> io::Result<bool> {
    let (path, size, digest) = (path.to_owned(), blob.size, blob.digest.clone());
    blocking(move || {
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() != size {
            return Ok(false);
        }
        let (hash, _) = hash_all(&mut file)?;
        Ok(Digest::from_hash(&hash.finalize()) == digest)
    })
    .await
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

pub(super) fn written(path: &Path, source: io::Error) -> RegistryError {
    RegistryError::File {
        doing: "writing",
        path: path.to_owned(),
        source,
    }
}
