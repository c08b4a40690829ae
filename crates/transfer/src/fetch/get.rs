//! Reads small responses whole: they have no digest to verify.

use super::address;
use super::error::FetchError;
use super::fetcher::Fetcher;
use crate::body::{self, BodyError};
use crate::header::retry_after;
use crate::retry::Backoff;
use bytes::Bytes;
use reqwest::{Response, Url, header};
use stackforge_types::printable::without_credentials;

/// A response and its final address.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The address after redirects; it may contain credentials.
    pub url: Url,
    /// The `Content-Type` header, if it is text.
    pub content_type: Option<String>,
    /// The whole body.
    pub body: Bytes,
}

impl Fetcher {
    /// Sends a request and reads at most `limit` bytes of the response. `accept` is the value of the
    /// `Accept` header, if any.
    ///
    /// # Errors
    /// If the address is not HTTP, the server refuses or does not answer in all attempts of the policy, or
    /// the body is longer than `limit`.
    pub async fn get(
        &self,
        url: &str,
        accept: Option<&str>,
        limit: u64,
    ) -> Result<Answer, FetchError> {
        let address = address::parse(url)?;
        self.in_attempts(async || self.get_once(&address, accept, limit).await)
            .await
    }

    /// Makes attempts until one succeeds, fails for good, or the policy has had enough.
    pub(super) async fn in_attempts<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, FetchError>,
    ) -> Result<T, FetchError> {
        let mut backoff = Backoff::default();
        loop {
            let error = match attempt().await {
                Err(error) if error.is_passing() => error,
                done => return done,
            };
            let Some(pause) = backoff.pause(&self.retry, error.wait()) else {
                return Err(error);
            };
            tracing::debug!(%error, "trying again");
            tokio::time::sleep(pause).await;
        }
    }

    async fn get_once(
        &self,
        url: &Url,
        accept: Option<&str>,
        limit: u64,
    ) -> Result<Answer, FetchError> {
        let transfer = |source| FetchError::transfer(url, source);
        let mut request = self.request(url);
        if let Some(accept) = accept {
            request = request.header(header::ACCEPT, accept);
        }
        let response = request.send().await.map_err(transfer)?;
        if !response.status().is_success() {
            return Err(self.refused(url, &response));
        }
        let from = response.url().clone();
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let content_type = content_type
            .and_then(|v| v.to_str().ok())
            .map(str::to_owned);
        let body = self.body(url, response, limit).await?;
        Ok(Answer {
            url: from,
            content_type,
            body,
        })
    }

    /// Reads a body of at most `limit` bytes.
    pub(super) async fn body(
        &self,
        url: &Url,
        response: Response,
        limit: u64,
    ) -> Result<Bytes, FetchError> {
        let read = body::read_limited(response, limit).await;
        read.map_err(|error| match error {
            BodyError::TooLong(limit) => FetchError::TooLong {
                url: without_credentials(url.as_str()),
                limit,
            },
            BodyError::Transfer(source) => FetchError::transfer(url, source),
        })
    }

    pub(super) fn refused(&self, url: &Url, response: &Response) -> FetchError {
        FetchError::Status {
            url: without_credentials(url.as_str()),
            status: response.status().as_u16(),
            wait: retry_after(response.headers()).map(|w| w.as_secs()),
            netrc: self.logins.wrong().map(str::to_owned),
        }
    }
}

impl FetchError {
    pub(super) fn transfer(url: &Url, source: reqwest::Error) -> Self {
        Self::Transfer {
            url: without_credentials(url.as_str()),
            source: source.without_url(),
        }
    }

    /// How long the server asks to wait before the next request.
    pub(super) fn wait(&self) -> Option<std::time::Duration> {
        match self {
            Self::Status { wait, .. } => wait.map(std::time::Duration::from_secs),
            _ => None,
        }
    }
}
