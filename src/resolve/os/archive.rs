//! The archive of a base's distribution: its packages, and which of them has which file.

use crate::error::OsPackagesError;
use crate::{LockOptions, ResolveError};
use stackforge_debian::Keyring;
use stackforge_debian::archive::{ArchiveError, Source, Suite, fetch_index};
use stackforge_debian::contents::{Contents, fetch_contents, fetch_unverified_contents};
use stackforge_debian::index::PackageIndex;
use stackforge_debian::mirror::Mirrors;
use stackforge_stack::catalog::{Bootstrap, Image, keyring};
use stackforge_stack::spec::Platform;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::Fetcher;
use std::path::PathBuf;
use std::time::SystemTime;

/// The archive that a base's packages come from.
pub struct Archive {
    suites: Vec<Suite>,
    keyring: Keyring,
    architecture: &'static str,
    mirrors: Mirrors,
    fetcher: Fetcher,
    /// Directory of index files.
    cache: PathBuf,
}

impl Archive {
    pub fn new(
        suites: Vec<Suite>,
        keyring: Keyring,
        platform: Platform,
        options: &LockOptions,
    ) -> Result<Self, ResolveError> {
        let cache = options.cache.join("indices");
        std::fs::create_dir_all(&cache).map_err(|source| ResolveError::Io {
            doing: "create",
            path: cache.clone(),
            source,
        })?;
        Ok(Self {
            suites,
            keyring,
            architecture: platform.arch(),
            mirrors: Mirrors::discover(&options.debian_mirrors).map_err(OsPackagesError::from)?,
            fetcher: Fetcher::new(RetryPolicy::default()).map_err(OsPackagesError::from)?,
            cache,
        })
    }

    /// Returns the archive of a base that is made of its packages.
    pub fn of_image(
        image: &Image,
        bootstrap: &Bootstrap,
        platform: Platform,
        options: &LockOptions,
    ) -> Result<Self, ResolveError> {
        let suites = bootstrap.suites.iter().map(|name| Suite {
            archive: archive_of(&image.os.id, name),
            name: name.clone(),
            components: bootstrap.components.clone(),
        });
        // The catalog was checked when it was built, so the keyring exists.
        let key = keyring(&bootstrap.keyring).unwrap_or_default();
        let keyring = Keyring::parse(key).map_err(OsPackagesError::from)?;
        Self::new(suites.collect(), keyring, platform, options)
    }

    pub async fn index(&self) -> Result<PackageIndex, ResolveError> {
        let index = fetch_index(self.source(), &self.suites, self.architecture).await;
        Ok(index.map_err(OsPackagesError::from)?)
    }

    /// Returns which package has which file. `None` if the mirror has no such index that can be read.
    pub async fn contents(&self) -> Result<Option<Contents>, ResolveError> {
        let (source, suites, architecture) = (self.source(), &self.suites, self.architecture);
        let (suite, why) = match fetch_contents(source, suites, architecture).await {
            Ok(contents) => return Ok(Some(contents)),
            Err(ArchiveError::Download { suite, source }) => (suite, source),
            Err(error) => return Err(OsPackagesError::from(error).into()),
        };
        // It chooses among packages that are verified, as what ranges of wheels say does.
        match fetch_unverified_contents(source, suites, architecture).await {
            Ok(contents) => {
                tracing::warn!(
                    "the mirror's index of files (Contents) of `{suite}` is not the signed one ({why}): OS packages of system libraries are chosen by what it says"
                );
                Ok(Some(contents))
            }
            Err(_) => {
                tracing::warn!(
                    "the mirror's index of files (Contents) of `{suite}` cannot be used ({why}): OS packages of system libraries are chosen by their names"
                );
                Ok(None)
            }
        }
    }

    fn source(&self) -> Source<'_> {
        Source {
            fetcher: &self.fetcher,
            mirrors: &self.mirrors,
            keyring: &self.keyring,
            cache: &self.cache,
            now: SystemTime::now(),
        }
    }
}

/// Returns the archive of a suite: Debian has a separate archive for security suites.
fn archive_of(os: &str, suite: &str) -> String {
    match os {
        "debian" if suite.ends_with("-security") => "debian-security".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_suites_have_their_own_archive_in_debian() {
        assert_eq!(archive_of("debian", "bookworm-security"), "debian-security");
        assert_eq!(archive_of("debian", "bookworm-updates"), "debian");
        assert_eq!(archive_of("ubuntu", "noble-security"), "ubuntu");
    }
}
