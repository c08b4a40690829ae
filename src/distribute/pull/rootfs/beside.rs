//! The hidden directory beside the target, `.NAME.new-HEX`, in which new files are written and old ones
//! are removed.
//!
//! Its mode is 0700, so no other user can run a program of the image before the image is in its place. A
//! marker in it names the image. It can contain:
//!
//! - `growing`: the new files, while they are incomplete;
//! - `root`: the new files, complete and with a marker of their own; after the exchange, the previous
//!   files. The marker in `root` tells which, as the hidden directory's own marker names the new image;
//! - `staged`: files of layers that were read, until they get their names in `growing`;
//! - `gone`: files that are being removed, or moved to `growing`.

use super::marker::Marker;
use super::target::Target;
use super::{marker, rename};
use crate::pull::PullError;
use stackforge_types::Digest;
use std::ffi::OsString;
use std::fs;
use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const GROWING: &str = "growing";
const ROOT: &str = "root";
const GONE: &str = "gone";
const STAGED: &str = "staged";
const INSIDE: [&str; 5] = [marker::NAME, GROWING, ROOT, GONE, STAGED];

#[derive(Debug)]
pub(super) struct Beside {
    path: PathBuf,
    /// Digest of the new image. `None` if a process was killed before it wrote the marker.
    digest: Option<Digest>,
}

impl Beside {
    /// Makes the hidden directory for an image.
    pub fn make(target: &Target, digest: &Digest) -> Result<Self, PullError> {
        let path = target.hidden(fastrand::u64(..));
        // Until the directory has a marker, its name in the lock file shows that it is ours.
        target.announce(&path)?;
        let failed = |e| PullError::io("make", &path, e);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(failed)?;
        let beside = Self {
            path: path.clone(),
            digest: Some(digest.clone()),
        };
        let marked = Marker::of(Some(digest)).write(&path);
        marked
            .and_then(|()| File::open(&path)?.sync_all())
            .map_err(failed)?;
        Ok(beside)
    }

    /// Makes `growing`.
    pub fn grow(&self) -> Result<PathBuf, PullError> {
        let growing = self.path.join(GROWING);
        fs::create_dir(&growing)
            // Set the mode explicitly: the umask may have reduced it.
            .and_then(|()| fs::set_permissions(&growing, Permissions::from_mode(0o755)))
            .map_err(|e| PullError::io("make", &growing, e))?;
        Ok(growing)
    }

    /// The path of `staged`, which the unpacker makes and removes.
    pub fn staged(&self) -> PathBuf {
        self.path.join(STAGED)
    }

    /// The path of `gone`, which the unpacker fills and removes.
    pub fn gone(&self) -> PathBuf {
        self.path.join(GONE)
    }

    /// Syncs and marks the new files as complete. Returns their new path.
    pub fn ripen(&self) -> Result<PathBuf, PullError> {
        let growing = self.path.join(GROWING);
        let failed = |e| PullError::io("write", &growing, e);
        let folder = File::open(&growing).map_err(failed)?;
        let found = folder.metadata().map_err(failed)?;
        let at = growing.join(marker::NAME);
        // An image that was made from such a directory contains a marker.
        if Marker::read(&growing).is_some() {
            fs::remove_file(&at).map_err(failed)?;
        }
        match Marker::of(self.digest.as_ref()).write(&growing) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(PullError::Reserved(marker::NAME));
            }
            written => written.map_err(failed)?,
        }
        let readable = fs::set_permissions(&at, Permissions::from_mode(0o644));
        readable.map_err(failed)?;
        // Writing the marker changed the directory's times: restore those of the image.
        if let (Ok(accessed), Ok(modified)) = (found.accessed(), found.modified()) {
            let times = fs::FileTimes::new();
            let times = times.set_accessed(accessed).set_modified(modified);
            folder.set_times(times).map_err(failed)?;
        }
        stackforge_types::system::sync(&folder).map_err(failed)?;
        let root = self.path.join(ROOT);
        rename(&growing, &root)?;
        Ok(root)
    }

    /// Returns the hidden directories beside a target that stackforge made: they contain a marker and only the
    /// names above. Others are not touched.
    pub fn leftovers(target: &Target) -> Result<Vec<Self>, PullError> {
        let names = target.names()?;
        let own = names.iter().filter(|name| target.is_hidden(name));
        let announced = target.announced();
        let of = |name: &OsString| {
            let is_announced = announced.as_ref() == Some(name);
            Self::of(target.above().join(name), is_announced)
        };
        Ok(own.filter_map(of).collect())
    }

    fn of(path: PathBuf, is_announced: bool) -> Option<Self> {
        if !path.symlink_metadata().ok()?.is_dir() {
            return None;
        }
        let entries: Option<Vec<_>> = fs::read_dir(&path)
            .ok()?
            .map(|e| Some(e.ok()?.file_name()))
            .collect();
        let entries = entries?;
        if !entries
            .iter()
            .all(|name| INSIDE.iter().any(|own| name == own))
        {
            return None;
        }
        let marker = Marker::read(&path);
        // A process was killed before it wrote the marker: the directory is empty or has an empty file.
        let begun = || {
            let at = path.join(marker::NAME);
            let empty = |at: &Path| {
                at.symlink_metadata()
                    .is_ok_and(|m| m.is_file() && m.len() == 0)
            };
            is_announced && (entries.is_empty() || entries.len() == 1 && empty(&at))
        };
        (marker.is_some() || begun()).then_some(Self {
            path,
            digest: marker.and_then(|marker| marker.digest),
        })
    }

    /// Removes what a killed process left in the directory. Returns the previous image's files if the process
    /// was killed before it gave them a name of their own.
    pub fn recover(&self) -> Result<Option<PathBuf>, PullError> {
        for name in [GONE, STAGED, GROWING] {
            let path = self.path.join(name);
            if path.symlink_metadata().is_ok() {
                self.discard(&path)?;
            }
        }
        let root = self.path.join(ROOT);
        match Marker::read(&root) {
            Some(marker) if marker.digest == self.digest => self.discard(&root).map(|()| None),
            Some(_) => Ok(Some(root)),
            None => Ok(None),
        }
    }

    /// Removes a directory that is here or beside. It is renamed first, so that its name never stands for
    /// incomplete files.
    pub fn discard(&self, tree: &Path) -> Result<(), PullError> {
        let gone = self.path.join(GONE);
        if tree != gone {
            rename(tree, &gone)?;
        }
        stackforge_types::remove(&gone).map_err(|e| PullError::io("remove", &gone, e))
    }

    /// Removes the hidden directory itself, unless it contains something unknown.
    pub fn close(&self) -> Result<(), PullError> {
        let root = self.path.join(ROOT);
        if root.symlink_metadata().is_ok() {
            tracing::warn!("{} is not known to stackforge and stays", root.display());
            return Ok(());
        }
        match fs::remove_file(self.path.join(marker::NAME)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => fs::remove_dir(&self.path),
        }
        .map_err(|e| PullError::io("remove", &self.path, e))
    }
}
