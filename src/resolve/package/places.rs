//! Where a project's files are listed: the user's indexes and `find-links`, in their order.

use super::super::indexes::Indexes;
use super::super::simple::{ACCEPT, Kind, Listed, read};
use super::super::uv::{Uv, UvError};
use super::{PackageError, Pin, choose};
use crate::catalog::Catalog;
use reqwest::Url;
use stackforge_transfer::fetch::{Fetcher, without_credentials};
use stackforge_types::Digest;
use std::path::Path;

/// A page of torch's is 1 MB, the longest of PyPI's below 30 MB.
const LARGEST_PAGE: u64 = 64 << 20;

pub(super) struct Places {
    find_links: Vec<String>,
    /// Addresses, which may hold credentials.
    indexes: Vec<String>,
    /// Only the first index that has the project.
    first_only: bool,
}

/// As the settings have them.
pub(super) async fn of(
    settings: &Indexes,
    catalog: &Catalog,
    store: &Path,
) -> Result<Places, PackageError> {
    let mut indexes = Vec::new();
    for address in settings.addresses() {
        indexes.push(match address {
            Some(address) => address,
            None => default_of_uv(settings, catalog, store).await?,
        });
    }
    let find_links = settings.find_links().to_vec();
    if indexes.is_empty() && find_links.is_empty() {
        return Err(PackageError::NoIndex);
    }
    Ok(Places {
        find_links,
        indexes,
        first_only: settings.first_only(),
    })
}

/// The index that uv asks when nobody says otherwise: what it writes atop an empty answer.
async fn default_of_uv(
    settings: &Indexes,
    catalog: &Catalog,
    store: &Path,
) -> Result<String, PackageError> {
    let uv = Uv::find(catalog, store, false, false, &mut |_| {}).await?;
    let io = |source| {
        PackageError::Uv(UvError::Io {
            doing: "write a question for uv in",
            path: std::env::temp_dir(),
            source,
        })
    };
    let work = tempfile::tempdir().map_err(io)?;
    std::fs::write(work.path().join("nothing.in"), "").map_err(io)?;
    let mut arguments: Vec<String> = ["pip", "compile", "--quiet", "--no-deps", "--no-cache"]
        .into_iter()
        .chain(["--offline", "--no-header", "--emit-index-url"])
        .map(str::to_owned)
        .collect();
    if let Some(config) = &settings.config {
        std::fs::write(work.path().join("uv.toml"), config.to_string()).map_err(io)?;
        arguments.extend(["--config-file".to_owned(), "uv.toml".to_owned()]);
    }
    arguments.push("nothing.in".to_owned());
    let answer = uv.run(work.path(), &arguments).await?;
    let mut lines = answer.stdout.lines();
    lines
        .find_map(|l| l.strip_prefix("--index-url "))
        .map(|url| url.trim().to_owned())
        .ok_or(PackageError::NoDefault)
}

impl Places {
    /// The files of the project, from where they are to be chosen.
    pub async fn find(&self, wanted: &Pin, fetcher: &Fetcher) -> Result<Vec<Listed>, PackageError> {
        let mut files = Vec::new();
        for link in &self.find_links {
            match link.strip_prefix("file://").unwrap_or(link) {
                url if url.contains("://") => files.extend(page(url, &wanted.name, fetcher).await?),
                path => files.extend(directory(Path::new(path), &wanted.name)),
            }
        }
        if choose::choose(&files, wanted).is_ok() {
            return Ok(files);
        }
        let mut known = !files.is_empty();
        for index in &self.indexes {
            let url = format!("{}/{}/", index.trim_end_matches('/'), wanted.name);
            match page(&url, &wanted.name, fetcher).await {
                Ok(listed) => {
                    files.extend(listed);
                    known = true;
                    if self.first_only {
                        break;
                    }
                }
                Err(PackageError::Fetch(e)) if e.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        match known {
            true => Ok(files),
            false => Err(PackageError::NoProject {
                name: wanted.name.clone(),
                asked: self.indexes.len() + self.find_links.len(),
            }),
        }
    }
}

/// A file that is locked: any place that has these bytes will do.
pub(super) struct Locked {
    /// Normalized name of the project.
    pub project: String,
    pub file: String,
    pub sha256: Digest,
}

impl Places {
    /// Where files of one project are, for each of `wanted` in its order; an empty list where
    /// nobody has it. Every place is asked until all are found: the digest says that a file is the
    /// right one, so none can be taken for another's.
    pub async fn locate(
        &self,
        project: &str,
        wanted: &[&Locked],
        fetcher: &Fetcher,
    ) -> Result<Vec<Vec<Url>>, PackageError> {
        let mut urls = vec![Vec::new(); wanted.len()];
        let mut take = |listed: &[Listed]| {
            for (wanted, urls) in wanted.iter().zip(&mut urls) {
                for file in listed.iter().filter(|f| is(f, wanted)) {
                    urls.push(file.url.clone());
                }
            }
            urls.iter().all(|found| !found.is_empty())
        };
        for link in &self.find_links {
            let listed = match link.strip_prefix("file://").unwrap_or(link) {
                url if url.contains("://") => page(url, project, fetcher).await?,
                path => directory(Path::new(path), project),
            };
            if take(&listed) {
                return Ok(urls);
            }
        }
        let mut failed = None;
        for index in &self.indexes {
            let url = format!("{}/{project}/", index.trim_end_matches('/'));
            match page(&url, project, fetcher).await {
                Ok(listed) if take(&listed) => return Ok(urls),
                Ok(_) => {}
                Err(PackageError::Fetch(e)) if e.is_missing() => {}
                // The next one may have it; if none has, this is why.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(urls),
        }
    }
}

fn is(listed: &Listed, wanted: &Locked) -> bool {
    match &listed.sha256 {
        Some(sha256) => *sha256 == wanted.sha256,
        None => listed.file == wanted.file,
    }
}

/// The files that a page lists. One of the page's own server gets the login that the page had.
async fn page(url: &str, project: &str, fetcher: &Fetcher) -> Result<Vec<Listed>, PackageError> {
    let answer = fetcher.get(url, Some(ACCEPT), LARGEST_PAGE).await?;
    let asked = Url::parse(url).map_err(|_| stackforge_transfer::fetch::FetchError::Address {
        url: without_credentials(url),
    })?;
    if asked.scheme() == "https" && answer.url.scheme() != "https" {
        return Err(PackageError::Downgrade);
    }
    let kind = answer.content_type.as_deref();
    let mut files =
        read(&answer.body, kind, &answer.url, project).map_err(|source| PackageError::Page {
            name: project.to_owned(),
            source,
        })?;
    files.retain(|f| matches!(f.url.scheme(), "http" | "https"));
    for file in &mut files {
        let own = !file.url.username().is_empty() || file.url.password().is_some();
        if !own && file.url.origin() == asked.origin() {
            // Neither fails for an address with a host.
            let _ = file.url.set_username(asked.username());
            let _ = file.url.set_password(asked.password());
        }
    }
    Ok(files)
}

/// The wheels of a project in a directory.
pub(super) fn directory(path: &Path, project: &str) -> Vec<Listed> {
    let Ok(path) = path.canonicalize() else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let file = entry.file_name().into_string().ok()?;
        Some(Listed {
            kind: Kind::of(&file, project)?,
            url: Url::from_file_path(entry.path()).ok()?,
            file,
            sha256: None,
            size: None,
            requires_python: None,
            yanked: None,
        })
    });
    files.collect()
}
