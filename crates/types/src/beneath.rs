//! Files below a directory, by paths that do not lead out of it.
//!
//! Linux's kernel resolves such a path in one call (`openat2`, Linux 5.6). Where it does not know that call, where a
//! filter of system calls does not, and where something was renamed anywhere while it went up a directory, each name is
//! opened in turn, in the directory that was opened before it: what another process moves meanwhile leads nowhere else.

use crate::system::{PLACE, mount, open_whole};
pub use crate::within::Within;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

/// The kernel's own bound for one path.
const MOST_LINKS: usize = 40;

/// Opens a path below a directory, as `openat2` does.
///
/// # Errors
/// If the path leads through something that `within` does not allow, or cannot be opened.
pub fn open_beneath(
    folder: impl AsFd,
    path: impl Arg,
    flags: OFlags,
    mode: Mode,
    within: Within,
) -> Result<OwnedFd> {
    let folder = folder.as_fd();
    path.into_with_c_str(|path| match open_whole(folder, path, flags, mode, within) {
        // A kernel or filter that does not know the call answers in one of the first two ways; the third says that
        // something was renamed meanwhile.
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {
            walk(folder, path.to_bytes(), flags, mode, within)
        }
        opened => opened,
    })
}

/// The way from a directory to what is opened.
struct Walk<'a> {
    root: BorrowedFd<'a>,
    /// The directories below the root, the deepest last.
    folders: Vec<OwnedFd>,
    /// Names that are left, the next one last.
    names: Vec<Vec<u8>>,
    links: usize,
    within: Within,
    mount: Option<u64>,
}

fn walk(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    within: Within,
) -> Result<OwnedFd> {
    let mount = match within {
        Within::OneMount => Some(mount(root)?),
        Within::Folders | Within::Root => None,
    };
    let mut walk = Walk {
        root,
        folders: Vec::new(),
        names: Vec::new(),
        links: 0,
        within,
        mount,
    };
    if path.starts_with(b"/") && within != Within::Root {
        return Err(Errno::XDEV);
    }
    walk.ahead(path)?;
    while let Some(name) = walk.names.pop() {
        let is_last = walk.names.is_empty();
        match name.as_slice() {
            b".." => walk.up()?,
            b"." if !is_last => {}
            name if is_last => {
                if let Some(opened) = walk.last(name, flags, mode)? {
                    return Ok(opened);
                }
            }
            name => walk.down(name)?,
        }
    }
    Err(Errno::NOENT)
}

impl Walk<'_> {
    fn here(&self) -> BorrowedFd<'_> {
        self.folders.last().map_or(self.root, AsFd::as_fd)
    }

    /// Puts the names of a path before those that are left. What ends in `/` or `..` is a directory.
    fn ahead(&mut self, path: &[u8]) -> Result<()> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.ends_with(b"/") || path == b".." || path.ends_with(b"/..") {
            self.names.push(b".".to_vec());
        }
        let names = path.split(|byte| *byte == b'/').rev();
        self.names
            .extend(names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec));
        Ok(())
    }

    fn up(&mut self) -> Result<()> {
        match (self.folders.pop(), self.within) {
            (None, Within::Folders | Within::OneMount) => Err(Errno::XDEV),
            (Some(_), _) | (None, Within::Root) => Ok(()),
        }
    }

    fn down(&mut self, name: &[u8]) -> Result<()> {
        let flags = PLACE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(self.here(), name, flags, Mode::empty()) {
            Ok(folder) => {
                self.same_mount(&folder)?;
                self.folders.push(folder);
                Ok(())
            }
            Err(e @ (Errno::NOTDIR | Errno::LOOP)) => self.follow(name, e),
            Err(e) => Err(e),
        }
    }

    /// Opens the last name. Where it is a link, its target is ahead now.
    fn last(&mut self, name: &[u8], flags: OFlags, mode: Mode) -> Result<Option<OwnedFd>> {
        let opened = openat(self.here(), name, flags | OFlags::NOFOLLOW, mode);
        let is_new = flags.contains(OFlags::CREATE | OFlags::EXCL);
        let follows = !flags.contains(OFlags::NOFOLLOW) && !is_new;
        match opened {
            Ok(opened) => {
                // The link itself is opened where only its place is asked for.
                if follows && flags.contains(PLACE) && is_link(&opened)? {
                    return self.follow(name, Errno::LOOP).map(|()| None);
                }
                self.same_mount(&opened)?;
                Ok(Some(opened))
            }
            Err(e @ (Errno::NOTDIR | Errno::LOOP)) if follows => {
                self.follow(name, e).map(|()| None)
            }
            Err(e) => Err(e),
        }
    }

    /// Goes on with the target of a link; `otherwise` where it is none.
    fn follow(&mut self, name: &[u8], otherwise: Errno) -> Result<()> {
        let target = match readlinkat(self.here(), name, Vec::new()) {
            Err(Errno::INVAL) => return Err(otherwise),
            target => target?,
        };
        self.links += 1;
        if self.within != Within::Root || self.links > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        if target.as_bytes().starts_with(b"/") {
            self.folders.clear();
        }
        self.ahead(target.as_bytes())
    }

    fn same_mount(&self, opened: &OwnedFd) -> Result<()> {
        match self.mount {
            Some(of_root) if mount(opened.as_fd())? != of_root => Err(Errno::XDEV),
            _ => Ok(()),
        }
    }
}

fn is_link(opened: &OwnedFd) -> Result<bool> {
    Ok(FileType::from_raw_mode(fstat(opened)?.st_mode) == FileType::Symlink)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, openat2};
    use std::os::unix::fs::symlink;

    const FLAGS: [OFlags; 6] = [
        OFlags::PATH,
        OFlags::PATH.union(OFlags::DIRECTORY),
        OFlags::PATH.union(OFlags::NOFOLLOW),
        OFlags::RDONLY,
        OFlags::RDONLY.union(OFlags::DIRECTORY),
        OFlags::RDONLY
            .union(OFlags::DIRECTORY)
            .union(OFlags::NOFOLLOW),
    ];

    /// Directories, a file, and links: to each of them, up, out, to `/`, to themselves, to nothing, a chain of `links`.
    fn tree(links: usize) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/f"), "in").unwrap();
        std::fs::write(root.join("f"), "above").unwrap();
        std::fs::write(dir.path().join("f"), "outside").unwrap();
        for (name, to) in [
            ("to-a", "a"),
            ("to-f", "a/f"),
            ("slash", "a/"),
            ("file-slash", "f/"),
            ("a/up", ".."),
            ("a/b/up", "../../.."),
            ("out", "../f"),
            ("root", "/"),
            ("from-root", "/a/b"),
            ("self", "self"),
            ("nothing", "absent/x"),
            ("dots", "a/./b/../f"),
        ] {
            symlink(to, root.join(name)).unwrap();
        }
        symlink("f", root.join("chain-0")).unwrap();
        for n in 1..links {
            symlink(format!("chain-{}", n - 1), root.join(format!("chain-{n}"))).unwrap();
        }
        dir
    }

    fn opened(result: Result<OwnedFd>) -> std::result::Result<(u64, u64), Errno> {
        let stat = fstat(result?)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    #[test]
    fn the_walk_and_the_kernel_agree_on_every_path() {
        let dir = tree(45);
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = openat(CWD, dir.path().join("root"), flags, Mode::empty()).unwrap();
        let names = [
            "a",
            "b",
            "f",
            ".",
            "..",
            "up",
            "to-a",
            "to-f",
            "slash",
            "file-slash",
            "out",
            "root",
            "from-root",
            "self",
            "nothing",
            "dots",
            "absent",
            "",
        ];
        let mut paths: Vec<String> = vec![
            "chain-38".into(),
            "chain-39".into(),
            "chain-40".into(),
            "chain-44".into(),
        ];
        for first in names {
            paths.push(first.to_owned());
            for second in names {
                paths.push(format!("{first}/{second}"));
                paths.extend(names.map(|third| format!("{first}/{second}/{third}")));
            }
        }
        let mut found = 0;
        for path in &paths {
            for flags in FLAGS {
                for within in [Within::Folders, Within::OneMount, Within::Root] {
                    let kernel = || openat2(&root, path, flags, Mode::empty(), within.resolve());
                    // Another process renames something.
                    let mut asked = (0..1000).map(|_| kernel());
                    let kernel = asked.find(|k| !matches!(k, Err(Errno::AGAIN))).unwrap();
                    let walked = walk(root.as_fd(), path.as_bytes(), flags, Mode::empty(), within);
                    let (kernel, walked) = (opened(kernel), opened(walked));
                    found += usize::from(kernel.is_ok());
                    assert_eq!(walked, kernel, "{path} {flags:?} {within:?}");
                }
            }
        }
        assert!(found > 1000, "{found} of {}", paths.len());
    }

    #[test]
    fn what_is_made_is_made_below() {
        let flags = OFlags::WRONLY | OFlags::CREATE;
        for (path, within) in [
            ("new", Within::Folders),
            ("a/new", Within::OneMount),
            ("f", Within::Folders),
            ("out", Within::Folders),
            ("out", Within::Root),
            ("to-f", Within::Root),
            ("root/new", Within::Root),
            ("nothing", Within::Root),
            ("a/b/up/new", Within::Root),
        ] {
            for flags in [flags, flags | OFlags::EXCL] {
                let made = [true, false].map(|kernel| {
                    let dir = tree(1);
                    let folder = OFlags::PATH | OFlags::DIRECTORY;
                    let root = openat(CWD, dir.path().join("root"), folder, Mode::empty()).unwrap();
                    let mode = Mode::from_raw_mode(0o640);
                    let opened = if kernel {
                        openat2(&root, path, flags, mode, within.resolve())
                    } else {
                        walk(root.as_fd(), path.as_bytes(), flags, mode, within)
                    };
                    let mut all: Vec<String> = Vec::new();
                    let mut folders = vec![dir.path().to_owned()];
                    while let Some(folder) = folders.pop() {
                        for entry in std::fs::read_dir(folder).unwrap() {
                            let entry = entry.unwrap();
                            if entry.file_type().unwrap().is_dir() {
                                folders.push(entry.path());
                            }
                            let name = entry.path().strip_prefix(dir.path()).unwrap().to_owned();
                            all.push(name.display().to_string());
                        }
                    }
                    all.sort();
                    (opened.map(drop), all)
                });
                assert_eq!(made[1], made[0], "{path} {flags:?} {within:?}");
            }
        }
    }

    #[test]
    fn another_mount_is_another() {
        let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let root = root.as_fd();
        let open = |within| {
            walk(
                root,
                b"proc/self",
                OFlags::PATH | OFlags::NOFOLLOW,
                Mode::empty(),
                within,
            )
        };
        assert!(open(Within::Folders).is_ok());
        assert_eq!(open(Within::OneMount).unwrap_err(), Errno::XDEV);
    }
}
