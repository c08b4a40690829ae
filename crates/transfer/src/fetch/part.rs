//! A partly fetched file: `NAME.part`, and beside it a note on the server that it came from.
//!
//! The process that holds the lock on `NAME.part` fetches the file; the lock ends with the process. All
//! calls block. Never: takes the part of one file for another's, gives a final name before the bytes are on
//! disk.

use super::headers::Validators;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stackforge_types::Digest;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Most bytes of a note; larger than any that is written here.
const LARGEST_NOTE: u64 = 16 << 10;

/// What is known about a part, kept beside it so that another process can resume it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// Digest of the complete file.
    pub sha256: String,
    /// Digest of the address, because the address may contain credentials.
    pub from: String,
    #[serde(flatten)]
    pub validators: Validators,
}

pub(super) struct Part {
    file: File,
    /// The directory of the part file.
    parts: PathBuf,
    /// The directory of the complete file.
    directory: PathBuf,
    path: PathBuf,
    note_path: PathBuf,
    last: PathBuf,
    hash: Sha256,
    have: u64,
    note: Note,
}

pub(super) enum Claim {
    Mine(Box<Part>),
    /// Another process fetches it.
    Busy,
}

impl Part {
    /// Takes the lock if it is free.
    pub(crate) fn claim(parts: &Path, directory: &Path, name: &str) -> io::Result<Claim> {
        let path = parts.join(format!("{name}.part"));
        loop {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
                .open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Claim::Busy),
                Err(TryLockError::Error(e)) => return Err(e),
            }
            // The last owner may have renamed or removed it before releasing the lock.
            let ours = file.metadata()?;
            match std::fs::symlink_metadata(&path) {
                Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {}
                Ok(_) => continue,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            }
            return Ok(Claim::Mine(Box::new(Self {
                file,
                parts: parts.to_owned(),
                directory: directory.to_owned(),
                note_path: parts.join(format!("{name}.part.json")),
                last: directory.join(name),
                path,
                hash: Sha256::new(),
                have: 0,
                note: Note::default(),
            })));
        }
    }

    /// Continues the part of an earlier attempt, if it can be the start of this file.
    pub(crate) fn recover(&mut self, sha256: &Digest, size: Option<u64>) -> io::Result<()> {
        let there = self.file.metadata()?.len();
        let note = read_note(&self.note_path).filter(|n| n.sha256 == sha256.hex());
        let fits = size.is_none_or(|size| there <= size);
        let Some(note) = note.filter(|_| fits && there > 0) else {
            return self.restart();
        };
        self.note = note;
        let (hash, have) = hash(&mut self.file)?;
        (self.hash, self.have) = (hash, have);
        // Complete but wrong, so it cannot be resumed.
        if size == Some(have) && self.digest() != *sha256 {
            self.restart()?;
        }
        Ok(())
    }

    pub(crate) fn have(&self) -> u64 {
        self.have
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn note(&self) -> &Note {
        &self.note
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::from_hash(&self.hash.clone().finalize())
    }

    /// Drops the bytes of the part.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.hash = Sha256::new();
        self.have = 0;
        self.note = Note::default();
        remove(&self.note_path)
    }

    /// Writes the note on the following bytes; called before the first of them, so that no part lacks a
    /// note.
    pub(crate) fn annotate(&mut self, note: Note) -> io::Result<()> {
        if note == self.note {
            return Ok(());
        }
        let text = serde_json::to_vec(&note).map_err(io::Error::other)?;
        let mut file = tempfile::Builder::new()
            .prefix(".part-")
            .tempfile_in(&self.parts)?;
        file.write_all(&text)?;
        file.persist(&self.note_path).map_err(|e| e.error)?;
        self.note = note;
        Ok(())
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.hash.update(&rest[..count]);
                    self.have += count as u64;
                    rest = &rest[count..];
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Gives the file its final name.
    pub(crate) fn finish(self) -> io::Result<PathBuf> {
        self.file.sync_all()?;
        remove(&self.note_path)?;
        std::fs::rename(&self.path, &self.last)?;
        File::open(&self.directory)?.sync_all()?;
        Ok(self.last)
    }

    /// Releases the lock; removes the part if it is empty.
    pub(crate) fn release(self) -> io::Result<()> {
        if self.have == 0 {
            remove(&self.note_path)?;
            remove(&self.path)?;
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// `None` also for an unreadable note; then the part starts again.
fn read_note(path: &Path) -> Option<Note> {
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    file.take(LARGEST_NOTE).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn hash(file: &mut File) -> io::Result<(Sha256, u64)> {
    let (mut hash, mut have) = (Sha256::new(), 0);
    let mut buffer = vec![0; 256 << 10];
    file.seek(SeekFrom::Start(0))?;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((hash, have)),
            Ok(count) => {
                hash.update(&buffer[..count]);
                have += count as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The length of the file at its final name, if it exists with the right content.
pub(super) fn verified(path: &Path, sha256: &Digest, size: Option<u64>) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let there = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    if size.is_some_and(|size| size != there.len()) {
        return None;
    }
    let (hash, have) = hash(&mut file).ok()?;
    (Digest::from_hash(&hash.finalize()) == *sha256).then_some(have)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine(directory: &Path) -> Part {
        match Part::claim(directory, directory, "x").unwrap() {
            Claim::Mine(part) => *part,
            Claim::Busy => panic!("busy"),
        }
    }

    fn note(sha256: &Digest) -> Note {
        Note {
            sha256: sha256.hex().to_owned(),
            from: "f".into(),
            validators: Validators::default(),
        }
    }

    #[test]
    fn a_part_is_taken_up_only_for_its_own_file() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = Digest::of(b"hello");
        let mut part = mine(dir.path());
        assert!(matches!(
            Part::claim(dir.path(), dir.path(), "x").unwrap(),
            Claim::Busy
        ));
        part.recover(&wanted, None).unwrap();
        part.annotate(note(&wanted)).unwrap();
        part.append(b"hel").unwrap();
        part.release().unwrap();

        let mut part = mine(dir.path());
        part.recover(&wanted, Some(5)).unwrap();
        assert_eq!((part.have(), part.note()), (3, &note(&wanted)));
        part.append(b"lo").unwrap();
        assert_eq!(part.digest(), wanted);
        let path = part.finish().unwrap();
        assert_eq!(verified(&path, &wanted, None), Some(5));
        assert_eq!(verified(&path, &wanted, Some(4)), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

        for (other, size, left) in [
            (Digest::of(b"other"), None, &b"hel"[..]),
            (wanted.clone(), Some(2), b"hel"),
            (wanted.clone(), Some(3), b"hel"),
        ] {
            let mut part = mine(dir.path());
            part.annotate(note(&wanted)).unwrap();
            part.append(left).unwrap();
            drop(part);
            let mut part = mine(dir.path());
            part.recover(&other, size).unwrap();
            assert_eq!(part.have(), 0);
            part.release().unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_part_without_a_readable_note_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = Digest::of(b"hello");
        for torn in [&b""[..], b"{\"sha256\":", b"[]"] {
            std::fs::write(dir.path().join("x.part"), b"hel").unwrap();
            std::fs::write(dir.path().join("x.part.json"), torn).unwrap();
            let mut part = mine(dir.path());
            part.recover(&wanted, None).unwrap();
            assert_eq!(part.have(), 0);
            part.release().unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, b"kept").unwrap();
        std::os::unix::fs::symlink(&outside, dir.path().join("x.part")).unwrap();
        assert!(Part::claim(dir.path(), dir.path(), "x").is_err());
        assert_eq!(std::fs::read(outside).unwrap(), b"kept");
    }

    #[test]
    fn a_full_disk_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut part = mine(dir.path());
        part.file = File::options().write(true).open("/dev/full").unwrap();
        let error = part.append(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(part.have(), 0);
    }
}
