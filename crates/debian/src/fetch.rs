//! Fetches locked packages into a folder.
//!
//! In come locked packages and mirrors; out come paths of verified files, in the same order;
//! events tell of progress. A package that no mirror has any more is an error
//! that says so, for archives keep only the newest version.

use futures_util::future::try_join_all;
use std::path::{Path, PathBuf};

use super::mirror::{MirrorError, Mirrors};
use super::package::{LockedDeb, MalformedLock};
use stackforge_transfer::fetch::{Download, What};

pub use stackforge_transfer::fetch::{Fetcher, Policy};

/// Why a package did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// A locked package is malformed.
    #[error(transparent)]
    Lock(#[from] MalformedLock),
    /// Its archive has no mirror.
    #[error("fetching package `{package}`")]
    Mirror {
        /// The package.
        package: String,
        /// What is missing.
        #[source]
        source: MirrorError,
    },
    /// Every mirror answers that it does not have it.
    #[error("no mirror has package `{package}` in version {version} any more")]
    Gone {
        /// The package.
        package: String,
        /// Its version.
        version: String,
    },
    /// It did not arrive as it was locked.
    #[error("fetching package `{package}` {version}")]
    Download {
        /// The package.
        package: String,
        /// Its version.
        version: String,
        /// What went wrong on the way.
        #[source]
        source: stackforge_transfer::fetch::FetchError,
    },
}

impl FetchError {
    /// What to do about it, as a sentence without its full stop.
    pub fn help(&self) -> String {
        match self {
            Self::Lock(_) | Self::Gone { .. } => "an archive keeps the newest version only: lock again, or configure a mirror that keeps old ones".to_owned(),
            Self::Mirror { source, .. } => source.help(),
            Self::Download { source, .. } => source.help(),
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

/// The files `FOLDER/<sha256>` of all packages, in their order.
///
/// # Errors
/// The first error of any package. What arrived before stays for the next call.
pub async fn fetch_debs(
    fetcher: &Fetcher,
    mirrors: &Mirrors,
    folder: &Path,
    debs: &[LockedDeb],
    on_event: &(dyn Fn(FetchEvent<'_>) + Sync),
) -> Result<Vec<PathBuf>, FetchError> {
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
) -> Result<PathBuf, FetchError> {
    // Without a mirror, what is in the folder is still good.
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
    let download = Download {
        name: deb.sha256.clone(),
        urls,
        sha256: format!("sha256:{}", deb.sha256)
            .parse()
            .map_err(|_| deb.bad_sha256())?,
        size: Some(deb.size),
    };
    let tell = |event: stackforge_transfer::fetch::Event<'_>| match event.what {
        What::Cached => on_event(FetchEvent::Cached(deb)),
        What::Bytes(count) => on_event(FetchEvent::Bytes(deb, count)),
        What::Done => on_event(FetchEvent::Done(deb)),
        _ => {}
    };
    match fetcher.file(&download, folder, &tell).await {
        Ok(fetched) => Ok(fetched.path),
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
