//! Unpacking as Linux's file systems and overlayfs have it.

mod lower;
mod paths;
mod place;
#[cfg(test)]
mod tests;
pub mod update;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, Timestamps, Uid};
use rustix::fs::{CWD, FileType, OFlags, Timespec};

use lower::Lower;
use paths::join;
use place::{Place, Root};
use stackforge_binary::tar::{Entry, Header, MemberKind, Reader, bytes};
use stackforge_types::system::begin_to_write;

use super::error::{DEEPEST, UnpackError};
use super::{Owner, Unpacked, error, fill, owner};

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";
/// Prefix of AUFS's own names, which have no meaning here.
const META: &str = ".wh..wh.";
/// Most bytes of memory for the paths of a layer's directories; a large image has 10 MB of them.
const MOST_FOLDERS: usize = 64 << 20;

/// Unpacks a tar into an empty directory. The stream is read to its end, where it may verify itself.
///
/// # Errors
/// If the tar is damaged or hostile, or the directory cannot be written. Files unpacked before stay.
pub fn unpack(tar: impl Read, into: &Path, owner: Owner) -> Result<Unpacked, UnpackError> {
    run(tar, Root::alone(open(into)?), None, owner, &mut |_| ())
}

/// Unpacks a tar over the files of lower layers in a directory: whiteouts remove files, and symbolic links
/// of lower layers are followed as if the directory were `/`.
///
/// # Errors
/// As [`unpack`].
pub fn over(tar: impl Read, into: &Path, owner: Owner) -> Result<Unpacked, UnpackError> {
    over_listed(tar, into, owner, &mut |_| ())
}

/// As [`over`], and passes the header of each member to `list`.
///
/// # Errors
/// As [`unpack`].
pub fn over_listed(
    tar: impl Read,
    into: &Path,
    owner: Owner,
    list: &mut dyn FnMut(&Header),
) -> Result<Unpacked, UnpackError> {
    let root = Root::shared(open(into)?);
    run(tar, root, Some(Lower::default()), owner, list)
}

/// Fails where nothing can be unpacked, whatever it is.
///
/// # Errors
/// [`UnpackError::NotLinux`].
pub fn supported() -> Result<(), UnpackError> {
    Ok(())
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
    list: &mut dyn FnMut(&Header),
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
        list(&entry.header);
        layer.entry(entry)?;
    }
    layer.folders()?;
    Ok(layer.done)
}

struct Unpacking {
    root: Root,
    /// Set if the directory also holds lower layers.
    lower: Option<Lower>,
    owner: Owner,
    done: Unpacked,
    /// Attributes that are set after all files are written: writing into a directory changes its time, and a
    /// read-only one takes no files.
    folders: BTreeMap<String, Attributes>,
    /// Approximate bytes that these attributes take.
    text: usize,
}

/// Metadata of a file that are set after its content.
#[derive(Clone, Copy)]
struct Attributes {
    kind: MemberKind,
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
            let keeps = header.kind == MemberKind::Directory;
            lower.replace(&place.folder, name, &header.path, keeps)?;
        }
        match header.kind {
            MemberKind::Directory => {
                place.folder()?;
                place.xattrs(&header)?;
                return self.later(&header);
            }
            MemberKind::File => {
                place.clear()?;
                let mut file = place.file()?;
                let wrote = |e: io::Error| UnpackError::Write {
                    path: header.path.clone(),
                    source: e,
                };
                self.done.content += copy(&mut entry, &mut file).map_err(wrote)?;
            }
            MemberKind::SymLink => {
                place.clear()?;
                place.symlink(&bytes(header.link.as_deref().unwrap_or_default()))?;
            }
            MemberKind::HardLink => {
                let to = header.link.as_deref().unwrap_or_default();
                let (folder, name) = to.rsplit_once('/').unwrap_or(("", to));
                let target = Place::find(&self.root, folder, name, to)?;
                // A hard link to itself, or to another name of the same file, needs nothing.
                if !place.is_same_file(&target) {
                    place.clear()?;
                    place.link(&target)?;
                }
                self.done.files += 1;
                return Ok(());
            }
            MemberKind::Fifo => {
                place.clear()?;
                place.node(FileType::Fifo)?;
            }
            MemberKind::Character | MemberKind::Block => {
                self.done.devices += 1;
                return Ok(());
            }
        }
        self.done.files += 1;
        place.attributes(Attributes::from(&header), self.owner)?;
        // Set last: changing owner or mode removes a file's capabilities.
        if header.kind != MemberKind::SymLink {
            place.xattrs(&header)?;
        }
        Ok(())
    }

    /// Remembers the attributes of a directory, to set at the end.
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

    /// Sets modes and times of directories, each after those inside it.
    fn folders(&mut self) -> Result<(), UnpackError> {
        for (path, attributes) in std::mem::take(&mut self.folders).into_iter().rev() {
            if path.is_empty() {
                Place::root(&self.root)?.attributes(attributes, self.owner)?;
                continue;
            }
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
            let place = Place::open(&self.root, folder, name, &path)?;
            // A later member may have replaced it with a file.
            if place.is_folder() {
                place.attributes(attributes, self.owner)?;
            }
        }
        Ok(())
    }
}

/// Shortest run of zeros that becomes a hole; pruned libraries have many.
const HOLE: usize = 64 << 10;
/// Bytes of a file after which the kernel is asked to begin to write them.
const BEGUN: u64 = 8 << 20;

fn copy(from: &mut impl Read, to: &mut std::fs::File) -> io::Result<u64> {
    use std::io::{Seek as _, SeekFrom, Write as _};
    let mut piece = vec![0; 4 * HOLE];
    let (mut size, mut begun) = (0, 0);
    let mut ends_with_hole = false;
    loop {
        let len = fill(from, &mut piece)?;
        let is_hole = |block: &[u8]| block.len() == HOLE && block.iter().all(|byte| *byte == 0);
        let blocks = piece[..len].chunks(HOLE);
        let blocks: Vec<(usize, bool)> = blocks.map(|b| (b.len(), is_hole(b))).collect();
        let mut at = 0;
        for run in blocks.chunk_by(|one, other| one.1 == other.1) {
            let end = at + run.iter().map(|(len, _)| len).sum::<usize>();
            ends_with_hole = run.iter().all(|(_, is_hole)| *is_hole);
            if ends_with_hole {
                to.seek(SeekFrom::Current((end - at) as i64))?;
            } else {
                to.write_all(&piece[at..end])?;
            }
            at = end;
        }
        size += len as u64;
        if size - begun >= BEGUN {
            begin_to_write(to, begun..size);
            begun = size;
        }
        if len < piece.len() {
            if ends_with_hole {
                to.set_len(size)?;
            }
            return Ok(size);
        }
    }
}

impl Place<'_> {
    /// Sets owner, mode and time of this file.
    fn attributes(&self, wanted: Attributes, owner: Owner) -> Result<(), UnpackError> {
        let at = |doing, e| UnpackError::at(doing, self.path, e);
        if owner == Owner::Kept {
            // The kernel takes -1 as "leave the owner unchanged".
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
        if wanted.kind != MemberKind::SymLink {
            // Without root, files stay readable for their owner.
            let own = if owner == Owner::Kept { 0 } else { 0o400 };
            let dir = if wanted.kind == MemberKind::Directory && own > 0 {
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

    /// Sets capabilities and users' extended attributes; those of the kernel's own are left out.
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
                // Most programs run without them, so a file system or user that cannot set them is accepted.
                Ok(()) | Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::PERM) => {}
                Err(e) => return Err(UnpackError::at("set an attribute of", &header.path, e)),
            }
        }
        Ok(())
    }
}
