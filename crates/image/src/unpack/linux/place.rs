//! A name in a directory below the root, found without following a symbolic link.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, linkat, mkdirat, mknodat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::error::UnpackError;
use super::owner::Owner;
use stackforge_binary::tar::bytes;
use stackforge_types::beneath::{Within, open_beneath};

pub(super) struct Place<'a> {
    pub folder: OwnedFd,
    pub name: Vec<u8>,
    /// Path in the image, for messages.
    pub path: &'a str,
}

/// A directory outside of which nothing is written.
pub(super) struct Root {
    pub folder: OwnedFd,
    within: Within,
}

impl Root {
    /// The root of one layer: every symbolic link and every path out of it is refused.
    pub(super) fn alone(folder: OwnedFd) -> Self {
        let within = Within::Folders;
        Self { folder, within }
    }

    /// The root of a layer over others, whose links are followed as if this directory were `/`.
    pub(super) fn shared(folder: OwnedFd) -> Self {
        let within = Within::Root;
        Self { folder, within }
    }
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl<'a> Place<'a> {
    /// Opens `folder`, creating it if it is missing, for the name `name` in it.
    pub(super) fn open(
        root: &Root,
        folder: &str,
        name: &str,
        path: &'a str,
    ) -> Result<Self, UnpackError> {
        match Self::find(root, folder, name, path) {
            Err(UnpackError::Io { source, .. })
                if source.raw_os_error() == Some(Errno::NOENT.raw_os_error()) =>
            {
                make(root, folder).map_err(|e| UnpackError::at("make the folder of", path, e))?;
                Self::find(root, folder, name, path)
            }
            found => found,
        }
    }

    pub(super) fn find(
        root: &Root,
        folder: &str,
        name: &str,
        path: &'a str,
    ) -> Result<Self, UnpackError> {
        let below = if folder.is_empty() { "." } else { folder };
        let opened = open_beneath(
            &root.folder,
            bytes(below),
            FOLDER,
            Mode::empty(),
            root.within,
        );
        let folder = opened.map_err(|e| match e {
            Errno::LOOP => UnpackError::BelowLink(path.to_owned()),
            Errno::NOTDIR => UnpackError::BelowFile(path.to_owned()),
            e => UnpackError::at("open the folder of", path, e),
        })?;
        Ok(Self {
            folder,
            name: bytes(name),
            path,
        })
    }

    pub(super) fn root(root: &Root) -> Result<Place<'static>, UnpackError> {
        let folder = root.folder.as_fd().try_clone_to_owned();
        Ok(Place {
            folder: folder.map_err(|source| UnpackError::Io {
                doing: "open",
                path: "/".to_owned(),
                source,
            })?,
            name: b".".to_vec(),
            path: "/",
        })
    }

    fn at(&self, doing: &'static str) -> impl FnOnce(Errno) -> UnpackError {
        let path = self.path.to_owned();
        move |e| UnpackError::at(doing, &path, e)
    }

    pub(super) fn is_folder(&self) -> bool {
        let found = statat(&self.folder, &*self.name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory)
    }

    /// Whether both names exist and are hard links of one file.
    pub(super) fn is_same_file(&self, other: &Place<'_>) -> bool {
        let of = |place: &Place<'_>| {
            let found = statat(&place.folder, &*place.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some((found.st_dev, found.st_ino))
        };
        !self.is_folder() && of(self).is_some_and(|own| of(other) == Some(own))
    }

    /// Removes the file that a later member of the same name replaces.
    pub(super) fn clear(&self) -> Result<(), UnpackError> {
        match unlinkat(&self.folder, &*self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR) => match unlinkat(&self.folder, &*self.name, AtFlags::REMOVEDIR) {
                Ok(()) => Ok(()),
                Err(_) => Err(UnpackError::OverFolder(self.path.to_owned())),
            },
            Err(e) => Err(self.at("replace")(e)),
        }
    }

    pub(super) fn folder(&self) -> Result<(), UnpackError> {
        let made = mkdirat(&self.folder, &*self.name, Mode::from_raw_mode(0o755));
        match made {
            Err(Errno::EXIST) if !self.is_folder() => {
                self.clear()?;
                mkdirat(&self.folder, &*self.name, Mode::from_raw_mode(0o755))
                    .map_err(self.at("make"))
            }
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(e) => Err(self.at("make")(e)),
        }
    }

    pub(super) fn file(&self) -> Result<File, UnpackError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file = rustix::fs::openat(&self.folder, &*self.name, flags, mode);
        Ok(File::from(file.map_err(self.at("make"))?))
    }

    pub(super) fn symlink(&self, target: &[u8]) -> Result<(), UnpackError> {
        symlinkat(target, &self.folder, &*self.name).map_err(self.at("make"))
    }

    pub(super) fn link(&self, to: &Place<'_>) -> Result<(), UnpackError> {
        linkat(
            &to.folder,
            &*to.name,
            &self.folder,
            &*self.name,
            AtFlags::empty(),
        )
        .map_err(self.at("link"))
    }

    pub(super) fn node(&self, kind: FileType) -> Result<(), UnpackError> {
        let mode = Mode::from_raw_mode(0o600);
        mknodat(&self.folder, &*self.name, kind, mode, 0).map_err(self.at("make"))
    }

    /// Hides files of lower layers with this name.
    pub(super) fn whiteout(&self) -> Result<(), UnpackError> {
        // A file of that name in the layer itself stays visible.
        match statat(&self.folder, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(()),
            Err(_) => self.node(FileType::CharacterDevice),
        }
    }

    /// Hides everything that lower layers have in this directory.
    pub(super) fn opaque(&self, owner: Owner) -> Result<(), UnpackError> {
        let name = match owner {
            Owner::Kept => "trusted.overlay.opaque",
            Owner::Mine => "user.overlay.opaque",
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.folder, ".", flags, Mode::empty());
        folder
            .and_then(|f| rustix::fs::fsetxattr(f, name, b"y", rustix::fs::XattrFlags::empty()))
            .map_err(self.at("mark as opaque"))
    }
}

/// Creates the missing directories of a path.
fn make(root: &Root, folder: &str) -> rustix::io::Result<()> {
    for (at, _) in folder.match_indices('/').chain([(folder.len(), "")]) {
        let (above, name) = folder[..at].rsplit_once('/').unwrap_or(("", &folder[..at]));
        let above = if above.is_empty() { "." } else { above };
        let above = bytes(above);
        let above = open_beneath(&root.folder, above, FOLDER, Mode::empty(), root.within)?;
        match mkdirat(above, bytes(name), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
