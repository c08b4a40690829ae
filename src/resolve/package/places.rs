//! Finds a project's files: in the user's `find-links` and indexes, in their order.

use super::super::indexes::Indexes;
use super::super::simple::{ACCEPT, Listed, PackageFile, read};
use super::super::uv::{Uv, UvError};
use super::{PackageError, Pin, choose};
use reqwest::Url;
use stackforge_stack::catalog::Catalog;
use stackforge_transfer::fetch::{Fetcher, without_credentials};
use stackforge_types::Digest;
use std::path::Path;

/// Longest page, in bytes. Torch's has 1 MB, the longest of PyPI less than 30 MB.
const LARGEST_PAGE: u64 = 64 << 20;

pub(super) struct Places {
    find_links: Vec<String>,
    /// URLs of the indexes, which may hold credentials.
    indexes: Vec<String>,
    /// Whether only the first index that has the project is used.
    first_only: bool,
}

/// Returns the places in the settings.
pub(super) async fn from_settings(
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

/// Returns the index that uv uses by default: uv writes it at the top of an empty answer.
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
    /// No place at all.
    pub fn none() -> Self {
        Self {
            find_links: Vec::new(),
            indexes: Vec::new(),
            first_only: true,
        }
    }

    /// Returns the project's files to choose from.
    pub async fn find(&self, wanted: &Pin, fetcher: &Fetcher) -> Result<Vec<Listed>, PackageError> {
        let mut files = self.linked(&wanted.name, fetcher).await?;
        if choose::choose(&files, wanted).is_ok() {
            return Ok(files);
        }
        let indexed = self.indexed(&wanted.name, fetcher).await?;
        if files.is_empty() && indexed.is_none() {
            return Err(PackageError::NoProject {
                name: wanted.name.clone(),
                asked: self.indexes.len() + self.find_links.len(),
            });
        }
        files.extend(indexed.into_iter().flatten());
        Ok(files)
    }

    /// Returns all files of a project; none if no place has it.
    pub async fn all(&self, name: &str, fetcher: &Fetcher) -> Result<Vec<Listed>, PackageError> {
        let mut files = self.linked(name, fetcher).await?;
        let indexed = self.indexed(name, fetcher).await?;
        files.extend(indexed.into_iter().flatten());
        Ok(files)
    }

    /// Returns a project's files in `find-links`.
    async fn linked(&self, name: &str, fetcher: &Fetcher) -> Result<Vec<Listed>, PackageError> {
        let mut files = Vec::new();
        for link in &self.find_links {
            match link.strip_prefix("file://").unwrap_or(link) {
                url if url.contains("://") => files.extend(page(url, name, fetcher).await?),
                path => files.extend(directory(Path::new(path), name)),
            }
        }
        Ok(files)
    }

    /// Returns a project's files in the indexes. `None` if none of them has the project.
    async fn indexed(
        &self,
        name: &str,
        fetcher: &Fetcher,
    ) -> Result<Option<Vec<Listed>>, PackageError> {
        let mut files = None;
        for index in &self.indexes {
            let url = format!("{}/{name}/", index.trim_end_matches('/'));
            match page(&url, name, fetcher).await {
                Ok(listed) => {
                    files.get_or_insert_with(Vec::new).extend(listed);
                    if self.first_only {
                        break;
                    }
                }
                Err(PackageError::Fetch(e)) if e.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }
}

/// A locked file. Any place that has these bytes will do.
pub(super) struct Locked {
    /// Normalized name of the project.
    pub project: String,
    pub file: String,
    pub sha256: Digest,
}

impl Places {
    /// Returns the URLs of each of `wanted`, in its order; an empty list for a file that no place has. All places
    /// are asked until all files are found. The digest identifies a file, so a wrong one cannot be taken.
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
                // A later place may have the file; if none has, report this error.
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

/// Returns the files that a page lists. Files on the page's own server get the page's login.
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
            // Setting a login fails only for a URL without a host.
            let _ = file.url.set_username(asked.username());
            let _ = file.url.set_password(asked.password());
        }
    }
    Ok(files)
}

/// Returns the wheels of a project in a directory.
pub(super) fn directory(path: &Path, project: &str) -> Vec<Listed> {
    let Ok(path) = path.canonicalize() else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let file = entry.file_name().into_string().ok()?;
        Some(Listed {
            kind: PackageFile::parse(&file, project)?,
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
