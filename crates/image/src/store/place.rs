//! Users' directories and files beside the store: they must not be in the store, and a layout has one
//! writer.

use super::error::StoreError;
use super::files::entries;
use super::handle::Store;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

impl Store {
    /// Checks that the path of an output is neither the store nor in it.
    ///
    /// # Errors
    /// [`StoreError::Inside`] if it is, also through symbolic links or mounts.
    pub fn outside(&self, path: &Path) -> Result<(), StoreError> {
        let at = |path: &Path| real(path).map_err(|e| StoreError::at("find", path, e));
        let (place, root) = (at(path)?, at(self.root())?);
        let id = |path: &Path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.dev(), metadata.ino()))
        };
        let own = id(&root);
        let is_root = |path: &Path| path == root || own.is_some() && id(path) == own;
        if place.ancestors().any(is_root) {
            Err(StoreError::Inside {
                path: path.to_owned(),
                store: self.root().to_owned(),
            })
        } else {
            Ok(())
        }
    }
}

/// Resolves symbolic links and `..` in a path. Components that do not exist are not links.
fn real(path: &Path) -> io::Result<PathBuf> {
    let mut real = PathBuf::new();
    for component in std::path::absolute(path)?.components() {
        match component {
            Component::ParentDir => {
                real.pop();
            }
            other => {
                real.push(other);
                // Links are followed one at a time: the parent that `..` means depends on the link's target.
                real = real.canonicalize().unwrap_or(real);
            }
        }
    }
    Ok(real)
}

/// A lock on a layout's directory; while it is held, no other process of this program writes there.
#[derive(Debug)]
pub struct LayoutLock {
    folder: File,
    path: PathBuf,
    locked: bool,
}

impl LayoutLock {
    /// Locks the directory, waiting for other writers. Does not wait on a file system without locks.
    ///
    /// # Errors
    /// If the directory cannot be opened.
    pub fn hold(directory: &Path) -> io::Result<Self> {
        let folder = File::open(directory)?;
        let locked = folder.lock();
        if let Err(e) = &locked {
            tracing::debug!("{} has no locks: {e}", directory.display());
        }
        Ok(Self {
            folder,
            path: directory.to_owned(),
            locked: locked.is_ok(),
        })
    }

    /// Whether the directory is empty, or has only the leftovers of a killed writer.
    pub fn is_new(&self) -> bool {
        let all = entries(&self.path).unwrap_or_default();
        all.iter().all(|path| is_temporary(path))
    }

    /// Removes the leftovers of killed writers. Does nothing if the directory is not a layout.
    pub fn sweep(&self) {
        if !self.locked || !self.path.join("oci-layout").is_file() {
            return;
        }
        let mut all = entries(&self.path.join("blobs/sha256")).unwrap_or_default();
        all.retain(|path| is_temporary(path) || path.extension().is_some_and(|e| e == "part"));
        let own = entries(&self.path).unwrap_or_default().into_iter();
        for path in all.into_iter().chain(own.filter(|path| is_temporary(path))) {
            // The next writer tries again.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Syncs everything in the directory to disk.
    ///
    /// # Errors
    /// If the file system cannot write its cached data.
    pub fn sync(&self) -> io::Result<()> {
        stackforge_types::system::sync(&self.folder)
    }
}

fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b".tmp-")
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
        // Also before the store exists.
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
