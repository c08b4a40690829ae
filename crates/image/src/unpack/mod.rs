//! One layer as a directory, for who mounts layers over each other; or layer over layer in one
//! directory ([`over`]), for who wants the root file system itself.
//!
//! In: a layer's tar from anyone, a directory, whose files they are to be. Out: the layer's files as
//! overlayfs wants a lower directory: whiteouts as devices 0:0, opaque directories marked. Every
//! path is opened below the directory without following a link, by the kernel (`openat2`), so
//! nothing is written outside of it, whatever the layer says. Devices are left out where they are no
//! whiteouts: a container has its own. What was written before an error stays for the caller to
//! remove.
//!
//! Sources: OCI's image specification 1.1, layer.md; the kernel's overlayfs.rst, "whiteouts and
//! opaque directories".

mod error;
mod lower;
mod paths;
mod place;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, Timestamps, Uid};
use rustix::fs::{CWD, FileType, OFlags, Timespec};

use lower::Lower;
use place::{Place, Root};
use stackforge_binary::tar::{Entry, Header, Kind, Reader, bytes};

pub use error::{DEEPEST, UnpackError};

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";
/// Of AUFS, and without a meaning here.
const META: &str = ".wh..wh.";
/// Bytes that the paths of a layer's directories may take in memory; a large image has 10 MB of them.
const MOST_FOLDERS: usize = 64 << 20;

/// Whose the files become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Those that the layer names: only root can do that.
    Kept,
    /// Whoever unpacks.
    Mine,
}

impl Owner {
    /// What this process can do.
    pub fn of_process() -> Self {
        match rustix::process::geteuid().is_root() {
            true => Self::Kept,
            false => Self::Mine,
        }
    }
}

/// What was unpacked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Names that were made, other than directories: files, links and named pipes.
    pub files: u64,
    /// Bytes of files' content.
    pub content: u64,
    /// Names of lower layers that the layer takes away.
    pub whiteouts: u64,
    /// Devices that were left out.
    pub devices: u64,
}

/// Unpacks a tar into an empty directory. The stream is read to its end, where it may prove itself.
///
/// # Errors
/// If the tar is damaged or hostile, or the directory cannot be written. What was unpacked before
/// stays.
pub fn unpack(tar: impl Read, into: &Path, owner: Owner) -> Result<Unpacked, UnpackError> {
    run(tar, Root::alone(open(into)?), None, owner)
}

/// Unpacks a tar over what lower layers left in a directory: whiteouts remove, links of lower layers
/// are followed as if the directory were `/`.
///
/// # Errors
/// As [`unpack`].
pub fn over(tar: impl Read, into: &Path, owner: Owner) -> Result<Unpacked, UnpackError> {
    run(
        tar,
        Root::shared(open(into)?),
        Some(Lower::default()),
        owner,
    )
}

fn open(into: &Path) -> Result<OwnedFd, UnpackError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, into, flags, Mode::empty())
        .map_err(|e| UnpackError::at("open", &into.display().to_string(), e))
}

fn run(
    tar: impl Read,
    root: Root,
    lower: Option<Lower>,
    owner: Owner,
) -> Result<Unpacked, UnpackError> {
    let mut layer = Unpacking {
        root,
        lower,
        owner,
        done: Unpacked::default(),
        folders: BTreeMap::new(),
        text: 0,
    };
    let mut reader = Reader::new(tar);
    while let Some(entry) = reader.next()? {
        layer.entry(entry)?;
    }
    layer.folders()?;
    Ok(layer.done)
}

struct Unpacking {
    root: Root,
    /// Where the directory holds lower layers as well.
    lower: Option<Lower>,
    owner: Owner,
    done: Unpacked,
    /// Set when all is written: writing into a folder changes its time, and one that is read-only
    /// takes no files.
    folders: BTreeMap<String, Attributes>,
    /// Bytes that those take, about.
    text: usize,
}

/// What a file has besides its content.
#[derive(Clone, Copy)]
struct Attributes {
    kind: Kind,
    mode: u32,
    uid: u64,
    gid: u64,
    mtime: i64,
}

impl From<&Header> for Attributes {
    fn from(header: &Header) -> Self {
        Self {
            kind: header.kind,
            mode: header.mode,
            uid: header.uid,
            gid: header.gid,
            mtime: header.mtime,
        }
    }
}

impl Unpacking {
    fn entry<R: Read>(&mut self, mut entry: Entry<'_, R>) -> Result<(), UnpackError> {
        let header = entry.header.clone();
        if header.path.is_empty() {
            Place::root(&self.root)?.xattrs(&header)?;
            return self.later(&header);
        }
        if header.path.split('/').count() > DEEPEST {
            return Err(UnpackError::Deep(header.path.chars().take(60).collect()));
        }
        let (folder, name) = header.path.rsplit_once('/').unwrap_or(("", &header.path));
        if name.starts_with(META) && name != OPAQUE {
            return Ok(());
        }
        let place = Place::open(&self.root, folder, name, &header.path)?;
        if name == OPAQUE {
            return match &self.lower {
                Some(lower) => lower.empty(&place.folder, folder),
                None => place.opaque(self.owner),
            };
        }
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            if hidden.is_empty() || hidden == "." || hidden == ".." {
                return Err(UnpackError::Whiteout(header.path));
            }
            self.done.whiteouts += 1;
            let path = join(folder, hidden);
            if let Some(lower) = &self.lower {
                return lower.remove(&place.folder, hidden, &path);
            }
            return Place {
                name: bytes(hidden),
                ..place
            }
            .whiteout();
        }
        if let Some(lower) = &mut self.lower {
            let keeps = header.kind == Kind::Directory;
            lower.replace(&place.folder, name, &header.path, keeps)?;
        }
        match header.kind {
            Kind::Directory => {
                place.folder()?;
                place.xattrs(&header)?;
                return self.later(&header);
            }
            Kind::File => {
                place.clear()?;
                let mut file = place.file()?;
                let wrote = |e: io::Error| UnpackError::Write {
                    path: header.path.clone(),
                    source: e,
                };
                self.done.content += copy(&mut entry, &mut file).map_err(wrote)?;
            }
            Kind::SymLink => {
                place.clear()?;
                place.symlink(&bytes(header.link.as_deref().unwrap_or_default()))?;
            }
            Kind::HardLink => {
                let to = header.link.as_deref().unwrap_or_default();
                let (folder, name) = to.rsplit_once('/').unwrap_or(("", to));
                let target = Place::find(&self.root, folder, name, to)?;
                // A name that is a link to itself, or to another name of its file, is that file already.
                if !place.is_same_file(&target) {
                    place.clear()?;
                    place.link(&target)?;
                }
                self.done.files += 1;
                return Ok(());
            }
            Kind::Fifo => {
                place.clear()?;
                place.node(FileType::Fifo)?;
            }
            Kind::Character | Kind::Block => {
                self.done.devices += 1;
                return Ok(());
            }
        }
        self.done.files += 1;
        place.attributes(Attributes::from(&header), self.owner)?;
        // Last: a new owner or mode takes a file's capabilities.
        if header.kind != Kind::SymLink {
            place.xattrs(&header)?;
        }
        Ok(())
    }

    /// Remembers what a folder gets at the end.
    fn later(&mut self, header: &Header) -> Result<(), UnpackError> {
        let attributes = Attributes::from(header);
        if let Some(earlier) = self.folders.get_mut(&header.path) {
            *earlier = attributes;
            return Ok(());
        }
        self.text += header.path.len() + size_of::<(String, Attributes)>();
        if self.text > MOST_FOLDERS {
            return Err(UnpackError::Many);
        }
        self.folders.insert(header.path.clone(), attributes);
        Ok(())
    }

    /// Modes and times of folders, each after those in it.
    fn folders(&mut self) -> Result<(), UnpackError> {
        for (path, attributes) in std::mem::take(&mut self.folders).into_iter().rev() {
            if path.is_empty() {
                Place::root(&self.root)?.attributes(attributes, self.owner)?;
                continue;
            }
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
            let place = Place::open(&self.root, folder, name, &path)?;
            // A later member may have put a file in its place.
            if place.is_folder() {
                place.attributes(attributes, self.owner)?;
            }
        }
        Ok(())
    }
}

/// A name in a folder of the layer.
fn join(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    }
}

/// What is nothing but zeros over this length becomes a hole: pruned libraries have many.
const HOLE: usize = 64 << 10;

fn copy(from: &mut impl Read, to: &mut std::fs::File) -> io::Result<u64> {
    use std::io::{Seek as _, SeekFrom, Write as _};
    let mut piece = vec![0; 4 * HOLE];
    let mut size = 0;
    loop {
        let len = fill(from, &mut piece)?;
        for block in piece[..len].chunks(HOLE) {
            if block.len() == HOLE && block.iter().all(|byte| *byte == 0) {
                to.seek(SeekFrom::Current(HOLE as i64))?;
            } else {
                to.write_all(block)?;
            }
        }
        size += len as u64;
        if len < piece.len() {
            // It may end with a hole.
            to.set_len(size)?;
            return Ok(size);
        }
    }
}

/// Reads until the buffer is full or there is no more; how much that is.
///
/// # Errors
/// What `from` fails with.
pub fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

impl Place<'_> {
    /// Owner, mode and time of what lies here.
    fn attributes(&self, wanted: Attributes, owner: Owner) -> Result<(), UnpackError> {
        let at = |doing, e| UnpackError::at(doing, self.path, e);
        if owner == Owner::Kept {
            // For the kernel, -1 means that the owner stays who it is.
            let known = |id: &u32| *id != u32::MAX;
            let id = |id: u64| {
                let id = u32::try_from(id).ok().filter(known);
                id.ok_or_else(|| UnpackError::Id(self.path.to_owned()))
            };
            let (uid, gid) = (
                Uid::from_raw(id(wanted.uid)?),
                Gid::from_raw(id(wanted.gid)?),
            );
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(&self.folder, &*self.name, Some(uid), Some(gid), flags)
                .map_err(|e| at("set the owner of", e))?;
        }
        if wanted.kind != Kind::SymLink {
            // Files of a user who is not root stay readable for that user.
            let own = if owner == Owner::Kept { 0 } else { 0o400 };
            let dir = if wanted.kind == Kind::Directory && own > 0 {
                0o300
            } else {
                0
            };
            let mode = Mode::from_raw_mode(wanted.mode & 0o7777 | own | dir);
            rustix::fs::chmodat(&self.folder, &*self.name, mode, AtFlags::empty())
                .map_err(|e| at("set the mode of", e))?;
        }
        let time = Timespec {
            tv_sec: wanted.mtime,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(&self.folder, &*self.name, &times, flags)
            .map_err(|e| at("set the time of", e))
    }

    /// Capabilities of files and what users set; what names the kernel's own is left out.
    fn xattrs(&self, header: &Header) -> Result<(), UnpackError> {
        let kept = |name: &str| {
            name == "security.capability"
                || (name.starts_with("user.") && !name.starts_with("user.overlay."))
        };
        let wanted = header.xattrs.iter().filter(|(name, _)| kept(name));
        for (name, value) in wanted {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let file = rustix::fs::openat(&self.folder, &*self.name, flags, Mode::empty());
            let set = file.and_then(|file| {
                rustix::fs::fsetxattr(file, name.as_str(), value, rustix::fs::XattrFlags::empty())
            });
            match set {
                // A file system or a user without them runs most programs all the same.
                Ok(()) | Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::PERM) => {}
                Err(e) => return Err(UnpackError::at("set an attribute of", &header.path, e)),
            }
        }
        Ok(())
    }
}
