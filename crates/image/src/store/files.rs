//! Reads, weighs, writes and removes files of a directory.
//!
//! In: paths. Out: what a directory holds, and files that are whole or not there at all.

use super::error::StoreError;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Paths of a directory's entries, sorted by name. Empty if the directory is missing.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let failed = |e| StoreError::at("list", folder, e);
    let read = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(failed)?,
    };
    let mut paths = Vec::new();
    for entry in read {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Size of a file whose blocks are not counted, in bytes.
const SMALL: u64 = 1 << 20;

/// Size in bytes that a file, or all files in a directory, take at most, and the latest modification time.
pub(super) fn weight(path: &Path) -> (u64, SystemTime) {
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return (0, UNIX_EPOCH);
    };
    let own = metadata.modified().unwrap_or(UNIX_EPOCH);
    if !metadata.is_dir() {
        // A program may leave a file of nothing but holes. Small files may lie in their inode, and take no block.
        let taken = metadata.blocks().saturating_mul(512).max(SMALL);
        // A file with several names counts once.
        return (metadata.len().min(taken) / metadata.nlink().max(1), own);
    }
    let below = entries(path).unwrap_or_default();
    below.iter().fold((0, own), |(size, latest), path| {
        let (more, changed) = weight(path);
        (size + more, latest.max(changed))
    })
}

/// Removes a file. A missing file is not an error.
pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::at("remove", path, e))
        }
        _ => Ok(()),
    }
}

/// Syncs a directory's entries to disk.
pub(super) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| StoreError::at("write", folder, e))
}

/// Writes a file so that a reader sees the old or the new content, never a part.
///
/// # Errors
/// If the directory of `path` cannot be written.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let file = temporary(path, content)?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Like [`write_atomically`], but keeps an existing file.
pub(super) fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    match temporary(path, content)?.persist_noclobber(path) {
        Err(e) if e.error.kind() != io::ErrorKind::AlreadyExists => Err(e.error),
        _ => Ok(()),
    }
}

fn temporary(path: &Path, content: &[u8]) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".tmp-")
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode)?;
    Ok(file)
}
