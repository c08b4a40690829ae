//! Reads the body of a response up to a bound.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("it is longer than {0} bytes")]
    TooLong(u64),
    #[error(transparent)]
    Transfer(reqwest::Error),
}

pub(crate) async fn read_limited(
    response: reqwest::Response,
    limit: u64,
) -> Result<Bytes, BodyError> {
    if response.content_length().is_some_and(|size| size > limit) {
        return Err(BodyError::TooLong(limit));
    }
    let mut whole = BytesMut::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| BodyError::Transfer(error.without_url()))?;
        if (whole.len() + chunk.len()) as u64 > limit {
            return Err(BodyError::TooLong(limit));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}
