//! Uploads blobs to a registry.
//!
//! In: a blob in memory or in a file, and repositories that may have it. Out: whether it existed, was
//! mounted or was sent. One request sends a whole blob (POST, then PUT) unless chunks were requested or the
//! registry finds it too large. After an interruption, the registry is asked how much it has and gets the
//! rest; one that has forgotten the upload, as registry:2 after a request that was cut in its middle, gets
//! the blob from the start. The registry verifies the digest before the blob exists.

use std::sync::Arc;

use reqwest::StatusCode;
use reqwest::header::CONTENT_LENGTH;

use stackforge_types::Digest;

use super::payload::Payload;
use super::transfer::{Transfer, Upload};
use super::{Registry, RegistryError};
use stackforge_types::reference::Repository;

/// How a blob got into a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pushed {
    /// The repository had it already.
    Existing,
    /// It was mounted from another repository of the registry.
    Mounted,
    /// It was sent.
    Sent,
}

impl Registry {
    /// Makes sure that a repository has a blob. Each of `sources` is a repository of the same registry that
    /// it may be mounted from.
    ///
    /// # Errors
    /// If the registry refuses it, [`RegistryError::Payload`] if the bytes do not have the digest,
    /// or the network fails for as long as [`RetryPolicy`](crate::RetryPolicy) allows.
    pub async fn push_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        size: u64,
        payload: &Payload,
        sources: &[Repository],
    ) -> Result<Pushed, RegistryError> {
        if self.has_blob(repository, digest).await? {
            return Ok(Pushed::Existing);
        }
        let mut upload = None;
        for source in sources.iter().filter(|source| *source != repository) {
            match self.mount(repository, digest, source).await {
                Ok(None) => return Ok(Pushed::Mounted),
                Ok(begun) => upload = begun,
                // The source may not be readable; the blob can still be sent.
                Err(
                    error @ (RegistryError::Denied { .. }
                    | RegistryError::Unauthorized { .. }
                    | RegistryError::Missing { .. }),
                ) => {
                    tracing::debug!(%error, "not mounted");
                }
                Err(error) => return Err(error),
            }
        }
        let transfer = Transfer {
            registry: self,
            repository,
            digest,
            size,
            payload,
            ask: self.about_blob("pushing", repository, digest, "pull,push"),
            moved: Arc::default(),
        };
        transfer.run(upload).await?;
        Ok(Pushed::Sent)
    }

    /// Asks to mount a blob; a registry that cannot begins an upload instead.
    async fn mount(
        &self,
        repository: &Repository,
        digest: &Digest,
        source: &Repository,
    ) -> Result<Option<Upload>, RegistryError> {
        let mut ask = self.about_blob("mounting", repository, digest, "pull,push");
        ask.scope.source = Some(source.to_string());
        self.write(|endpoint| {
            let ask = &ask;
            async move {
                let mut url = endpoint.url(repository, &["blobs", "uploads", ""]);
                url.query_pairs_mut()
                    .append_pair("mount", &digest.to_string())
                    .append_pair("from", source.as_str());
                let response = endpoint
                    .send(ask, |client| {
                        client.post(url.clone()).header(CONTENT_LENGTH, 0)
                    })
                    .await?;
                if response.status() == StatusCode::CREATED {
                    return Ok(None);
                }
                let location = endpoint.location(&response, &ask.doing)?;
                Ok(Some(Upload {
                    location,
                    offset: 0,
                }))
            }
        })
        .await
    }
}
