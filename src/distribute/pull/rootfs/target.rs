//! The directory for an image's files, and the names beside it.

use super::marker::Marker;
use crate::pull::PullError;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use stackforge_sandbox::mountinfo;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Longest file name, in bytes.
const LONGEST_NAME: usize = 256;
/// Hexadecimal digits in the name of a hidden directory.
const DIGITS: usize = 16;
/// Most symbolic links in a row; Linux follows as many.
const MOST_LINKS: usize = 40;

/// A directory, without symbolic links in its path, and the lock on it.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    lock: Option<File>,
}

/// What is at the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing, or an empty directory.
    Empty,
    Image(Marker),
    /// Something that stackforge did not write.
    Foreign,
}

impl Target {
    /// Resolves the path of a directory. A symbolic link is followed even if its target does not exist yet: the
    /// link itself is never replaced.
    pub fn find(directory: &Path) -> Result<Self, PullError> {
        let failed = |e| PullError::io("find the directory", directory, e);
        let mut path = std::path::absolute(directory).map_err(failed)?;
        for _ in 0..MOST_LINKS {
            let Some(name) = path.file_name().map(OsStr::to_owned) else {
                // The path ends with `..`, or is `/`.
                path = fs::canonicalize(&path).map_err(failed)?;
                match path.file_name() {
                    Some(_) => continue,
                    None => return Err(PullError::InTheWay(path)),
                }
            };
            let above = path.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(above).map_err(|e| PullError::io("make", above, e))?;
            path = fs::canonicalize(above).map_err(failed)?.join(name);
            match fs::read_link(&path) {
                Ok(to) => path = path.with_file_name("").join(to),
                Err(_) => return Ok(Self { path, lock: None }),
            }
        }
        Err(failed(Errno::LOOP.into()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the target's parent directory.
    pub fn above(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Returns `.NAMEsuffix` in the parent directory.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(suffix);
        self.path.with_file_name(name)
    }

    /// Returns the path of the hidden directory with this number: `.NAME.new-HEX` in the parent directory.
    pub fn hidden(&self, number: u64) -> PathBuf {
        self.beside(&format!(".new-{number:0DIGITS$x}"))
    }

    /// Whether a name is exactly that of a hidden directory.
    pub fn is_hidden(&self, name: &OsStr) -> bool {
        let start = self.beside(".new-");
        let start = start.file_name().unwrap_or_default().as_bytes();
        let number = name.as_bytes().strip_prefix(start);
        number.is_some_and(|n| {
            n.len() == DIGITS && n.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        })
    }

    /// Returns the path of the `n`th previous image: `NAME~n`.
    pub fn slot(&self, n: u32) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!("~{n}"));
        self.path.with_file_name(name)
    }

    /// Returns the names in the parent directory, which need not be UTF-8.
    pub fn names(&self) -> Result<Vec<OsString>, PullError> {
        let failed = |e| PullError::io("list", self.above(), e);
        let entries = fs::read_dir(self.above()).map_err(failed)?;
        let names: io::Result<Vec<OsString>> = entries.map(|e| Ok(e?.file_name())).collect();
        names.map_err(failed)
    }

    /// Parses the number of a slot. `None` if the name is not one.
    pub fn slot_of(&self, name: &OsStr) -> Option<u32> {
        let own = self.path.file_name()?.as_bytes();
        let number = name.as_bytes().strip_prefix(own)?.strip_prefix(b"~")?;
        let number: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
        (self.slot(number).file_name() == Some(name) && number > 0).then_some(number)
    }

    /// Tries to take the lock on the target: only one process at a time reads and changes it. The empty lock
    /// file stays, since two processes can hold a lock on a name that is removed.
    pub fn try_lock(&mut self) -> Result<bool, PullError> {
        if self.lock.is_some() {
            return Ok(true);
        }
        let path = self.beside(".lock");
        let failed = |e| PullError::io("lock", &path, e);
        let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits();
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags as i32)
            .open(&path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => self.lock = Some(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(e) => return Err(failed(e.into())),
        }
        Ok(self.lock.is_some())
    }

    /// Writes the name of a directory that is about to be made into the lock file. If the file of that name has
    /// other content, it belongs to another program and is not changed.
    pub fn announce(&self, path: &Path) -> Result<(), PullError> {
        let (Some(file), Some(name)) = (&self.lock, path.file_name()) else {
            return Ok(());
        };
        if self.announced().is_none() && file.metadata().is_ok_and(|found| found.len() > 0) {
            return Ok(());
        }
        file.set_len(0)
            .and_then(|()| file.write_all_at(name.as_bytes(), 0))
            .and_then(|()| file.sync_data())
            .map_err(|e| PullError::io("write", &self.beside(".lock"), e))
    }

    /// Returns the name that was announced last.
    pub fn announced(&self) -> Option<OsString> {
        let mut name = [0; LONGEST_NAME];
        let read = self.lock.as_ref()?.read_at(&mut name, 0).ok()?;
        let name = OsStr::from_bytes(&name[..read]);
        self.is_hidden(name).then(|| name.to_owned())
    }

    /// Returns what is there now.
    pub fn state(&self) -> Result<State, PullError> {
        let mut entries = match fs::read_dir(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(State::Empty),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Ok(State::Foreign),
            entries => entries.map_err(|e| PullError::io("list", &self.path, e))?,
        };
        if entries.next().is_none() {
            return Ok(State::Empty);
        }
        Ok(Marker::read(&self.path).map_or(State::Foreign, State::Image))
    }

    /// Fails if there is a mount at the target, below it or in a previous image: it would move away with the
    /// old files and later be removed with them.
    pub fn unmounted(&self) -> Result<(), PullError> {
        let own = self.path.file_name();
        let ours = |at: &Path| {
            let below = at.strip_prefix(self.above()).ok();
            let first = below.and_then(|below| below.iter().next());
            first.is_some_and(|name| Some(name) == own || self.slot_of(name).is_some())
        };
        let mounts = mountinfo::here();
        match mounts.into_iter().find(|mount| ours(&mount.at)) {
            Some(mount) => Err(PullError::Mounted(mount.at)),
            None => Ok(()),
        }
    }

    /// Syncs the parent directory, so that renames in it survive a power loss.
    pub fn sync(&self) -> Result<(), PullError> {
        File::open(self.above())
            .and_then(|above| above.sync_all())
            .map_err(|e| PullError::io("write", self.above(), e))
    }
}
