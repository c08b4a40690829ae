//! Sends one blob: begins an upload, fills and closes it, and begins it again if necessary.
//!
//! In: a payload. Out: a blob that the registry has verified, or an error. Progress is reported during the
//! upload, and taken back if the registry has fewer bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use reqwest::{Body, Url};

use stackforge_types::Digest;

use super::endpoint::Ask;
use super::event::Event;
use super::payload::Payload;
use super::{Registry, RegistryError};
use crate::header;
use crate::retry::Backoff;
use stackforge_types::reference::Repository;

/// Bytes of a chunk after a registry, or a proxy in front of it, refused a blob in one request.
const CHUNK_AFTER_REFUSAL: u64 = 32 << 20;
const OCTETS: &str = "application/octet-stream";

/// An upload that the registry has begun.
pub(super) struct Upload {
    pub location: Url,
    pub offset: u64,
}

/// Whether this upload cannot continue, but a new one may succeed.
fn starts_over(error: &RegistryError) -> bool {
    const CODES: [&str; 4] = [
        "BLOB_UPLOAD_INVALID",
        "BLOB_UPLOAD_UNKNOWN",
        "DIGEST_INVALID",
        "SIZE_INVALID",
    ];
    match error {
        RegistryError::Missing { .. } | RegistryError::Status { status: 416, .. } => true,
        RegistryError::Status { errors, .. } => CODES.iter().any(|code| errors.has(code)),
        _ => false,
    }
}

/// A blob that is being sent.
pub(super) struct Transfer<'a> {
    pub registry: &'a Registry,
    pub repository: &'a Repository,
    pub digest: &'a Digest,
    pub size: u64,
    pub payload: &'a Payload,
    pub ask: Ask,
    /// Bytes that were reported as sent and not as lost.
    pub moved: Arc<AtomicU64>,
}

impl Transfer<'_> {
    /// Sends the blob through the given upload, or else a new one.
    pub(crate) async fn run(&self, mut upload: Option<Upload>) -> Result<(), RegistryError> {
        let mut backoff = Backoff::default();
        let mut chunk = self.registry.chunk();
        loop {
            let mut begun = match upload.take() {
                Some(begun) => begun,
                None => self.begin().await?,
            };
            let from = begun.offset;
            let error = match self.send(&mut begun, chunk).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match error {
                RegistryError::Status { status: 413, .. }
                    if chunk.is_none_or(|chunk| chunk > CHUNK_AFTER_REFUSAL) =>
                {
                    chunk = Some(CHUNK_AFTER_REFUSAL);
                    self.forget(begun).await;
                    self.report_lost(0);
                    continue;
                }
                // The registry dropped the upload, has another offset, or received other bytes than were
                // sent: start again.
                error if starts_over(&error) => {
                    self.verify().await?;
                    self.report_lost(0);
                    self.registry.wait(&mut backoff, error).await?;
                    continue;
                }
                error => self.registry.pause_or_fail(&mut backoff, error).await?,
            }
            // Possibly only the response was lost.
            if self.registry.has_blob(self.repository, self.digest).await? {
                return Ok(());
            }
            upload = self.status(&begun).await;
            let kept = upload.as_ref().map_or(0, |upload| upload.offset);
            backoff.gained(kept.saturating_sub(from));
            self.report_lost(kept);
        }
    }

    /// Checks the payload's digest: if it is wrong, no registry will ever accept it.
    async fn verify(&self) -> Result<(), RegistryError> {
        let found = self.payload.digest(self.size).await?;
        if found == *self.digest {
            return Ok(());
        }
        Err(RegistryError::Payload {
            doing: self.ask.doing.clone(),
            found: Box::new(found),
        })
    }

    async fn begin(&self) -> Result<Upload, RegistryError> {
        let begun = self.registry.write(|endpoint| async move {
            let url = endpoint.url(self.repository, &["blobs", "uploads", ""]);
            let response = endpoint
                .send(&self.ask, |client| {
                    client.post(url.clone()).header(CONTENT_LENGTH, 0)
                })
                .await?;
            let location = endpoint.location(&response, &self.ask.doing)?;
            Ok(Upload {
                location,
                offset: 0,
            })
        });
        begun.await
    }

    /// Sends the missing bytes and closes the upload. `upload` tracks what the registry has confirmed.
    async fn send(&self, upload: &mut Upload, chunk: Option<u64>) -> Result<(), RegistryError> {
        if let Some(chunk) = chunk.map(|chunk| chunk.max(1)) {
            while self.size - upload.offset > chunk {
                self.patch(upload, chunk).await?;
            }
        } else if upload.offset > 0 && upload.offset < self.size {
            // A closing request may carry the last chunk, but not every registry accepts that.
            self.patch(upload, self.size - upload.offset).await?;
        }
        self.close(upload).await
    }

    async fn patch(&self, upload: &mut Upload, length: u64) -> Result<(), RegistryError> {
        let (from, to) = (upload.offset, upload.offset + length);
        let endpoint = self.registry.own();
        let response = endpoint
            .send(&self.ask, |client| {
                client
                    .patch(upload.location.clone())
                    .header(CONTENT_TYPE, OCTETS)
                    .header(CONTENT_LENGTH, length)
                    .header(CONTENT_RANGE, format!("{from}-{}", to - 1))
                    .body(self.body(from, to))
            })
            .await?;
        let has = header::text(response.headers(), "range").and_then(header::received);
        if has.is_some_and(|has| has != to) && to > 1 {
            let reason = format!("it has {} bytes after {to}", has.unwrap_or_default());
            return Err(endpoint.wrong(&self.ask.doing, reason));
        }
        upload.location = endpoint.location(&response, &self.ask.doing)?;
        upload.offset = to;
        Ok(())
    }

    async fn close(&self, upload: &Upload) -> Result<(), RegistryError> {
        let mut url = upload.location.clone();
        url.query_pairs_mut()
            .append_pair("digest", &self.digest.to_string());
        let from = upload.offset;
        let endpoint = self.registry.own();
        endpoint
            .send(&self.ask, |client| {
                client
                    .put(url.clone())
                    .header(CONTENT_TYPE, OCTETS)
                    .header(CONTENT_LENGTH, self.size - from)
                    .body(self.body(from, self.size))
            })
            .await?;
        Ok(())
    }

    /// The registry's state of an upload. `None` if it does not know the upload.
    async fn status(&self, upload: &Upload) -> Option<Upload> {
        let endpoint = self.registry.own();
        let answer = endpoint
            .send(&self.ask, |client| client.get(upload.location.clone()))
            .await;
        let response = answer.ok()?;
        let offset = header::text(response.headers(), "range").map_or(Some(0), header::received)?;
        let location = if response.headers().contains_key("location") {
            endpoint.location(&response, &self.ask.doing).ok()?
        } else {
            upload.location.clone()
        };
        (offset <= self.size).then_some(Upload { location, offset })
    }

    /// Cancels an upload that is not needed; otherwise the registry would drop it later.
    async fn forget(&self, upload: Upload) {
        let endpoint = self.registry.own();
        let cancelled = endpoint
            .send(&self.ask, |client| client.delete(upload.location.clone()))
            .await;
        if let Err(error) = cancelled {
            tracing::debug!(%error, "an upload is left to the registry");
        }
    }

    /// Reports as lost what was sent beyond the bytes that the registry has.
    fn report_lost(&self, bytes: u64) {
        let lost = self
            .moved
            .swap(bytes, Ordering::Relaxed)
            .saturating_sub(bytes);
        if lost > 0 {
            let digest = self.digest.clone();
            let bytes = lost;
            self.registry.notify(Event::Lost { digest, bytes });
        }
    }

    /// A request body with a range of the payload, read while it is sent.
    fn body(&self, from: u64, to: u64) -> Body {
        let registry = self.registry.clone();
        let digest = self.digest.clone();
        let moved = Arc::clone(&self.moved);
        self.payload.body(from..to, move |bytes: u64| {
            moved.fetch_add(bytes, Ordering::Relaxed);
            let digest = digest.clone();
            registry.notify(Event::Sent { digest, bytes });
        })
    }
}
