//! Verified downloads: a file gets its final name only if size and digest are right.
//!
//! The input is URLs in order of preference, the expected size and SHA-256, and a directory; the output
//! is the path of a file that is named by its digest. A file that is already there is read and checked
//! again, and fetched again if it is damaged. An interruption at any point never leaves an incomplete
//! file under a final name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::package::hex;
use stackforge_transfer::fetch::without_credentials;

const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(400);

/// Why a file could not be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The HTTP client cannot be created.
    #[error(transparent)]
    Client(stackforge_transfer::fetch::FetchError),
    /// The connection failed or broke.
    #[error("fetching `{url}`")]
    Transfer {
        /// The URL, without credentials.
        url: String,
        /// What the HTTP client says.
        #[source]
        source: reqwest::Error,
    },
    /// The server returned an error status.
    #[error("`{url}` answers {status}")]
    Status {
        /// The URL, without credentials.
        url: String,
        /// The HTTP status code.
        status: u16,
    },
    /// The file is longer than expected.
    #[error("`{url}` is longer than {limit} bytes")]
    TooLong {
        /// The URL, without credentials.
        url: String,
        /// Limit on the size in bytes.
        limit: u64,
    },
    /// Size or digest differs from the expected one.
    #[error("`{url}` is not what was asked for: {reason}")]
    Mismatch {
        /// The URL, without credentials.
        url: String,
        /// What differs.
        reason: String,
    },
    /// The file cannot be written.
    #[error("writing `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },
}

impl DownloadError {
    /// Whether the server answered that it does not have the file.
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: 404 | 410,
                ..
            }
        )
    }

    /// Whether the same request may succeed a moment later.
    fn is_passing(&self) -> bool {
        match self {
            Self::Transfer { .. } => true,
            Self::Status { status, .. } => *status >= 500 || [408, 425, 429].contains(status),
            _ => false,
        }
    }

    /// Returns what to do about it, as a sentence without its full stop.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Write { .. } => "check the space and the permissions of the cache directory",
            Self::Mismatch { .. } => "the mirror or a proxy alters its files: use another mirror",
            _ => {
                "check the network and the mirror; behind a proxy that inspects TLS, point SSL_CERT_FILE at its certificate"
            }
        }
    }
}

/// Creates the HTTP client for all downloads.
///
/// # Errors
/// If TLS cannot be set up.
pub fn client() -> Result<reqwest::Client, DownloadError> {
    stackforge_transfer::fetch::client().map_err(DownloadError::Client)
}

/// Returns the content of a small file.
///
/// # Errors
/// If every attempt fails, or the file has more than `limit` bytes.
pub async fn get(
    client: &reqwest::Client,
    url: &str,
    limit: u64,
) -> Result<Vec<u8>, DownloadError> {
    retry(|| async {
        let mut body = Vec::new();
        stream(client, url, limit, async |chunk| {
            body.extend_from_slice(chunk);
            Ok(())
        })
        .await?;
        Ok(body)
    })
    .await
}

/// Downloads `url` and passes it to `take` chunk by chunk.
async fn stream(
    client: &reqwest::Client,
    url: &str,
    limit: u64,
    mut take: impl AsyncFnMut(&[u8]) -> Result<(), DownloadError>,
) -> Result<(), DownloadError> {
    let shown = || without_credentials(url);
    let transfer = |source: reqwest::Error| DownloadError::Transfer {
        url: shown(),
        source: source.without_url(),
    };
    let response = client.get(url).send().await.map_err(transfer)?;
    if !response.status().is_success() {
        return Err(DownloadError::Status {
            url: shown(),
            status: response.status().as_u16(),
        });
    }
    let mut left = limit;
    let mut body = response.bytes_stream();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(transfer)?;
        left = left
            .checked_sub(chunk.len() as u64)
            .ok_or_else(|| DownloadError::TooLong {
                url: shown(),
                limit,
            })?;
        take(&chunk).await?;
    }
    Ok(())
}

async fn retry<T, F: Future<Output = Result<T, DownloadError>>>(
    mut attempt: impl FnMut() -> F,
) -> Result<T, DownloadError> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(error) if error.is_passing() => tracing::debug!(%error, "trying again"),
            done => return done,
        }
        tokio::time::sleep(pause).await;
        pause *= 3;
    }
    attempt().await
}

/// A file that is known by its content.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// SHA-256 of the file, as 64 lower-case hex digits.
    pub sha256: &'a str,
    /// Size of the file in bytes.
    pub size: u64,
}

/// Returns the path of the file with this content in `cache`, fetched from the first URL that has it,
/// and whether it was fetched. `on_bytes` is called with the size of each chunk that arrives.
///
/// # Errors
/// If no URL has the file (the first error other than a missing file, if there is one), or if the file
/// cannot be written.
pub async fn fetch_to_cache(
    client: &reqwest::Client,
    urls: &[String],
    expected: Expected<'_>,
    cache: &Path,
    suffix: &str,
    on_bytes: impl Fn(u64),
) -> Result<(PathBuf, bool), DownloadError> {
    let path = cache.join(format!("{}.{suffix}", expected.sha256));
    if matches_file(&path, expected).await {
        return Ok((path, false));
    }
    let write = |source| DownloadError::Write {
        path: path.clone(),
        source,
    };
    tokio::fs::create_dir_all(cache).await.map_err(write)?;
    let mut first_error = None;
    for url in urls {
        let attempt = retry(|| fetch_one(client, url, expected, cache, &path, &on_bytes)).await;
        match attempt {
            Ok(()) => return Ok((path, true)),
            Err(error @ DownloadError::Write { .. }) => return Err(error),
            // If several mirrors fail, an error other than a missing file says more.
            Err(error) if first_error.as_ref().is_none_or(DownloadError::is_missing) => {
                first_error = Some(error)
            }
            Err(_) => {}
        }
    }
    Err(first_error.unwrap_or_else(|| DownloadError::Status {
        url: format!("{}.{suffix}", expected.sha256),
        status: 404,
    }))
}

async fn fetch_one(
    client: &reqwest::Client,
    url: &str,
    expected: Expected<'_>,
    cache: &Path,
    path: &Path,
    on_bytes: &impl Fn(u64),
) -> Result<(), DownloadError> {
    let write = |source| DownloadError::Write {
        path: path.to_owned(),
        source,
    };
    // The temporary file is removed when dropped.
    let temporary = tempfile::Builder::new()
        .prefix(".part-")
        .tempfile_in(cache)
        .map_err(write)?;
    let mut file = tokio::fs::File::from_std(temporary.as_file().try_clone().map_err(write)?);
    let (mut hash, mut size) = (Sha256::new(), 0);
    stream(client, url, expected.size, async |chunk| {
        hash.update(chunk);
        size += chunk.len() as u64;
        file.write_all(chunk).await.map_err(write)?;
        on_bytes(chunk.len() as u64);
        Ok(())
    })
    .await
    .map_err(|error| match error {
        DownloadError::TooLong { url, limit } => DownloadError::Mismatch {
            url,
            reason: format!("it is longer than {limit} bytes"),
        },
        other => other,
    })?;
    let found = hex(&hash.finalize());
    if size != expected.size || found != expected.sha256 {
        let reason = format!(
            "{size} bytes with sha256 {found} instead of {} bytes with {}",
            expected.size, expected.sha256
        );
        return Err(DownloadError::Mismatch {
            url: without_credentials(url),
            reason,
        });
    }
    file.flush().await.map_err(write)?;
    file.sync_all().await.map_err(write)?;
    temporary
        .persist(path)
        .map_err(|error| write(error.error))?;
    Ok(())
}

async fn matches_file(path: &Path, expected: Expected<'_>) -> bool {
    let Ok(mut file) = tokio::fs::File::open(path).await else {
        return false;
    };
    let (mut hash, mut size, mut buffer) = (Sha256::new(), 0, vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer).await {
            Ok(0) => return size == expected.size && hex(&hash.finalize()) == expected.sha256,
            Ok(count) => {
                hash.update(&buffer[..count]);
                size += count as u64;
            }
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests;
