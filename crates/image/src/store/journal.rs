//! A journal of lines that a process writes for its successors: what it began elsewhere and has to end
//! there.
//!
//! `begun/` holds a file for each process, locked as long as the process lives. The journal of a killed
//! process is read by the next process that takes the file's lock.

use super::error::StoreError;
use super::files::entries;
use super::handle::Store;
use super::lock::{is_at, try_lock};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

const FOLDER: &str = "begun";
/// Most bytes of a journal; no process writes more.
const MOST: u64 = 1 << 20;

/// A file of lines that this process has locked.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Store {
    /// Creates an empty journal.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn journal(&self) -> Result<Journal, StoreError> {
        let folder = self.dir(FOLDER)?;
        loop {
            let name = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
            let path = folder.join(name);
            let made = File::options().append(true).create_new(true).open(&path);
            let file = made.map_err(|e| StoreError::at("create", &path, e))?;
            // Between creating and locking it, another process may have taken it for an abandoned one.
            if try_lock(&file, &path)? && is_at(&file, &path) {
                return Ok(Journal { path, file });
            }
        }
    }

    /// Returns the journals of processes that are gone.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn left_journals(&self) -> Result<Vec<Journal>, StoreError> {
        let mut left = Vec::new();
        for path in entries(&self.root().join(FOLDER))? {
            let Ok(file) = File::options().read(true).append(true).open(&path) else {
                continue;
            };
            if try_lock(&file, &path)? && is_at(&file, &path) {
                left.push(Journal { path, file });
            }
        }
        Ok(left)
    }
}

impl Journal {
    /// Adds a line, which is synced to disk before this returns.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn add(&mut self, line: &str) -> Result<(), StoreError> {
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        let written = written.and_then(|()| self.file.sync_data());
        written.map_err(|e| StoreError::at("write", &self.path, e))
    }

    /// Whether no line was added.
    pub fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.len() == 0)
    }

    /// The lines of an abandoned journal. An incomplete last line is ignored.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn lines(&mut self) -> Result<Vec<String>, StoreError> {
        let mut bytes = Vec::new();
        let read = (&self.file).take(MOST).read_to_end(&mut bytes);
        read.map_err(|e| StoreError::at("read", &self.path, e))?;
        let text = String::from_utf8_lossy(&bytes);
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(whole.lines().map(str::to_owned).collect())
    }

    /// Removes the journal, once nothing in it is left to do.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn remove(self) -> Result<(), StoreError> {
        std::fs::remove_file(&self.path).map_err(|e| StoreError::at("remove", &self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_wrote_is_read_when_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        assert!(store.left_journals().unwrap().is_empty());
        let mut own = store.journal().unwrap();
        own.add("one").unwrap();
        own.add("two").unwrap();
        own.file.write_all(b"half").unwrap();
        assert!(store.left_journals().unwrap().is_empty(), "it lives");
        drop(own);
        let mut left = store.left_journals().unwrap();
        assert_eq!(left.len(), 1);
        assert!(store.left_journals().unwrap().is_empty(), "it is taken");
        let mut left = left.remove(0);
        assert_eq!(left.lines().unwrap(), ["one", "two"]);
        left.remove().unwrap();
        assert!(store.left_journals().unwrap().is_empty());
    }
}
