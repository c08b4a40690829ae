//! Tells which blobs have the bytes of their digest, without reading them each time.
//!
//! A hashed blob has a note, `verified/HEX`, with the inode, size and times of its file at that moment.
//! While the file still has them, its bytes count as unchanged. A write to the file changes its ctime, which
//! only the kernel sets; so the note trusts the kernel and its clock, and everyone who may write notes,
//! which is the store's owner. It detects what disks, crashes and other programs do to a blob, but not what
//! its owner forges: a page that the owner has mapped and written before the hashing takes further bytes
//! without a new ctime. `cache verify` reads all bytes.

use super::error::StoreError;
use super::handle::Store;
use super::layout::VERIFIED;
use stackforge_types::Digest;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The file attributes by which an unchanged file is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    inode: u64,
    size: u64,
    /// Modification time in nanoseconds since 1970.
    mtime: i128,
    ctime: i128,
}

impl Note {
    /// The note of a file. `None` if it is not a regular file.
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        metadata.is_file().then(|| Self::of_metadata(&metadata))
    }

    fn of_metadata(metadata: &Metadata) -> Self {
        let nanos =
            |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            inode: metadata.ino(),
            size: metadata.size(),
            mtime: nanos(metadata.mtime(), metadata.mtime_nsec()),
            ctime: nanos(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let note = Self {
            inode: words.next()?.parse().ok()?,
            size: words.next()?.parse().ok()?,
            mtime: words.next()?.parse().ok()?,
            ctime: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(note)
    }

    fn text(&self) -> String {
        let Self {
            inode,
            size,
            mtime,
            ctime,
        } = self;
        format!("{inode} {size} {mtime} {ctime}\n")
    }
}

impl Store {
    fn note_path(&self, digest: &Digest) -> PathBuf {
        self.root().join(VERIFIED).join(digest.hex())
    }

    /// The blob's note, if it still matches the file.
    fn note(&self, digest: &Digest) -> Option<Note> {
        let note = Note::parse(&std::fs::read_to_string(self.note_path(digest)).ok()?)?;
        (Note::of(&self.blob_path(digest))? == note).then_some(note)
    }

    /// Writes a note for a blob whose bytes the caller hashed while writing or reading them.
    pub fn verified(&self, digest: &Digest) {
        if self.note(digest).is_some() {
            return;
        }
        if let Some(note) = Note::of(&self.blob_path(digest)) {
            self.write_note(digest, note);
        }
    }

    /// Errors are ignored: without a note the blob is read again at its next use.
    fn write_note(&self, digest: &Digest, note: Note) {
        let written = self
            .dir(VERIFIED)
            .and_then(|_| self.write_small(&self.note_path(digest), note.text().as_bytes()));
        if let Err(e) = written {
            tracing::debug!("{e}");
        }
    }

    /// Writes without syncing, because a note need not survive a power failure.
    fn write_small(&self, path: &Path, content: &[u8]) -> Result<(), StoreError> {
        let failed = |e| StoreError::at("write", path, e);
        let mut temp = tempfile::Builder::new()
            .prefix(".tmp-")
            .tempfile_in(self.root().join("tmp"))
            .map_err(failed)?;
        io::Write::write_all(&mut temp, content).map_err(failed)?;
        temp.persist(path).map_err(|e| failed(e.error))?;
        Ok(())
    }

    /// Runs `change`, which creates or removes hard links to blobs and so changes only their ctime. Valid
    /// notes are renewed, unless something else changed a file meanwhile.
    pub fn keeping_notes<'d, T>(
        &self,
        digests: impl IntoIterator<Item = &'d Digest>,
        change: impl FnOnce() -> T,
    ) -> T {
        let note = |digest: &'d Digest| Some((digest, self.note(digest)?));
        let before: Vec<(&Digest, Note)> = digests.into_iter().filter_map(note).collect();
        let done = change();
        for (digest, before) in before {
            let Some(now) = Note::of(&self.blob_path(digest)) else {
                continue;
            };
            let linked = Note {
                ctime: now.ctime,
                ..before
            };
            if now == linked && now != before {
                self.write_note(digest, now);
            }
        }
        done
    }

    /// Whether a blob's bytes have its digest. They are hashed unless the blob has a valid note.
    pub fn is_sound(&self, digest: &Digest) -> bool {
        if self.note(digest).is_some() {
            return true;
        }
        let path = self.blob_path(digest);
        let Some(before) = Note::of(&path) else {
            return false;
        };
        match File::open(&path).and_then(Digest::of_reader) {
            Ok(found) if found == *digest => {
                // A file that changed while it was read gets no note.
                if Note::of(&path) == Some(before) {
                    self.write_note(digest, before);
                }
                true
            }
            Ok(_) => false,
            Err(e) => {
                tracing::warn!("{} cannot be read: {e}", path.display());
                false
            }
        }
    }

    /// Removes notes of blobs that no longer exist.
    pub(super) fn sweep_notes(&self) -> Result<(), StoreError> {
        for note in super::files::entries(&self.root().join(VERIFIED))? {
            let blob = note
                .file_name()
                .map(|hex| self.root().join("blobs/sha256").join(hex));
            if !blob.is_some_and(|blob| blob.exists()) {
                super::files::remove(&note)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        (dir, store)
    }

    /// Flips a byte in place and restores the modification time, as `touch -r` does.
    fn damage(path: &Path) {
        let metadata = std::fs::metadata(path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let mut bytes = std::fs::read(path).unwrap();
        bytes[0] ^= 1;
        std::fs::write(path, bytes).unwrap();
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(metadata.modified().unwrap())
            .unwrap();
    }

    #[test]
    fn damage_of_the_same_size_and_time_is_found_and_healed() {
        let (_dir, store) = store();
        let blob = store.put(&b"hello"[..], None).unwrap();
        assert!(store.note(&blob.digest).is_some());
        damage(&blob.path);
        assert!(store.note(&blob.digest).is_none());
        assert!(!store.is_sound(&blob.digest));
        assert_eq!(store.blob(&blob.digest), None);
        store.put(&b"hello"[..], None).unwrap();
        assert_eq!(store.blob(&blob.digest), Some(blob.path.clone()));
        assert_eq!(std::fs::read(&blob.path).unwrap(), b"hello");
    }

    #[test]
    fn links_and_stamps_keep_the_note() {
        let (_dir, store) = store();
        let blob = store.put(&b"hello"[..], None).unwrap();
        store.named(&blob.digest, "a.whl").unwrap();
        assert!(store.note(&blob.digest).is_some());
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
        store.keeping_notes([&blob.digest], || {
            File::open(&blob.path).unwrap().set_modified(then).unwrap();
        });
        assert!(store.note(&blob.digest).is_none(), "its time was changed");
        assert!(store.is_sound(&blob.digest));
        store.blob(&blob.digest).unwrap();
        assert!(store.note(&blob.digest).is_some(), "stamped by the store");
    }

    #[test]
    fn a_blob_without_a_note_is_read_and_foreign_notes_are_none() {
        let (_dir, store) = store();
        let blob = store.put(&b"hello"[..], None).unwrap();
        for text in ["", "1 2 3", "1 2 3 4 5", "x"] {
            std::fs::write(store.note_path(&blob.digest), text).unwrap();
            assert!(store.note(&blob.digest).is_none(), "{text:?}");
        }
        assert!(store.is_sound(&blob.digest));
        assert!(store.note(&blob.digest).is_some());
        std::fs::remove_file(&blob.path).unwrap();
        assert!(!store.is_sound(&blob.digest));
        store.sweep_notes().unwrap();
        assert!(!store.note_path(&blob.digest).exists());
    }
}
