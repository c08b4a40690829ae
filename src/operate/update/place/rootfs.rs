//! A directory with the files of an image, and one beside it with those of the other image.
//!
//! Each directory holds a whole image, named by its marker. New files are written to the one that the
//! service does not use; switching and going back both exchange the two names.

use super::Back;
use crate::UpdateError;
use stackforge_distribute::pull::{self, Fetched, PullError, Resolved, Rootfs};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tokio::task::block_in_place;

/// Returns the directory of the image that the service does not use. It is beside the files themselves,
/// even if `dir` is a symbolic link to them.
pub fn other(dir: &Path) -> PathBuf {
    let dir = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let mut name = dir.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".other");
    dir.with_file_name(name)
}

pub fn current_id(dir: &Path) -> Option<String> {
    pull::image_in(dir).map(|digest| digest.to_string())
}

pub async fn bring(
    dir: &Path,
    resolved: &Resolved,
    settings: &pull::Settings<'_>,
) -> Result<Fetched, UpdateError> {
    // Fail now, not while the service is stopped.
    pull::replaceable(dir)?;
    let other = other(dir);
    let store = settings.store;
    // The image before the current one goes in any case, and no service uses it.
    let roots = Rootfs::begin_unused(&other, dir, resolved, store).await?;
    let on_blob = |digest: &_| roots.iter().for_each(|root| root.blob_stored(digest));
    let fetched = pull::fetch(resolved, settings, Some(&on_blob)).await?;
    for root in roots {
        root.finish(0).await?;
    }
    Ok(fetched)
}

pub fn switch(dir: &Path, id: &str) -> Result<(), UpdateError> {
    if current_id(dir).as_deref() == Some(id) {
        return Ok(());
    }
    Ok(block_in_place(|| pull::exchange(dir, &other(dir)))?)
}

pub fn back(dir: &Path, id: &str, before: Option<&str>) -> Result<Back, UpdateError> {
    // Fail if the service removed the marker: that does not mean that another image is there.
    pull::replaceable(dir)?;
    let (here, beside) = (current_id(dir), current_id(&other(dir)));
    if here.as_deref() == before {
        return Ok(Back::Done);
    }
    if here.as_deref() != Some(id) {
        return Ok(Back::Moved);
    }
    if before.is_some() && beside.as_deref() != before {
        return Ok(Back::Gone);
    }
    let exchanged: Result<(), PullError> = block_in_place(|| pull::exchange(dir, &other(dir)));
    exchanged?;
    Ok(Back::Done)
}
