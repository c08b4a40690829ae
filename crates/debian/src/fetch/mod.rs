//! Fetches locked packages into a folder.
//!
//! The input is locked packages and mirrors; the output is paths of verified files, in the same order.
//! Events report progress. A package that no mirror has any more is an error of its own, because
//! archives keep only the newest version.

use futures_util::future::try_join_all;
use std::path::{Path, PathBuf};

use super::mirror::{MirrorError, Mirrors};
use super::package::{LockedDeb, MalformedLock};
use stackforge_transfer::fetch::{Download, FetchError, What};

pub use stackforge_transfer::RetryPolicy;
pub use stackforge_transfer::fetch::Fetcher;

/// Why a package could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchDebsError {
    /// A locked package is malformed.
    #[error(transparent)]
    Lock(#[from] MalformedLock),
    /// The package's archive has no mirror.
    #[error("fetching package `{package}`")]
    Mirror {
        /// The package.
        package: String,
        /// The missing mirror.
        #[source]
        source: MirrorError,
    },
    /// Every mirror answers that it does not have the package.
    #[error("no mirror has package `{package}` in version {version} any more")]
    Gone {
        /// The package.
        package: String,
        /// Version of the package.
        version: String,
    },
    /// The download failed, or the file is not the locked one.
    #[error("fetching package `{package}` {version}")]
    Download {
        /// The package.
        package: String,
        /// Version of the package.
        version: String,
        /// The failed download.
        #[source]
        source: FetchError,
    },
}

impl FetchDebsError {
    /// Returns what to do about it, as a sentence without its full stop.
    pub fn help(&self) -> String {
        match self {
            Self::Lock(_) | Self::Gone { .. } => "an archive keeps the newest version only: lock again, or configure a mirror that keeps old ones".to_owned(),
            Self::Mirror { source, .. } => source.help(),
            Self::Download { source, .. } => source.help(),
        }
    }
}

/// An event while packages are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchEvent<'a> {
    /// The package is in the cache and valid.
    Cached(&'a LockedDeb),
    /// This many more bytes of the package have arrived.
    Bytes(&'a LockedDeb, u64),
    /// The package was fetched and verified.
    Done(&'a LockedDeb),
}

/// Fetches all packages and returns their files `FOLDER/<sha256>`, in the order of `debs`.
///
/// # Errors
/// The first error of any package. Files that were fetched before it stay for the next call.
pub async fn fetch_debs(
    fetcher: &Fetcher,
    mirrors: &Mirrors,
    folder: &Path,
    debs: &[LockedDeb],
    on_event: &(dyn Fn(FetchEvent<'_>) + Sync),
) -> Result<Vec<PathBuf>, FetchDebsError> {
    for deb in debs {
        deb.check()?;
    }
    let all = debs
        .iter()
        .map(|deb| fetch_deb(fetcher, mirrors, folder, deb, on_event));
    try_join_all(all).await
}

async fn fetch_deb(
    fetcher: &Fetcher,
    mirrors: &Mirrors,
    folder: &Path,
    deb: &LockedDeb,
    on_event: &(dyn Fn(FetchEvent<'_>) + Sync),
) -> Result<PathBuf, FetchDebsError> {
    // A file in the folder is valid even if its archive has no mirror.
    let (urls, no_mirror) = match mirrors.for_archive(&deb.archive) {
        Ok(mirrors) => (
            mirrors
                .iter()
                .map(|mirror| format!("{mirror}/{}", deb.path))
                .collect(),
            None,
        ),
        Err(error) => (Vec::new(), Some(error)),
    };
    let download = Download {
        name: deb.sha256.hex().to_owned(),
        urls,
        sha256: deb.sha256.clone(),
        size: Some(deb.size),
    };
    let on_fetch_event = |event: stackforge_transfer::fetch::Event<'_>| match event.what {
        What::Cached => on_event(FetchEvent::Cached(deb)),
        What::Bytes(count) => on_event(FetchEvent::Bytes(deb, count)),
        What::Done => on_event(FetchEvent::Done(deb)),
        _ => {}
    };
    match fetcher.file(&download, folder, &on_fetch_event).await {
        Ok(fetched) => Ok(fetched.path),
        Err(source) => Err(match no_mirror {
            Some(source) => FetchDebsError::Mirror {
                package: deb.name.clone(),
                source,
            },
            None if source.is_missing() => FetchDebsError::Gone {
                package: deb.name.clone(),
                version: deb.version.clone(),
            },
            None => FetchDebsError::Download {
                package: deb.name.clone(),
                version: deb.version.clone(),
                source,
            },
        }),
    }
}

#[cfg(test)]
mod tests;
