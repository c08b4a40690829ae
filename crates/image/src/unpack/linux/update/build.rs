//! Puts a tree together.

use super::super::error::UnpackError;
use super::super::place::{Place, Root};
use super::super::{Attributes, open};
use super::earlier::Earlier;
use super::lease::has_writer;
use super::merged::Merged;
use super::record::{Recorded, Stamp};
use super::{Listing, Record, TreeUpdate, UpdateError};
use crate::oci::merge::Node;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, ioctl_ficlone, renameat, unlinkat};
use rustix::io::Errno;
use stackforge_binary::tar::{Header, MemberKind, bytes};
use stackforge_types::Digest;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;

/// How the files of a tree came to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sources {
    /// Files of layers that were read.
    pub written: u64,
    /// Files of a tree that is removed.
    pub moved: u64,
    /// Files that share their blocks with those of an earlier tree.
    pub cloned: u64,
    /// Files that were copied from an earlier tree.
    pub copied: u64,
}

impl TreeUpdate {
    /// Writes the tree into an empty directory. `stop` is asked before each file.
    ///
    /// # Errors
    /// If a file of an earlier tree changed meanwhile, or the tree cannot be written.
    pub fn write(
        mut self,
        into: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Sources, Record), UpdateError> {
        let unplanned = UpdateError::Unclear("the layers were not merged");
        let merged = self.merged.take().ok_or(unplanned)?;
        let mut tree = Writer {
            root: Root::alone(open(into)?),
            folder: None,
            first: HashMap::new(),
            clones: true,
            sources: Sources::default(),
        };
        for (path, node) in &merged.nodes {
            if stop() {
                return Err(UpdateError::Changed(path.clone()));
            }
            tree.node(&mut self, &merged, path, node)?;
        }
        tree.finish(&merged, &self)?;
        let layers = merged.layers().iter().map(|headers| {
            let mut listing = Listing::default();
            headers.iter().for_each(|header| listing.add(header));
            listing
        });
        let layers: Vec<(Digest, Listing)> = self.diff_ids.iter().cloned().zip(layers).collect();
        let record = Record::of_merged(into, &merged, layers).map_err(|e| at("record", "", e))?;
        let record = record.ok_or(UpdateError::Unclear("the tree is not what the layers say"))?;
        Ok((tree.sources, record))
    }
}

struct Writer<'a> {
    root: Root,
    /// The directory of the last file.
    folder: Option<(&'a str, Place<'a>)>,
    /// The first name of each content, for hard links.
    first: HashMap<(usize, usize), &'a str>,
    /// Whether the file system may be able to clone.
    clones: bool,
    sources: Sources,
}

impl<'a> Writer<'a> {
    fn node(
        &mut self,
        from: &mut TreeUpdate,
        merged: &'a Merged,
        path: &'a str,
        node: &'a Node,
    ) -> Result<(), UpdateError> {
        let place = self.place(path)?;
        let header = merged.header(node);
        let content = (node.content.layer, node.content.member);
        if header.kind == MemberKind::Directory {
            return Ok(place.folder()?);
        }
        if let Some(first) = self.first.get(&content) {
            let (folder, name) = split(first);
            return Ok(place.link(&Place::find(&self.root, folder, name, first)?)?);
        }
        self.first.insert(content, path);
        match header.kind {
            MemberKind::File => return self.file(from, &place, header, content),
            MemberKind::SymLink => {
                place.symlink(&bytes(header.link.as_deref().unwrap_or_default()))?
            }
            _ => place.node(FileType::Fifo)?,
        }
        place.attributes(Attributes::from(header), from.owner)?;
        if header.kind != MemberKind::SymLink {
            place.xattrs(header)?;
        }
        Ok(())
    }

    /// The place of a path, whose directory often is that of the path before.
    fn place(&mut self, path: &'a str) -> Result<Place<'a>, UnpackError> {
        let (folder, name) = split(path);
        if self.folder.as_ref().is_none_or(|(last, _)| *last != folder) {
            self.folder = Some((folder, Place::open(&self.root, folder, name, path)?));
        }
        let Some((_, last)) = &self.folder else {
            return Place::open(&self.root, folder, name, path);
        };
        let folder = last.folder.as_fd().try_clone_to_owned();
        Ok(Place {
            folder: folder.map_err(|e| at("open the folder of", path, e))?,
            name: bytes(name),
            path,
        })
    }

    fn file(
        &mut self,
        from: &mut TreeUpdate,
        place: &Place<'_>,
        header: &Header,
        content: (usize, usize),
    ) -> Result<(), UpdateError> {
        let path = place.path;
        if from.contents.contains(&content) {
            let staged = from.staged(content, path)?;
            renameat(&staged.folder, &*staged.name, &place.folder, &*place.name)
                .map_err(|e| UnpackError::at("write", path, e))?;
            self.sources.written += 1;
            return Ok(());
        }
        let diff_id = from.diff_ids[content.0].clone();
        for tree in &mut from.earlier {
            if tree.is_spare && take(tree, &diff_id, content.1, place)? {
                self.sources.moved += 1;
                return Ok(());
            }
            let Some(source) = Source::open(tree, &diff_id, content.1) else {
                continue;
            };
            let mut file = place.file()?;
            let failed = |source| UnpackError::Write {
                path: path.to_owned(),
                source,
            };
            let is_cloned = source.copy(&mut file, &mut self.clones).map_err(failed)?;
            if !source.is_unchanged() {
                place.clear()?;
                continue;
            }
            place.attributes(Attributes::from(header), from.owner)?;
            place.xattrs(header)?;
            if is_cloned {
                self.sources.cloned += 1;
            } else {
                self.sources.copied += 1;
            }
            return Ok(());
        }
        Err(UpdateError::Changed(path.to_owned()))
    }

    /// Sets the attributes of directories, each after those in it.
    fn finish(&mut self, merged: &'a Merged, from: &TreeUpdate) -> Result<(), UpdateError> {
        self.folder = None;
        for (path, node) in merged.nodes.iter().rev() {
            if node.header.kind == MemberKind::Directory {
                let place = self.place(path)?;
                place.attributes(Attributes::from(&node.header), from.owner)?;
            }
        }
        if let Some(header) = &merged.root {
            Place::root(&self.root)?.attributes(Attributes::from(header), from.owner)?;
        }
        Ok(())
    }
}

/// Moves a file of a tree that is removed. False if another program can still write to it, or it changed.
fn take(
    tree: &mut Earlier,
    diff_id: &Digest,
    member: usize,
    place: &Place<'_>,
) -> Result<bool, UpdateError> {
    let Some(recorded) = tree.recorded(diff_id, member).cloned() else {
        return Ok(false);
    };
    let Ok(stat) = tree.folders.stat(&recorded.path) else {
        return Ok(false);
    };
    // A second name would stay in the old tree.
    if Stamp::of(&stat) != recorded.stamp || stat.st_nlink != 1 {
        return Ok(false);
    }
    let Ok((folder, name)) = tree.folders.open(&recorded.path) else {
        return Ok(false);
    };
    let name = bytes(name);
    let moved = renameat(folder, &*name, &place.folder, &*place.name);
    if moved.is_err() {
        return Ok(false);
    }
    // By its name nobody reaches it any more; a descriptor may still be open for writing.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::openat(&place.folder, &*place.name, flags, Mode::empty());
    let file = File::from(file.map_err(|e| UnpackError::at("open", place.path, e))?);
    let is_quiet = !has_writer(&file);
    let stat = fstat(&file).map_err(|e| UnpackError::at("read", place.path, e))?;
    if is_quiet && stat.st_nlink == 1 && recorded.stamp.is_moved(&Stamp::of(&stat)) {
        return Ok(true);
    }
    let back = renameat(&place.folder, &*place.name, folder, &*name);
    back.or_else(|_| unlinkat(&place.folder, &*place.name, AtFlags::empty()))
        .map_err(|e| UnpackError::at("remove", place.path, e))?;
    Ok(false)
}

/// A file of an earlier tree that stays there.
struct Source {
    file: File,
    recorded: Recorded,
}

impl Source {
    fn open(tree: &mut Earlier, diff_id: &Digest, member: usize) -> Option<Self> {
        let recorded = tree.recorded(diff_id, member)?.clone();
        let (folder, name) = tree.folders.open(&recorded.path).ok()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(folder, bytes(name), flags, Mode::empty()).ok()?;
        let source = Self {
            file: File::from(file),
            recorded,
        };
        source.is_unchanged().then_some(source)
    }

    /// Asked again after copying: a program may write to the file at any time.
    fn is_unchanged(&self) -> bool {
        fstat(&self.file).is_ok_and(|stat| Stamp::of(&stat) == self.recorded.stamp)
    }

    /// Copies the content. Returns whether the blocks are shared.
    fn copy(&self, to: &mut File, clones: &mut bool) -> io::Result<bool> {
        if *clones {
            match ioctl_ficlone(&*to, &self.file) {
                Ok(()) => return Ok(true),
                Err(Errno::NOTSUP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::PERM) => {
                    *clones = false;
                }
                Err(e) => return Err(e.into()),
            }
        }
        holes(&self.file, to)?;
        Ok(false)
    }
}

/// Copies the data of a file; its holes stay holes.
fn holes(from: &File, to: &mut File) -> io::Result<()> {
    use rustix::fs::{SeekFrom, seek};
    let size = fstat(from)?.st_size.cast_unsigned();
    let mut end = 0;
    while end < size {
        let start = match seek(from, SeekFrom::Data(end)) {
            Ok(start) => start,
            // A hole up to the end.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL) => end,
            Err(e) => return Err(e.into()),
        };
        end = seek(from, SeekFrom::Hole(start)).unwrap_or(size);
        seek(from, SeekFrom::Start(start))?;
        seek(&*to, SeekFrom::Start(start))?;
        let copied = io::copy(&mut from.take(end - start), to)?;
        if copied < end - start {
            break;
        }
    }
    to.set_len(size)
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn at(doing: &'static str, path: &str, source: io::Error) -> UnpackError {
    UnpackError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}
