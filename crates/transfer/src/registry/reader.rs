//! Reads a whole blob, and resumes after interruptions.
//!
//! In: a digest and a size, and optionally a start that is here already. Out: the remaining bytes. A
//! [`BlobReader`] ends only if all bytes together have the digest; bytes returned before that end are not
//! verified yet. [`Arrivals`] leaves the verification to whoever hashes the bytes anyway.

use std::sync::Arc;

use bytes::Bytes;

use stackforge_types::{Digest, Sha256};

use super::blob::{self, BlobStream};
use super::endpoint::Ask;
use super::event::Event;
use super::{Registry, RegistryError};
use crate::retry::Backoff;
use stackforge_types::reference::Repository;

/// A blob that is being read.
pub struct BlobReader {
    arrivals: Arrivals,
    hash: Sha256,
}

impl Registry {
    /// Reads the blob from its start.
    pub fn read_blob(&self, repository: &Repository, digest: &Digest, size: u64) -> BlobReader {
        BlobReader {
            arrivals: self.arrivals(repository, digest, size, 0),
            hash: Sha256::new(),
        }
    }

    /// Reads the blob from `offset` on, without verification.
    pub(super) fn arrivals(
        &self,
        repository: &Repository,
        digest: &Digest,
        size: u64,
        offset: u64,
    ) -> Arrivals {
        Arrivals {
            ask: self.about_blob("reading", repository, digest, "pull"),
            registry: self.clone(),
            repository: repository.clone(),
            digest: digest.clone(),
            size,
            offset,
            body: None,
            begun: offset,
            endpoint: 0,
            backoff: Backoff::default(),
        }
    }
}

impl BlobReader {
    /// Size of the whole blob in bytes.
    pub fn size(&self) -> u64 {
        self.arrivals.size
    }

    /// Number of bytes so far.
    pub fn offset(&self) -> u64 {
        self.arrivals.offset
    }

    /// The next bytes. `None` once all bytes arrived and have the digest.
    ///
    /// # Errors
    /// If the digest differs at the end, or the network fails for as long as
    /// [`RetryPolicy`](crate::RetryPolicy) allows.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        let Some(chunk) = self.arrivals.next().await? else {
            let found = Digest::from_hash(&self.hash.clone().finalize());
            return self.arrivals.verify(found).map(|()| None);
        };
        self.hash.update(&chunk);
        Ok(Some(chunk))
    }
}

/// The bytes of a blob from an offset on, over as many connections as it takes. They are not verified.
pub(super) struct Arrivals {
    registry: Registry,
    repository: Repository,
    digest: Digest,
    size: u64,
    ask: Ask,
    offset: u64,
    body: Option<BlobStream>,
    /// Offset where the current connection began.
    begun: u64,
    /// Index of the current endpoint.
    endpoint: usize,
    backoff: Backoff,
}

impl Arrivals {
    /// Asks no mirror, because a mirror may have sent the wrong bytes.
    pub(crate) fn without_mirrors(mut self) -> Self {
        self.endpoint = self.registry.endpoints().len() - 1;
        self
    }

    /// The next bytes. `None` once all bytes arrived.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        loop {
            let Some(body) = &mut self.body else {
                if self.offset == self.size {
                    return Ok(None);
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
        self.backoff.gained(self.offset - self.begun);
        self.begun = self.offset;
        if self.endpoint + 1 < self.registry.endpoints().len() {
            tracing::debug!(%error, "asking the next one");
            self.endpoint += 1;
            return Ok(());
        }
        self.registry.pause_or_fail(&mut self.backoff, error).await
    }

    /// Checks the digest of all bytes together.
    pub(crate) fn verify(&self, found: Digest) -> Result<(), RegistryError> {
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
