//! Fetches locked packages into a cache.
//!
//! In come locked packages and mirrors; out come paths of verified files, in the same order. Six
//! transfers at a time; events tell of progress. A package that no mirror has any more is an error
//! that says so, for archives keep only the newest version.

use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt, stream};

use super::download::{DownloadError, Expected, fetch_to_cache};
use super::mirror::{MirrorError, Mirrors};
use super::package::{LockedDeb, MalformedLock};

const PARALLEL: usize = 6;

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Lock(#[from] MalformedLock),
    #[error("fetching package `{package}`")]
    Mirror {
        package: String,
        #[source]
        source: MirrorError,
    },
    #[error("no mirror has package `{package}` in version {version} any more")]
    Gone { package: String, version: String },
    #[error("fetching package `{package}` {version}")]
    Download {
        package: String,
        version: String,
        #[source]
        source: DownloadError,
    },
}

impl FetchError {
    pub fn help(&self) -> String {
        match self {
            Self::Lock(_) | Self::Gone { .. } => "an archive keeps the newest version only: lock again, or configure a mirror that keeps old ones".to_owned(),
            Self::Mirror { source, .. } => source.help(),
            Self::Download { source, .. } => source.help().to_owned(),
        }
    }
}

/// What happens while packages are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchEvent<'a> {
    /// It is in the cache and good.
    Cached(&'a LockedDeb),
    /// So many more bytes of it have arrived.
    Bytes(&'a LockedDeb, u64),
    /// It was fetched and verified.
    Done(&'a LockedDeb),
}

/// The files `CACHE/<sha256>.deb` of all packages, in their order.
pub async fn fetch_debs(
    client: &reqwest::Client,
    mirrors: &Mirrors,
    cache: &Path,
    debs: &[LockedDeb],
    on_event: &(dyn Fn(FetchEvent<'_>) + Sync),
) -> Result<Vec<PathBuf>, FetchError> {
    for deb in debs {
        deb.check()?;
    }
    stream::iter(
        debs.iter()
            .map(|deb| fetch_deb(client, mirrors, cache, deb, on_event)),
    )
    .buffered(PARALLEL)
    .try_collect()
    .await
}

async fn fetch_deb(
    client: &reqwest::Client,
    mirrors: &Mirrors,
    cache: &Path,
    deb: &LockedDeb,
    on_event: &(dyn Fn(FetchEvent<'_>) + Sync),
) -> Result<PathBuf, FetchError> {
    // Without a mirror, what is in the cache is still good.
    let (urls, no_mirror) = match mirrors.of(&deb.archive) {
        Ok(mirrors) => (
            mirrors
                .iter()
                .map(|mirror| format!("{mirror}/{}", deb.path))
                .collect(),
            None,
        ),
        Err(error) => (Vec::new(), Some(error)),
    };
    let expected = Expected {
        sha256: &deb.sha256,
        size: deb.size,
    };
    let bytes = |count| on_event(FetchEvent::Bytes(deb, count));
    match fetch_to_cache(client, &urls, expected, cache, "deb", bytes).await {
        Ok((path, fetched)) => {
            on_event(if fetched {
                FetchEvent::Done(deb)
            } else {
                FetchEvent::Cached(deb)
            });
            Ok(path)
        }
        Err(source) => Err(match no_mirror {
            Some(source) => FetchError::Mirror {
                package: deb.name.clone(),
                source,
            },
            None if source.is_missing() => FetchError::Gone {
                package: deb.name.clone(),
                version: deb.version.clone(),
            },
            None => FetchError::Download {
                package: deb.name.clone(),
                version: deb.version.clone(),
                source,
            },
        }),
    }
}
