//! Blobs under their file names: `names/HEX/FILE`, links to the blob.
//!
//! A wheel's name says what it is for, and pip, uv and the audit read it. A blob with several names has
//! several links.

use super::error::StoreError;
use super::files::entries;
use super::handle::Store;
use super::lock::is_at;
use stackforge_types::Digest;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// How often a link is tried while other processes replace the blob.
const TRIES: usize = 8;

impl Store {
    /// Returns a path to the blob that ends in `file`.
    ///
    /// # Errors
    /// [`StoreError::Name`] if `file` is not a plain file name, [`StoreError::Missing`] if the blob is
    /// missing, or if the store cannot be written.
    pub fn named(&self, digest: &Digest, file: &str) -> Result<PathBuf, StoreError> {
        plain(file)?;
        let blob = self.blob(digest);
        let blob = blob.ok_or_else(|| StoreError::Missing(digest.clone()))?;
        let folder = self.dir("names")?.join(digest.hex());
        let path = folder.join(file);
        let failed = |e| StoreError::at("name", &path, e);
        let is_named = || File::open(&path).is_ok_and(|file| is_at(&file, &blob));
        // Another process may replace the blob, which removes its names.
        for _ in 0..TRIES {
            if is_named() {
                return Ok(path);
            }
            std::fs::create_dir_all(&folder).map_err(failed)?;
            match self.keeping_notes([digest], || link(digest, &blob, &folder, file)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
                _ => {}
            }
        }
        if is_named() {
            Ok(path)
        } else {
            Err(failed(io::ErrorKind::NotFound.into()))
        }
    }

    /// The file names of a blob.
    pub fn names_of(&self, digest: &Digest) -> Vec<String> {
        let folder = self.root().join("names").join(digest.hex());
        let names = entries(&folder).unwrap_or_default().into_iter();
        names
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .filter(|name| !name.starts_with('.'))
            .collect()
    }

    pub(super) fn forget_names(&self, digest: &Digest) {
        let _ = std::fs::remove_dir_all(self.root().join("names").join(digest.hex()));
    }
}

/// Atomically makes `folder/file` a link to the blob, replacing what exists: other processes may create the
/// same name at the same time.
fn link(digest: &Digest, blob: &Path, folder: &Path, file: &str) -> io::Result<()> {
    let temporary = folder.join(format!(".tmp-{:016x}", fastrand::u64(..)));
    std::fs::hard_link(blob, &temporary).or_else(|e| match e.kind() {
        io::ErrorKind::NotFound => Err(e),
        // Not every file system has hard links.
        _ => {
            let to = PathBuf::from("../../blobs/sha256").join(digest.hex());
            std::os::unix::fs::symlink(to, &temporary)
        }
    })?;
    let renamed = std::fs::rename(&temporary, folder.join(file));
    // A rename between two hard links of one file does nothing, so the temporary one stays.
    let _ = std::fs::remove_file(&temporary);
    renamed
}

/// Checks that a name has no directory, no control character and no leading dot.
pub(super) fn plain(name: &str) -> Result<&str, StoreError> {
    let strange = name.contains(['/', '\\']) || name.chars().any(char::is_control);
    if name.is_empty() || strange || name.starts_with('.') || name.len() > 255 {
        let shown = name.escape_debug().take(120).collect();
        return Err(StoreError::Name(shown));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_may_want_one_name_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let blob = store.put(&b"wheel"[..], None).unwrap();
        for round in 0..40 {
            let name = format!("a-{round}-py3-none-any.whl");
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| store.named(&blob.digest, &name).unwrap());
                }
            });
        }
        assert_eq!(store.names_of(&blob.digest).len(), 40);
        let folder = dir.path().join("names").join(blob.digest.hex());
        assert_eq!(entries(&folder).unwrap().len(), 40);
    }

    #[test]
    fn a_name_is_a_link_to_the_blob() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let blob = store.put(&b"wheel"[..], None).unwrap();
        for name in ["a-1-py3-none-any.whl", "b.whl", "b.whl"] {
            let path = store.named(&blob.digest, name).unwrap();
            assert!(path.ends_with(name));
            assert!(is_at(&File::open(&path).unwrap(), &blob.path));
        }
        assert_eq!(
            store.names_of(&blob.digest),
            ["a-1-py3-none-any.whl", "b.whl"]
        );
        for bad in ["", "..", "../x", "a/b", ".x", "a\nb", "a\\b"] {
            assert!(store.named(&blob.digest, bad).is_err(), "{bad:?}");
        }
        let other = Digest::of(b"other");
        let error = store.named(&other, "x").unwrap_err();
        assert!(matches!(error, StoreError::Missing(d) if d == other));
    }
}
