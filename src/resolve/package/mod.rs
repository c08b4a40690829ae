//! Fetches one published wheel: from `NAME==VERSION`, a Python and a platform to a file in the store.
//!
//! In: the wanted wheel, and the user's own index settings (uv's, else pip's, else uv's default, which uv is
//! asked for). Out: a [`Package`]: the verified wheel's path, below `names/<sha256>/` of the store and with
//! the wheel's own name. As in uv, the first index that has the project is used, unless the user's strategy
//! says otherwise; directories of `find-links` come before indexes. Never: resolves, takes another version,
//! or takes a file without a digest.

mod choose;
mod error;
mod files;
mod places;
mod published;

use super::indexes::Indexes;
use pep440_rs::Version;
use stackforge_image::store::Store;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::spec::{Platform, PythonVersion};
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::{Download, Event, Fetcher};
use stackforge_types::Digest;
use stackforge_types::wheel::normalized;
use std::path::PathBuf;

pub use error::PackageError;
pub use files::locked_files;
pub use published::{Published, Unread};

/// The wanted wheel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Normalized name of the distribution.
    pub name: String,
    pub version: Version,
    pub python: PythonVersion,
    pub platform: Platform,
    /// Minor version of the glibc 2 that the wheel has to run with; any if `None`.
    pub glibc: Option<u16>,
}

impl Pin {
    /// Parses `NAME==VERSION`.
    pub fn parse(
        pinned: &str,
        python: PythonVersion,
        platform: Platform,
    ) -> Result<Self, PackageError> {
        let wrong = || PackageError::Malformed(pinned.escape_debug().take(120).collect());
        let (name, version) = pinned.split_once("==").ok_or_else(wrong)?;
        let name = name.trim();
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let ends = [name.bytes().next(), name.bytes().last()];
        let bounded = ends
            .iter()
            .all(|b| b.is_some_and(|b| b.is_ascii_alphanumeric()));
        if !bounded || !name.bytes().all(plain) || name.len() > 128 {
            return Err(wrong());
        }
        Ok(Self {
            name: normalized(name),
            version: version.trim().parse().map_err(|_| wrong())?,
            python,
            platform,
            glibc: None,
        })
    }
}

/// A wheel on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Path, which ends in the wheel's own name.
    pub path: PathBuf,
    pub file: String,
    /// Version with its local part.
    pub version: Version,
    /// Digest. `None` for a file of a local directory, which no index vouches for.
    pub sha256: Option<Digest>,
    /// The reason if the index has yanked it, which may be empty.
    pub yanked: Option<String>,
    /// Whether nothing was fetched.
    pub cached: bool,
}

/// Returns the wheel, after fetching it if the store lacks it. `on_event` is called with download progress.
pub async fn package(
    wanted: &Pin,
    catalog: &Catalog,
    store: &Store,
    offline: bool,
    on_event: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Package, PackageError> {
    if offline {
        return stored_wheel(wanted, store, on_event).await;
    }
    let fetcher = into(store)?;
    let places = places::from_settings(&Indexes::of_user(), catalog, store.root()).await?;
    let found = places.find(wanted, &fetcher).await?;
    let (file, name) = choose::choose(&found, wanted)?;
    let mut package = Package {
        path: PathBuf::new(),
        file: file.file.clone(),
        version: name.version.clone(),
        sha256: None,
        yanked: file.yanked.clone(),
        cached: true,
    };
    if let Ok(path) = file.url.to_file_path() {
        package.path = path;
        return Ok(package);
    }
    let sha256 = file.sha256.clone().ok_or_else(|| PackageError::NoHash {
        file: file.file.clone(),
    })?;
    let download = Download {
        name: sha256.hex().to_owned(),
        urls: vec![file.url.to_string()],
        sha256: sha256.clone(),
        size: file.size,
    };
    store.lease([&sha256])?;
    let folder = store.dir("blobs/sha256")?;
    let fetched = fetcher.file(&download, &folder, on_event).await?;
    store.verified(&sha256);
    package.path = store.named(&sha256, &file.file)?;
    package.cached = fetched.cached;
    package.sha256 = Some(sha256);
    Ok(package)
}

/// Returns a fetcher that keeps partial downloads in the store.
fn into(store: &Store) -> Result<Fetcher, PackageError> {
    Ok(Fetcher::new(RetryPolicy::default())?.with_parts(store.dir("parts")?))
}

/// Returns the wheel of an earlier run, verified again.
async fn stored_wheel(
    wanted: &Pin,
    store: &Store,
    on_event: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Package, PackageError> {
    let missing = || PackageError::Offline {
        name: format!("{}=={}", wanted.name, wanted.version),
    };
    let mut all = Vec::new();
    for entry in std::fs::read_dir(store.root().join("names"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let Ok(sha256) = Digest::from_hex(&entry.file_name().to_string_lossy()) else {
            continue;
        };
        for mut file in places::directory(&entry.path(), &wanted.name) {
            file.sha256 = Some(sha256.clone());
            all.push(file);
        }
    }
    let (file, name) = choose::choose(&all, wanted).map_err(|_| missing())?;
    let sha256 = file.sha256.clone().ok_or_else(missing)?;
    let download = Download {
        name: sha256.hex().to_owned(),
        urls: Vec::new(),
        sha256: sha256.clone(),
        size: None,
    };
    let folder = store.root().join("blobs/sha256");
    let fetcher = Fetcher::new(RetryPolicy::default())?;
    let fetched = fetcher.file(&download, &folder, on_event).await;
    fetched.map_err(|_| missing())?;
    store.verified(&sha256);
    Ok(Package {
        path: store.named(&sha256, &file.file)?,
        file: file.file.clone(),
        version: name.version.clone(),
        sha256: Some(sha256),
        yanked: None,
        cached: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_with_one_version_is_wanted() {
        let of = |text| Pin::parse(text, "3.12".parse().unwrap(), Platform::LinuxAmd64);
        let wanted = of("Flash_Attn == 2.8.3+cu130").unwrap();
        assert_eq!(wanted.name, "flash-attn");
        assert_eq!(wanted.version.to_string(), "2.8.3+cu130");
        for bad in [
            "torch",
            "torch>=2",
            "torch==",
            "==2",
            "torch==2.*",
            "torch===2",
            "../x==1",
            "a[b]==1",
            "-a==1",
            "a b==1",
            "torch==2;x",
        ] {
            assert!(matches!(of(bad), Err(PackageError::Malformed(_))), "{bad}");
        }
    }
}
