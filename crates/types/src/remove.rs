//! Removes a directory and everything in it, however deep it is.
//!
//! At most five descriptors are open, and no path is longer than one name: a nested directory is moved up
//! before its own content is removed, so that the tree gets flatter instead of being walked. The standard
//! library's `remove_dir_all` holds a descriptor for each level and fails with EMFILE on trees that a layer
//! of a few kilobytes can create. A symbolic link is never followed and a mount is never entered.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, fchmod, openat, renameat, unlinkat,
};
use rustix::io::Errno;

use super::beneath::{Within, open_beneath};
use super::system::PLACE;

/// How often a directory is read again while other processes write into it.
const MOST_TRIES: usize = 16;

/// Removes the directory at `path`.
///
/// # Errors
/// `EXDEV` if something is mounted in it, `ENOTDIR` or `ELOOP` if it is not a directory.
pub fn remove(path: &Path) -> io::Result<()> {
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let name = CString::new(name.as_encoded_bytes())?;
    let flags = PLACE | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = openat(CWD, above, flags, Mode::empty())?;
    Ok(remove_at(&above, &name)?)
}

/// Removes the directory `name` in `above`.
///
/// # Errors
/// `EXDEV` if something is mounted in it, `ENOTDIR` or `ELOOP` if it is not a directory, and
/// `ENOTEMPTY` if others keep writing into it.
pub fn remove_at(above: impl AsFd, name: &CString) -> rustix::io::Result<()> {
    let root = open(&above, name)?;
    let mut moved = 0;
    for _ in 0..MOST_TRIES {
        flatten(&root, &mut moved)?;
        match unlinkat(&above, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            done => return done,
        }
    }
    Err(Errno::NOTEMPTY)
}

/// Removes what is in `root`. `moved` is the number of directories that were moved up.
fn flatten(root: &OwnedFd, moved: &mut u64) -> rustix::io::Result<()> {
    let mut folders = clear(root)?;
    while let Some(name) = folders.pop() {
        let inner = match open(root, &name) {
            // The directory was empty, and another one was moved over it.
            Err(Errno::NOENT) => continue,
            opened => opened?,
        };
        for below in clear(&inner)? {
            folders.push(up(&inner, &below, root, moved)?);
        }
        match unlinkat(root, &name, AtFlags::REMOVEDIR) {
            // What other processes write meanwhile is removed in the next round.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn open(above: impl AsFd, name: &CString) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = || open_beneath(&above, name, flags, Mode::empty(), Within::OneMount);
    let folder = match opened() {
        // Its mode may deny access to its owner.
        Err(Errno::ACCESS) => {
            chmodat(&above, name, Mode::RWXU, AtFlags::empty())?;
            opened()?
        }
        folder => folder?,
    };
    if !rustix::process::geteuid().is_root() {
        // If this fails, the next operation fails too and reports why.
        let _ = fchmod(&folder, Mode::RWXU);
    }
    Ok(folder)
}

/// Removes the content of a directory except non-empty directories, whose names it returns.
fn clear(folder: &OwnedFd) -> rustix::io::Result<Vec<CString>> {
    let mut folders = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let gone = match entry.file_type() {
            FileType::Directory => Err(Errno::ISDIR),
            _ => unlinkat(folder, name, AtFlags::empty()),
        };
        let gone = match gone {
            Err(Errno::ISDIR) => unlinkat(folder, name, AtFlags::REMOVEDIR),
            gone => gone,
        };
        match gone {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => folders.push(name.to_owned()),
            Err(e) => return Err(e),
        }
    }
    Ok(folders)
}

/// Moves a directory into `root` under a new name, which it returns.
fn up(
    from: &OwnedFd,
    name: &CString,
    root: &OwnedFd,
    moved: &mut u64,
) -> rustix::io::Result<CString> {
    let mut locked = true;
    loop {
        let new = CString::new(format!(".{moved:x}")).map_err(|_| Errno::INVAL)?;
        match renameat(from, name, root, &new) {
            Ok(()) => {
                *moved += 1;
                return Ok(new);
            }
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => *moved += 1,
            // Moving a directory writes its `..`, so it must be writable.
            Err(Errno::ACCESS) if std::mem::take(&mut locked) => {
                chmodat(from, name, Mode::RWXU, AtFlags::empty())?;
            }
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkdirat;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    /// Makes nested directories, with a file in each.
    fn deep(at: &Path, depth: usize) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = openat(CWD, at, flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = openat(&folder, "d", flags, Mode::empty()).unwrap();
            let file = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(&folder, "f", file, Mode::RUSR).unwrap();
        }
    }

    #[test]
    fn a_tree_deeper_than_paths_reach() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        for name in [".0", "a/b/.1", "a/c"] {
            fs::create_dir_all(tree.join(name)).unwrap();
            fs::write(tree.join(name).join(".2"), "x").unwrap();
            deep(&tree.join(name), 2500);
        }
        std::os::unix::fs::symlink("/etc", tree.join("a/link")).unwrap();
        remove(&tree).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Path::new("/etc/passwd").exists());
    }

    #[test]
    fn what_its_owner_locked_goes_and_a_link_stays() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("locked/below/it")).unwrap();
        for name in ["locked/below/it", "locked/below", "locked"] {
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o000)).unwrap();
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&tree, &link).unwrap();
        assert!(remove(&link).is_err() && tree.exists());
        remove(&tree).unwrap();
        assert!(!tree.exists());
        let missing = remove(&tree).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
