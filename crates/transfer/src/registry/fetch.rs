//! Fetches a blob into a file, which gets its final name only after verification.
//!
//! In: a blob's descriptor and a directory. Out: the path of a file named by the digest's hex digits. A
//! download that a killed process left is resumed; if several processes want the same blob, one fetches it
//! and the others wait.

use std::io;
use std::path::{Path, PathBuf};

use tokio::task::JoinSet;

use super::event::Event;
use super::manifest::Descriptor;
use super::patch::Piece;
use super::reader::Arrivals;
use super::{Registry, RegistryError};
use crate::part::{PartFile, blocking, verified};
use stackforge_types::reference::Repository;

/// How often a blob is fetched as a whole when what arrived was damaged.
const WHOLE_ATTEMPTS: u32 = 3;

/// A verified blob in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedBlob {
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
    /// [`RetryPolicy`](crate::RetryPolicy) allows, or the file cannot be written.
    pub async fn fetch_blob(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        dir: &Path,
    ) -> Result<FetchedBlob, RegistryError> {
        tokio::fs::create_dir_all(dir)
            .await
            .map_err(|source| RegistryError::writing(dir, source))?;
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
    ) -> Result<FetchedBlob, RegistryError> {
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
    ) -> Result<FetchedBlob, RegistryError> {
        let path = dir.join(blob.digest.hex());
        if is_whole(&path, blob).await {
            return Ok(FetchedBlob { path, bytes: 0 });
        }
        let failed = |source| RegistryError::writing(&part, source);
        let mut file = PartFile::lock(&part, || {}).await.map_err(failed)?;
        // The previous holder of the lock may have finished.
        if is_whole(&path, blob).await {
            file.discard().map_err(failed)?;
            return Ok(FetchedBlob { path, bytes: 0 });
        }
        file = recovered(file, blob).await?;
        let mut bytes = 0;
        let turn = self.turn().await;
        let mut complete = false;
        if !pieces.is_empty() {
            (file, complete) = self
                .patch(repository, blob, pieces, file, &mut bytes)
                .await?;
        }
        if !complete {
            file = self.fetch_whole(repository, blob, file, &mut bytes).await?;
        }
        // Other blobs can be fetched while this one is synced to disk.
        drop(turn);
        let name = path.clone();
        let finish = move || {
            // Read-only like every blob, which is never written again.
            file.make_read_only()?;
            file.finish(&name)
        };
        blocking(finish)
            .await
            .map_err(|source| RegistryError::writing(&path, source))?;
        Ok(FetchedBlob { path, bytes })
    }

    /// Fills the part file in one go, and again from its start if the received bytes were damaged.
    async fn fetch_whole(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        mut part: PartFile,
        bytes: &mut u64,
    ) -> Result<PartFile, RegistryError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut arrivals = self.arrivals(repository, &blob.digest, blob.size, part.have());
            if attempts > 1 {
                arrivals = arrivals.without_mirrors();
            }
            let filled;
            (part, filled) = fill(arrivals, part, bytes).await?;
            match filled {
                Ok(()) => return Ok(part),
                Err(error @ RegistryError::Corrupt { .. }) => {
                    // It is unknown which of the bytes are right.
                    part.restart()
                        .map_err(|source| RegistryError::writing(part.path(), source))?;
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

/// Continues what an earlier attempt left in the part file.
async fn recovered(mut part: PartFile, blob: &Descriptor) -> Result<PartFile, RegistryError> {
    let (path, digest, size) = (part.path().to_owned(), blob.digest.clone(), blob.size);
    blocking(move || part.recover(&digest, Some(size)).map(|()| part))
        .await
        .map_err(|source| RegistryError::writing(&path, source))
}

/// Fetches the bytes that the part file lacks, and verifies the whole.
async fn fill(
    mut arrivals: Arrivals,
    mut part: PartFile,
    bytes: &mut u64,
) -> Result<(PartFile, Result<(), RegistryError>), RegistryError> {
    let path = part.path().to_owned();
    let before = part.have();
    // A separate task, so that blobs are hashed on several cores. Each chunk is hashed where it arrives: in
    // another thread it would no longer be in the CPU's cache. A slow disk blocks the runtime's threads and
    // thereby the transfer. If the task is dropped halfway, the received bytes are already written.
    let mut task = JoinSet::new();
    task.spawn(async move {
        let result = loop {
            match arrivals.next().await {
                Ok(Some(chunk)) => {
                    if let Err(error) = part.append(&chunk) {
                        break Err(RegistryError::writing(part.path(), error));
                    }
                }
                Ok(None) => break arrivals.verify(part.digest()),
                Err(error) => break Err(error),
            }
        };
        (part, result)
    });
    let lost = || io::Error::other("the task that writes it ended");
    let done = task.join_next().await.and_then(Result::ok);
    let (part, result) = done.ok_or_else(|| RegistryError::writing(&path, lost()))?;
    *bytes += part.have() - before;
    Ok((part, result))
}

/// Whether the file is the blob. A file that cannot be read counts as missing, and is replaced.
async fn is_whole(path: &Path, blob: &Descriptor) -> bool {
    let (path, size, digest) = (path.to_owned(), blob.size, blob.digest.clone());
    let look = blocking(move || Ok(verified(&path, &digest, Some(size)).is_some()));
    look.await.unwrap_or(false)
}
