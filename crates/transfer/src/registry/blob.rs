//! Reads a blob or a range of it without verifying a digest.
//!
//! A server may ignore a range. Then the bytes before it are read and dropped, and [`BlobStream::ranged`]
//! tells so before a byte is read.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, RANGE};

use stackforge_types::Digest;

use super::endpoint::{Ask, Endpoint};
use super::{Registry, RegistryError};
use crate::header;
use stackforge_types::reference::Repository;

/// The bytes of a range, in order.
pub struct BlobStream {
    body: BoxStream<'static, Result<Bytes, reqwest::Error>>,
    endpoint: Arc<Endpoint>,
    doing: String,
    ranged: bool,
    size: Option<u64>,
    skip: u64,
    left: u64,
}

impl BlobStream {
    /// Whether the server respected the range. If not, reading also downloads all bytes before it.
    pub fn ranged(&self) -> bool {
        self.ranged
    }

    /// The size of the whole blob in bytes, if the server states it.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The next bytes. `None` at the end of the range or of the response, whichever comes first.
    ///
    /// # Errors
    /// If the connection breaks. Bytes returned before stay valid.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        while self.left > 0 {
            let mut chunk = match self.body.next().await {
                None => return Ok(None),
                Some(Ok(chunk)) => chunk,
                Some(Err(error)) => return Err(self.endpoint.cut(&self.doing, error)),
            };
            // Lengths of chunks fit in u64, and the dropped bytes never exceed the chunk's length.
            let dropped = self.skip.min(chunk.len() as u64);
            self.skip -= dropped;
            let _ = chunk.split_to(dropped as usize);
            chunk.truncate(self.left.min(chunk.len() as u64) as usize);
            self.left -= chunk.len() as u64;
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }
}

impl Registry {
    /// Reads a range of a blob; an empty range gives an empty stream. The bytes are not verified.
    ///
    /// # Errors
    /// If the blob is missing, or neither a mirror nor the registry answers.
    pub async fn blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        range: Range<u64>,
    ) -> Result<BlobStream, RegistryError> {
        let ask = self.about_blob("reading", repository, digest, "pull");
        self.read(|endpoint| {
            let (ask, range) = (&ask, range.clone());
            async move { open(endpoint, ask, repository, digest, range).await }
        })
        .await
    }

    /// Returns the size in bytes of a blob that the registry has.
    ///
    /// # Errors
    /// If the blob is missing, or the registry does not state its size.
    pub async fn blob_size(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<u64, RegistryError> {
        let ask = self.about_blob("looking up", repository, digest, "pull");
        self.read(|endpoint| {
            let ask = &ask;
            async move { size(&endpoint, ask, repository, digest).await }
        })
        .await
    }

    /// Whether a repository has a blob.
    ///
    /// # Errors
    /// If the registry does not answer or refuses. A missing blob is `Ok(false)`.
    pub async fn has_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<bool, RegistryError> {
        let ask = self.about_blob("looking up", repository, digest, "pull");
        let found = self.write(|endpoint| {
            let ask = &ask;
            async move { size(&endpoint, ask, repository, digest).await }
        });
        match found.await {
            Ok(_) => Ok(true),
            Err(RegistryError::Missing { .. }) => Ok(false),
            // The blob exists; only its size is missing in the response.
            Err(RegistryError::Protocol { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    pub(super) fn about_blob(
        &self,
        doing: &str,
        repository: &Repository,
        digest: &Digest,
        actions: &'static str,
    ) -> Ask {
        let what = format!("blob `{repository}@{digest}`");
        self.ask(doing, what, repository, actions)
    }
}

pub(super) async fn size(
    endpoint: &Endpoint,
    ask: &Ask,
    repository: &Repository,
    digest: &Digest,
) -> Result<u64, RegistryError> {
    let url = endpoint.url(repository, &["blobs", &digest.to_string()]);
    let response = endpoint
        .send(ask, |client| {
            client.head(url.clone()).header(ACCEPT_ENCODING, "identity")
        })
        .await?;
    header::text(response.headers(), "content-length")
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| endpoint.wrong(&ask.doing, "it does not say the size".to_owned()))
}

pub(super) async fn open(
    endpoint: Arc<Endpoint>,
    ask: &Ask,
    repository: &Repository,
    digest: &Digest,
    range: Range<u64>,
) -> Result<BlobStream, RegistryError> {
    let left = range.end.saturating_sub(range.start);
    let mut stream = BlobStream {
        body: futures_util::stream::empty().boxed(),
        endpoint: Arc::clone(&endpoint),
        doing: ask.doing.clone(),
        ranged: true,
        size: None,
        skip: 0,
        left,
    };
    let Some(last) = range.end.checked_sub(1).filter(|_| left > 0) else {
        return Ok(stream);
    };
    let url = endpoint.url(repository, &["blobs", &digest.to_string()]);
    let response = endpoint
        .send(ask, |client| {
            client
                .get(url.clone())
                .header(RANGE, format!("bytes={}-{last}", range.start))
                // Otherwise the range could be one of compressed bytes.
                .header(ACCEPT_ENCODING, "identity")
        })
        .await?;
    if response.status() == StatusCode::PARTIAL_CONTENT {
        let value = header::text(response.headers(), CONTENT_RANGE.as_str()).unwrap_or_default();
        match header::content_range(value) {
            Some(sent) if sent.first == range.start && sent.last <= last => stream.size = sent.size,
            _ => {
                let sent = crate::failure::excerpt(value);
                let reason = format!(
                    "it was asked for bytes {}-{last} and sends `{sent}`",
                    range.start
                );
                return Err(endpoint.wrong(&ask.doing, reason));
            }
        }
    } else {
        // The server sent the whole blob, which costs nothing extra if the range starts at 0.
        stream.ranged = range.start == 0;
        stream.skip = range.start;
        stream.size = response.content_length();
    }
    stream.body = response.bytes_stream().boxed();
    Ok(stream)
}
