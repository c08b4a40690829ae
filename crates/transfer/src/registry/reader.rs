//! Reads a whole blob with verification, and resumes after interruptions.
//!
//! In: a digest and a size, and optionally a start that is here already. Out: the remaining bytes, then an
//! end which states that all bytes together have the digest. Bytes returned before that end are not verified
//! yet.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use stackforge_types::Digest;

use super::blob::{self, BlobStream};
use super::endpoint::Ask;
use super::event::Event;
use super::retry::Backoff;
use super::{Registry, RegistryError};
use stackforge_types::reference::Repository;

/// A connection that brings fewer bytes than this counts as failed: otherwise a server that sends one byte
/// at a time would never be given up.
const PROGRESS: u64 = 64 << 10;

/// A blob that is being read.
pub struct BlobReader {
    registry: Registry,
    repository: Repository,
    digest: Digest,
    size: u64,
    ask: Ask,
    hash: Sha256,
    offset: u64,
    body: Option<BlobStream>,
    /// Offset where the current connection began.
    begun: u64,
    /// Index of the current endpoint.
    endpoint: usize,
    backoff: Backoff,
}

impl Registry {
    /// Reads the blob from its start.
    pub fn read_blob(&self, repository: &Repository, digest: &Digest, size: u64) -> BlobReader {
        BlobReader {
            ask: self.about_blob("reading", repository, digest, "pull"),
            registry: self.clone(),
            repository: repository.clone(),
            digest: digest.clone(),
            size,
            hash: Sha256::new(),
            offset: 0,
            body: None,
            begun: 0,
            endpoint: 0,
            backoff: Backoff::new(),
        }
    }
}

impl BlobReader {
    /// Resumes at `offset`; `hash` contains the bytes before it.
    pub fn resume(mut self, hash: Sha256, offset: u64) -> Self {
        (self.hash, self.offset, self.begun) = (hash, offset, offset);
        self
    }

    /// Size of the whole blob in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Asks no mirror, because a mirror may have sent the wrong bytes.
    pub(super) fn without_mirrors(mut self) -> Self {
        self.endpoint = self.registry.endpoints().len() - 1;
        self
    }

    /// Number of bytes so far, including those before a resume.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next bytes. `None` once all bytes arrived and have the digest.
    ///
    /// # Errors
    /// If the digest differs at the end, or the network fails for as long as [`Patience`](super::Patience)
    /// lasts.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        loop {
            let Some(body) = &mut self.body else {
                if self.offset == self.size {
                    return self.verify().map(|()| None);
                }
                match self.open().await {
                    Ok(body) => {
                        self.begun = self.offset;
                        self.body = Some(body);
                    }
                    Err(error) => self.failed(error).await?,
                }
                continue;
            };
            match body.next().await {
                Ok(Some(chunk)) => {
                    self.hash.update(&chunk);
                    self.offset += chunk.len() as u64;
                    self.registry.paced(chunk.len() as u64).await;
                    self.registry.notify(Event::Received {
                        digest: self.digest.clone(),
                        bytes: chunk.len() as u64,
                    });
                    return Ok(Some(chunk));
                }
                Ok(None) if self.offset == self.size => self.body = None,
                Ok(None) => {
                    let error = RegistryError::Truncated {
                        host: self.host(),
                        doing: self.ask.doing.clone(),
                        received: self.offset,
                        size: self.size,
                    };
                    self.failed(error).await?;
                }
                Err(error) => self.failed(error).await?,
            }
        }
    }

    async fn open(&mut self) -> Result<BlobStream, RegistryError> {
        let endpoint = Arc::clone(&self.registry.endpoints()[self.endpoint]);
        let range = self.offset..self.size;
        let body = blob::open(
            Arc::clone(&endpoint),
            &self.ask,
            &self.repository,
            &self.digest,
            range,
        )
        .await?;
        if let Some(size) = body.size()
            && size != self.size
        {
            let reason = format!("it has {size} bytes there and should have {}", self.size);
            return Err(endpoint.wrong(&self.ask.doing, reason));
        }
        Ok(body)
    }

    /// Switches to the next mirror, or waits; returns the error if it is final.
    async fn failed(&mut self, error: RegistryError) -> Result<(), RegistryError> {
        self.body = None;
        if self.offset - self.begun >= PROGRESS {
            self.backoff.progress();
        }
        self.begun = self.offset;
        if self.endpoint + 1 < self.registry.endpoints().len() {
            tracing::debug!(%error, "asking the next one");
            self.endpoint += 1;
            return Ok(());
        }
        self.registry.rest(&mut self.backoff, error).await
    }

    /// Checks that all bytes together have the digest.
    fn verify(&self) -> Result<(), RegistryError> {
        let found = Digest::from_hash(&self.hash.clone().finalize());
        if found == self.digest {
            return Ok(());
        }
        Err(RegistryError::Corrupt {
            host: self.host(),
            doing: self.ask.doing.clone(),
            found: Box::new(found),
        })
    }

    fn host(&self) -> String {
        self.registry.endpoints()[self.endpoint].host.clone()
    }
}
