//! The archives of source distributions.
//!
//! In: pinned distributions. Out: for each the archive in the store, and what it says of itself. Never: runs
//! anything of it.

use super::super::ResolveError;
use super::super::answer::Pins;
use super::super::python::Resolver;
use super::super::sdist::{self, Sdist};
use reqwest::Url;
use stackforge_image::store::Store;
use stackforge_stack::lock::PythonFile;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::{Download, Fetcher};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Fetches source distributions into the store and reads them.
pub(super) async fn read(
    cache: &Path,
    offline: bool,
    resolver: &Resolver<'_>,
    pins: &Pins,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<(String, Sdist)>, ResolveError> {
    let names: Vec<&str> = pins.keys().map(String::as_str).collect();
    progress(&format!("reading the source of {}", names.join(", ")));
    let files = resolver.files(pins).await?;
    let failed = |name: &str, why: String| ResolveError::Source {
        name: name.to_owned(),
        version: pins[name].version.to_string(),
        why,
    };
    let store = Store::open(Some(cache)).map_err(|e| failed(names[0], e.to_string()))?;
    let fetcher = Fetcher::new(RetryPolicy::default());
    let fetcher = fetcher.map_err(|e| failed(names[0], e.to_string()))?;
    let mut out = Vec::new();
    for name in names {
        let file = files.sdist(name)?;
        let path = match store.blob(&file.sha256) {
            Some(path) => path,
            None if offline => return Err(ResolveError::OfflineChoice(name.to_owned())),
            None => {
                let address = files.address(&file.sha256).unwrap_or_default();
                fetch(&store, &fetcher, &file, address)
                    .await
                    .map_err(|why| failed(name, why))?
            }
        };
        let metadata = sdist::read(&file.file, &path).map_err(|e| failed(name, e.to_string()))?;
        let sdist = Sdist {
            file,
            metadata,
            wheels: None,
        };
        out.push((name.to_owned(), sdist));
    }
    Ok(out)
}

async fn fetch(
    store: &Store,
    fetcher: &Fetcher,
    file: &PythonFile,
    address: &str,
) -> Result<PathBuf, String> {
    store.lease([&file.sha256]).map_err(|e| e.to_string())?;
    if let Ok(url) = Url::parse(address)
        && let Ok(path) = url.to_file_path()
    {
        let source = File::open(&path).map_err(|e| e.to_string())?;
        store
            .put(source, Some(&file.sha256))
            .map_err(|e| e.to_string())?;
        return store
            .blob(&file.sha256)
            .ok_or_else(|| "the store lost it".to_owned());
    }
    let download = Download {
        name: file.sha256.hex().to_owned(),
        urls: vec![address.to_owned()],
        sha256: file.sha256.clone(),
        size: Some(file.size).filter(|size| *size > 0),
    };
    let folder = store.dir("blobs/sha256").map_err(|e| e.to_string())?;
    let fetched = fetcher.file(&download, &folder, &|_| {}).await;
    let fetched = fetched.map_err(|e| e.to_string())?;
    store.verified(&file.sha256);
    Ok(fetched.path)
}
