//! Directories and files of users beside the store: none lies in it, and a layout has one writer.

use super::layout::entries;
use super::{Store, StoreError};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

impl Store {
    /// Checks that a place for an output is not the store, nor in it.
    ///
    /// # Errors
    /// [`StoreError::Inside`] if it is, whatever links or mounts lead there.
    pub fn outside(&self, path: &Path) -> Result<(), StoreError> {
        let at = |path: &Path| real(path).map_err(|e| StoreError::at("find", path, e));
        let (place, root) = (at(path)?, at(self.root())?);
        let id = |path: &Path| {
            let there = std::fs::metadata(path).ok()?;
            Some((there.dev(), there.ino()))
        };
        let own = id(&root);
        let is_root = |path: &Path| path == root || own.is_some() && id(path) == own;
        match place.ancestors().any(is_root) {
            true => Err(StoreError::Inside {
                path: path.to_owned(),
                store: self.root().to_owned(),
            }),
            false => Ok(()),
        }
    }
}

/// The path without links and `..`. What does not exist has no links.
fn real(path: &Path) -> io::Result<PathBuf> {
    let mut real = PathBuf::new();
    for component in std::path::absolute(path)?.components() {
        match component {
            Component::ParentDir => {
                real.pop();
            }
            other => {
                real.push(other);
                // Links are followed one at a time: what `..` leaves depends on where they lead.
                real = real.canonicalize().unwrap_or(real);
            }
        }
    }
    Ok(real)
}

/// Lets this process alone write a layout, as long as the file is open, and removes the temporary
/// files that killed writers left there. Without locks in the file system nothing is removed.
pub fn hold_layout(directory: &Path) -> io::Result<File> {
    let held = File::open(directory)?;
    if let Err(e) = held.lock() {
        tracing::debug!("{} has no locks: {e}", directory.display());
        return Ok(held);
    }
    if !directory.join("oci-layout").is_file() {
        return Ok(held);
    }
    for folder in [directory.to_owned(), directory.join("blobs/sha256")] {
        for path in entries(&folder).unwrap_or_default() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(".tmp-") || name.ends_with(".part") {
                // The next writer tries again.
                let _ = std::fs::remove_file(&path);
            }
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_way_leads_an_output_into_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let store = Store::open(Some(&at("real/store"))).unwrap();
        let refused = |name: &str| {
            let result = store.outside(&at(name));
            matches!(result, Err(StoreError::Inside { .. }))
        };
        // Also before it is there.
        assert!(refused("real/store") && refused("real/store/x/y"));
        store.dir("tmp").unwrap();
        symlink("real", at("link")).unwrap();
        symlink("real/store/tmp", at("deep")).unwrap();
        for name in [
            "real/store",
            "real/store/tmp/x",
            "link/store/new",
            "deep/new",
            "deep/../new",
            "real/none/../store",
        ] {
            assert!(refused(name), "{name}");
        }
        for name in ["real", "real/store-2", "link/other", "deep/../../x"] {
            assert!(!refused(name), "{name}");
        }
    }
}
