//! Fetches the index of a distribution and verifies it link by link.
//!
//! The input is suites, mirrors, a keyring and a cache directory; the output is a [`PackageIndex`].
//! Each suite's InRelease is always fetched again and its signature checked. Index files are taken from
//! the cache if their digest is there.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::deb::{Bounded, xz_decoder};
use super::index::{IndexBuilder, IndexError, PackageIndex};
use super::mirror::{MirrorError, Mirrors};
use super::newest;
use super::package::is_word;
use super::release::{MAX_RELEASE, Release, ReleaseError};
use stackforge_openpgp::Keyring;
use stackforge_transfer::fetch::{Download, FetchError, Fetcher};

/// Limit on the size of one decompressed `Packages` file, in bytes. Debian's main has 50 MB.
const MAX_PACKAGES: u64 = 2 << 30;

/// Why a suite has no verified index.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The suite's archive has no mirror.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// The release failed verification.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// A file of the suite could not be downloaded.
    #[error("fetching the index of `{suite}`")]
    Download {
        /// The suite.
        suite: String,
        /// The failed download.
        #[source]
        source: FetchError,
    },
    /// The release does not list the index.
    #[error("suite `{suite}` has no component `{component}` for `{architecture}`")]
    Absent {
        /// The suite.
        suite: String,
        /// The requested component.
        component: String,
        /// The requested architecture.
        architecture: String,
    },
    /// An index file is verified but malformed.
    #[error("reading the index of `{suite}`")]
    Index {
        /// The suite.
        suite: String,
        /// What is wrong with it.
        #[source]
        source: IndexError,
    },
    /// An index file in the cache cannot be read.
    #[error("reading the index file of `{suite}`")]
    Read {
        /// The suite.
        suite: String,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },
    /// The name of a suite, component or architecture is not valid as a part of a URL.
    #[error("`{0}` is not the name of a suite, component or architecture")]
    Name(String),
}

impl ArchiveError {
    /// Returns what to do about it, as a sentence without its full stop.
    pub fn help(&self) -> String {
        match self {
            Self::Mirror(error) => error.help(),
            Self::Release(error) => error.help().to_owned(),
            Self::Download { source, .. } => source.help(),
            Self::Absent { .. } => {
                "choose an architecture and components that the suite has".to_owned()
            }
            _ => "the index is not as Debian's are: check which archive the mirror carries"
                .to_owned(),
        }
    }
}

/// One suite of one archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suite {
    /// Kind of archive: `debian`, `debian-security`, `ubuntu`, …
    pub archive: String,
    /// Name of the suite, such as `bookworm-updates`.
    pub name: String,
    /// Components: `main`, `contrib`, `universe`, …
    pub components: Vec<String>,
}

/// Returns the suites of a Debian release: the release, its updates and its security updates.
pub fn debian_suites(codename: &str) -> Vec<Suite> {
    [
        ("debian", ""),
        ("debian", "-updates"),
        ("debian-security", "-security"),
    ]
    .into_iter()
    .map(|(archive, pocket)| Suite {
        archive: archive.to_owned(),
        name: format!("{codename}{pocket}"),
        components: vec!["main".to_owned()],
    })
    .collect()
}

/// The inputs of [`fetch_index`] besides the suites.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// Fetches the releases and index files.
    pub fetcher: &'a Fetcher,
    /// Mirrors of the archives.
    pub mirrors: &'a Mirrors,
    /// Keys that must have signed the releases.
    pub keyring: &'a Keyring,
    /// Directory of verified index files, named by digest.
    pub cache: &'a Path,
    /// Time at which signatures and releases must be valid.
    pub now: SystemTime,
}

/// Fetches the packages of all suites for one architecture.
///
/// # Errors
/// If a suite has no mirror, cannot be downloaded, is not signed by the keyring, has expired, or lacks
/// the architecture or a component.
pub async fn fetch_index(
    source: Source<'_>,
    suites: &[Suite],
    architecture: &str,
) -> Result<PackageIndex, ArchiveError> {
    let fetched = fetch_suites(source, suites, architecture, &|release, suite| {
        packages_of(release, suite, architecture)
    })
    .await?;
    let mut builder = IndexBuilder::new(architecture);
    for (suite, files) in suites.iter().zip(fetched) {
        for file in files {
            let read = |source| ArchiveError::Read {
                suite: suite.name.clone(),
                source,
            };
            let raw = BufReader::with_capacity(128 << 10, File::open(file).map_err(read)?);
            let text = Bounded {
                inner: xz_decoder(raw).map_err(read)?,
                left: MAX_PACKAGES,
            };
            builder
                .add(&suite.archive, BufReader::with_capacity(256 << 10, text))
                .map_err(|source| ArchiveError::Index {
                    suite: suite.name.clone(),
                    source,
                })?;
        }
    }
    Ok(builder.finish())
}

/// Chooses paths among the files that a release lists.
type Wanted<'a> = dyn Fn(&Release, &Suite) -> Result<Vec<String>, ArchiveError> + 'a;

/// Fetches verified files of all suites.
pub(crate) async fn fetch_suites(
    source: Source<'_>,
    suites: &[Suite],
    architecture: &str,
    wanted: &Wanted<'_>,
) -> Result<Vec<Vec<PathBuf>>, ArchiveError> {
    let names = suites
        .iter()
        .flat_map(|suite| suite.components.iter().chain([&suite.name]));
    if let Some(name) = names
        .map(String::as_str)
        .chain([architecture])
        .find(|name| !is_word(name))
    {
        return Err(ArchiveError::Name(name.escape_debug().to_string()));
    }
    let fetched = suites
        .iter()
        .map(|suite| fetch_suite(source, suite, wanted));
    futures_util::future::try_join_all(fetched).await
}

/// Fetches files of a suite from the first mirror that has all of them.
async fn fetch_suite(
    source: Source<'_>,
    suite: &Suite,
    wanted: &Wanted<'_>,
) -> Result<Vec<PathBuf>, ArchiveError> {
    let mut first_error = None;
    for mirror in source.mirrors.for_archive(&suite.archive)? {
        match fetch_suite_from(source, suite, wanted, mirror).await {
            Ok(files) => return Ok(files),
            Err(error) => {
                tracing::debug!(suite = suite.name, %error, "mirror passed over");
                first_error.get_or_insert(error);
            }
        }
    }
    // `for_archive` returns at least one mirror, so there was an error.
    Err(first_error.unwrap_or_else(|| {
        MirrorError::Missing {
            archive: suite.archive.clone(),
        }
        .into()
    }))
}

async fn fetch_suite_from(
    source: Source<'_>,
    suite: &Suite,
    wanted: &Wanted<'_>,
    mirror: &str,
) -> Result<Vec<PathBuf>, ArchiveError> {
    let download = |source| ArchiveError::Download {
        suite: suite.name.clone(),
        source,
    };
    let base = format!("{mirror}/dists/{}", suite.name);
    let url = format!("{base}/InRelease");
    let answer = source.fetcher.get(&url, None, MAX_RELEASE as u64).await;
    let bytes = answer.map_err(download)?.body;
    let release = Release::verify(&bytes, &suite.name, source.keyring, source.now)?;
    if let Some(date) = release.date
        && let Some(newest) = newest::older(source.cache, &suite.archive, &suite.name, date)
    {
        let days = newest
            .duration_since(date)
            .map_or(0, |d| d.as_secs() / 86_400);
        tracing::warn!(
            "{mirror} shows `{}` as it was {days} days before it was last seen: it is out of date, or \
             its index is an old one",
            suite.name
        );
    }
    let mut files = Vec::new();
    for path in wanted(&release, suite)? {
        let Some(listed) = release.files.get(&path) else {
            continue;
        };
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let (_, ending) = name.rsplit_once('.').unwrap_or(("", "index"));
        let hex = listed.sha256.hex();
        let mut urls = vec![format!("{base}/{path}")];
        if release.by_hash {
            let folder = match folder {
                "" => String::new(),
                folder => format!("{folder}/"),
            };
            urls.insert(0, format!("{base}/{folder}by-hash/SHA256/{hex}"));
        }
        let wanted = Download {
            name: format!("{hex}.{ending}"),
            urls,
            sha256: listed.sha256.clone(),
            size: Some(listed.size),
        };
        let fetched = source.fetcher.file(&wanted, source.cache, &|_| {}).await;
        files.push(fetched.map_err(download)?.path);
    }
    Ok(files)
}

/// Returns the package index of each component.
fn packages_of(
    release: &Release,
    suite: &Suite,
    architecture: &str,
) -> Result<Vec<String>, ArchiveError> {
    let known = release.architectures.iter().any(|a| a == architecture);
    let index = |component: &String| {
        let path = format!("{component}/binary-{architecture}/Packages.xz");
        if known && release.files.contains_key(&path) {
            return Ok(path);
        }
        Err(ArchiveError::Absent {
            suite: suite.name.clone(),
            component: component.clone(),
            architecture: architecture.to_owned(),
        })
    };
    suite.components.iter().map(index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackforge_transfer::RetryPolicy;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_busy_mirror_is_asked_again_and_no_login_is_shown() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap();
        let server = async {
            for answer in ["503 X\r\nRetry-After: 0", "403 X"] {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(socket.read_u8().await.unwrap());
                }
                let head = "Content-Length: 0\r\nConnection: close\r\n\r\n";
                let answer = format!("HTTP/1.1 {answer}\r\n{head}");
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        let mirror = format!("debian=http://user:secret@{host}");
        let mirrors = Mirrors::parse([mirror.as_str()].into_iter()).unwrap();
        let fetcher = Fetcher::new(RetryPolicy::default()).unwrap();
        let keyring = Keyring::parse(include_bytes!(
            "../../../images/keyrings/debian-archive-bookworm.gpg"
        ));
        let cache = tempfile::tempdir().unwrap();
        let source = Source {
            fetcher: &fetcher,
            mirrors: &mirrors,
            keyring: &keyring.unwrap(),
            cache: cache.path(),
            now: SystemTime::now(),
        };
        let suites = &debian_suites("bookworm")[..1];
        let (index, ()) = tokio::join!(fetch_index(source, suites, "amd64"), server);
        let error = index.err().unwrap();
        let ArchiveError::Download { source, .. } = &error else {
            panic!("{error}");
        };
        assert!(source.is_denied(), "{source}");
        assert!(!format!("{error} {source} {source:?}").contains("secret"));
    }
}
