//! Resolves the targets of mounts below the sandbox's root, whatever links the root has.
//!
//! A link in the root, absolute or with `..`, leads where it would lead the program, never out of the
//! root: the kernel resolves every path with `RESOLVE_IN_ROOT`.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, openat, readlink, symlinkat};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};

use super::fault::Fault;
use super::stubs::Stubs;
use stackforge_types::beneath::{Within, open_beneath};

pub(crate) struct Place {
    root: OwnedFd,
    /// Device number of the root. A path created on another device is in memory and needs no removal.
    device: u64,
    /// The root's path, as `/proc/self/fd` gives it.
    name: PathBuf,
    /// The upper directory, which receives the writes.
    upper: Option<OwnedFd>,
    pub stubs: Stubs,
}

/// The kind of file that a target is or is created as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Directory,
    File,
}

impl Place {
    pub(crate) fn new(root: OwnedFd, upper: Option<OwnedFd>) -> io::Result<Self> {
        Ok(Place {
            device: fstat(&root)?.st_dev,
            name: name_of(root.as_fd())?,
            root,
            upper,
            stubs: Stubs::default(),
        })
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Attaches a mount at `target`, which is created if it is missing.
    pub(crate) fn attach(&mut self, mount: BorrowedFd<'_>, target: &Path) -> Result<(), Fault> {
        let spot = kind_of(mount).map_err(Fault::setup("look at a mount"))?;
        let at = self.find(target, spot)?;
        attach(mount, at.as_fd()).map_err(Fault::setup(format!(
            "mount something at {}",
            target.display()
        )))
    }

    /// Opens `target`, after creating it if it is missing.
    fn find(&mut self, target: &Path, wanted: FileKind) -> Result<OwnedFd, Fault> {
        let fault = || Fault::setup::<Errno>(format!("make {} in the root", target.display()));
        let found = match self.open(target) {
            Ok(found) => found,
            Err(Errno::NOENT) => self.make(target, wanted).map_err(fault())?,
            Err(e) => return Err(fault()(e)),
        };
        let kind = kind_of(found.as_fd()).map_err(fault())?;
        match (kind, wanted) {
            (FileKind::Directory, FileKind::File) => Err(fault()(Errno::ISDIR)),
            (FileKind::File, FileKind::Directory) => Err(fault()(Errno::NOTDIR)),
            _ => Ok(found),
        }
    }

    fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        open_beneath(&self.root, path, flags, Mode::empty(), Within::Root)
    }

    fn make(&mut self, target: &Path, wanted: FileKind) -> Result<OwnedFd, Errno> {
        let parts: Vec<&Path> = target.ancestors().collect();
        // From the root down; `/` itself is skipped because it exists.
        for path in parts.iter().rev().skip(1) {
            if !matches!(self.open(path), Err(Errno::NOENT)) {
                continue;
            }
            let (parent, name) = (path.parent(), path.file_name());
            let (Some(parent), Some(name)) = (parent, name) else {
                return Err(Errno::INVAL);
            };
            let parent = self.open(parent)?;
            let path_in_root = self.before(parent.as_fd(), Path::new(name));
            if *path == target && wanted == FileKind::File {
                // Fails if a dangling link is in the way; it must not be followed.
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                openat(&parent, name, flags, Mode::from_raw_mode(0o644)).map(drop)?;
            } else {
                mkdirat(&parent, name, Mode::from_raw_mode(0o755))?
            }
            self.after(path_in_root);
        }
        self.open(target)
    }

    /// Creates a symbolic link, unless the target exists.
    pub(crate) fn link(&mut self, target: &Path, to: &Path) -> Result<(), Fault> {
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Ok(());
        };
        let parent = self.find(parent, FileKind::Directory)?;
        let path = self.before(parent.as_fd(), Path::new(name));
        match symlinkat(to, &parent, name) {
            Ok(()) => self.after(path),
            Err(Errno::EXIST) => {}
            Err(e) => {
                return Err(Fault::setup(format!("link {}", target.display()))(e));
            }
        }
        Ok(())
    }

    /// Returns the path in the root of what is about to be created, if it will be on the root's own
    /// device.
    fn before(&mut self, parent: BorrowedFd<'_>, name: &Path) -> Option<PathBuf> {
        let upper = self.upper.as_ref()?;
        if fstat(parent).ok()?.st_dev != self.device {
            return None;
        }
        let parent = name_of(parent).ok()?;
        let path = parent.strip_prefix(&self.name).ok()?.join(name);
        self.stubs.above(upper.as_fd(), self.root.as_fd(), &path);
        Some(path)
    }

    fn after(&mut self, made: Option<PathBuf>) {
        if let (Some(upper), Some(path)) = (&self.upper, made) {
            self.stubs.record(upper.as_fd(), &path);
        }
    }
}

pub(crate) fn attach(mount: BorrowedFd<'_>, at: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", at, "", flags)
}

fn kind_of(fd: impl AsFd) -> Result<FileKind, Errno> {
    let mode = rustix::fs::statat(fd, "", AtFlags::EMPTY_PATH)?.st_mode;
    Ok(match FileType::from_raw_mode(mode) {
        FileType::Directory => FileKind::Directory,
        _ => FileKind::File,
    })
}

fn name_of(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    let link = readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
    Ok(std::ffi::OsString::from_vec(link.into_bytes()).into())
}
