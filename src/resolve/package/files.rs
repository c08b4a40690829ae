//! Fetches the files of a lock into the store, from wherever the index settings find them.
//!
//! A lock names files by digest and has no host. Files in the store are not fetched. The project pages of the
//! others are fetched once each, several in parallel, then all files together.

use super::places::{self, Locked, Places};
use super::{Indexes, PackageError, into};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use reqwest::Url;
use stackforge_image::store::Store;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::lock::PythonFile;
use stackforge_stack::spec::{Place, Stack};
use stackforge_transfer::fetch::{Download, Event};
use stackforge_types::wheel::normalized;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Pages that are fetched in parallel.
const PAGES: usize = 12;

/// Returns the paths of wheels and sdists in the order of `files`. Each ends in the file's own name and was
/// verified when it was fetched. The indexes are those of `stack`, else the user's. `on_event` is called with
/// download progress.
pub async fn locked_files(
    files: &[PythonFile],
    stack: Option<&Stack>,
    catalog: &Catalog,
    store: &Store,
    offline: bool,
    on_event: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Vec<PathBuf>, PackageError> {
    let locked = |file: &PythonFile| Locked {
        project: normalized(&file.name),
        file: file.file.clone(),
        sha256: file.sha256.clone(),
    };
    let all: Vec<Locked> = files.iter().map(locked).collect();
    store.lease(all.iter().map(|f| &f.sha256))?;
    let lacks = |(locked, file): &(&Locked, &PythonFile)| {
        let path = store.blob(&locked.sha256);
        let size = path.and_then(|path| Some(std::fs::metadata(path).ok()?.len()));
        size.is_none_or(|size| file.size > 0 && size != file.size)
    };
    let mut seen = BTreeSet::new();
    let missing: Vec<(&Locked, &PythonFile)> = (all.iter().zip(files))
        .filter(lacks)
        .filter(|(locked, _)| seen.insert(&locked.sha256))
        .collect();
    if !missing.is_empty() {
        if offline {
            let files = missing.iter().map(|(l, _)| l.file.clone()).collect();
            return Err(PackageError::OfflineFiles { files });
        }
        fetch(&missing, stack, catalog, store, on_event).await?;
    }
    let named = |f: &Locked| Ok(store.named(&f.sha256, &f.file)?);
    all.iter().map(named).collect()
}

/// Returns where the stack says that a locked file is.
fn named(stack: &Stack, locked: &Locked) -> Option<Url> {
    let mut files = stack.libraries.iter().filter_map(|l| l.file.as_ref());
    let file = files.find(|f| f.name == locked.file)?;
    match &file.place {
        Place::Url(url) => Url::parse(url).ok(),
        Place::Path(_) => {
            let path = file.path(Path::new(stack.file()))?;
            Url::from_file_path(std::path::absolute(path).ok()?).ok()
        }
    }
}

async fn fetch(
    missing: &[(&Locked, &PythonFile)],
    stack: Option<&Stack>,
    catalog: &Catalog,
    store: &Store,
    on_event: &(dyn Fn(Event<'_>) + Sync),
) -> Result<(), PackageError> {
    let indexes = stack.map_or_else(Indexes::of_user, Indexes::of);
    let fetcher = into(store)?;
    let mut urls = vec![Vec::new(); missing.len()];
    let mut projects: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, (locked, _)) in missing.iter().enumerate() {
        match stack.and_then(|stack| named(stack, locked)) {
            Some(url) => urls[place].push(url),
            None => projects.entry(&locked.project).or_default().push(place),
        }
    }
    let places = if projects.is_empty() {
        Places::none()
    } else {
        places::from_settings(&indexes, catalog, store.root()).await?
    };
    let (places, ask) = (&places, &fetcher);
    let found: Vec<(Vec<usize>, Vec<Vec<Url>>)> = stream::iter(projects)
        .map(|(project, numbers)| async move {
            let wanted: Vec<&Locked> = numbers.iter().map(|n| missing[*n].0).collect();
            let urls = places.locate(project, &wanted, ask).await?;
            Ok::<_, PackageError>((numbers, urls))
        })
        .buffer_unordered(PAGES)
        .try_collect()
        .await?;
    for (numbers, found) in found {
        for (number, found) in numbers.into_iter().zip(found) {
            urls[number] = found;
        }
    }
    let nowhere = missing
        .iter()
        .zip(&urls)
        .filter(|(_, urls)| urls.is_empty());
    let files: Vec<String> = nowhere.map(|((l, _), _)| l.file.clone()).collect();
    if !files.is_empty() {
        return Err(PackageError::Gone { files });
    }
    let mut downloads = Vec::new();
    for ((locked, file), urls) in missing.iter().zip(urls) {
        // The file is in a local directory of the user.
        if let Some(path) = urls.iter().find_map(|url| url.to_file_path().ok()) {
            let copied = std::fs::File::open(&path)
                .map_err(|e| stackforge_image::store::StoreError::at("read", &path, e))
                .and_then(|file| store.put(file, Some(&locked.sha256)));
            match copied {
                Ok(_) => continue,
                Err(_) if urls.iter().any(|url| url.scheme() != "file") => {}
                Err(source) => return Err(PackageError::Local { path, source }),
            }
        }
        let remote = urls.iter().filter(|url| url.scheme() != "file");
        downloads.push(Download {
            name: locked.sha256.hex().to_owned(),
            urls: remote.map(Url::to_string).collect(),
            sha256: locked.sha256.clone(),
            size: Some(file.size).filter(|size| *size > 0),
        });
    }
    let folder = store.dir("blobs/sha256")?;
    fetcher.all(&downloads, &folder, on_event).await?;
    for download in &downloads {
        store.verified(&download.sha256);
    }
    Ok(())
}
