//! A root file system of unpacked packages, as one deterministic tar stream.
//!
//! The input is package files in the resolver's order. The output is a tar of their files, laid out as
//! dpkg would on a system with merged /usr, and of dpkg's database in the state "unpacked".
//! [`super::configure::CONFIGURE`], run inside, then finishes the job with the packages' own scripts.
//! The same files give the same bytes on any host. No script runs here, nothing is unpacked to disk,
//! and a file of one package is never silently replaced by another's.

mod error;
mod replaces;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use md5::{Digest, Md5};

use super::ahead::for_each_data;
use super::deb::Deb;
use super::dpkg::{self, Installed, State};
use super::members::{Member, MemberError, PackedKind, for_each_member};
use super::tree::{Implied, Node, PlaceError, Placement, Tree};
use stackforge_binary::tar::{Attributes, Format, Owner, Writer};

pub use error::RootfsError;

/// Counts of what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootfsSummary {
    /// Number of packages.
    pub packages: usize,
    /// Number of members of the tar.
    pub members: u64,
    /// Bytes of the files' contents.
    pub content: u64,
}

/// Writes the root file system of `debs` for `architecture` to `out`. No time stamp is later than
/// `source_date_epoch`, in seconds since 1970.
///
/// # Errors
/// If a package file is damaged, given twice or for another architecture, if two packages ship the same
/// file, or if `out` cannot be written.
pub fn write_rootfs(
    debs: &[PathBuf],
    architecture: &str,
    source_date_epoch: u64,
    out: impl Write,
) -> Result<RootfsSummary, RootfsError> {
    let packages = open(debs, architecture)?;
    let (mut tree, implied) = Tree::new();
    let mut layout = Layout::new(out, &mut tree, source_date_epoch, None);
    layout.tar.directory("", layout.own(0o755))?;
    layout.implied(implied)?;
    let installed = layout.lay(&packages, architecture)?;
    layout.database(&packages, &installed, architecture)?;
    let summary = RootfsSummary {
        packages: packages.len(),
        members: layout.tar.members(),
        content: layout.tar.content(),
    };
    layout.tar.finish()?.flush()?;
    Ok(summary)
}

/// Opens the package files of one system, each package once and for `architecture`.
pub(super) fn open(debs: &[PathBuf], architecture: &str) -> Result<Vec<Deb>, RootfsError> {
    let mut packages = Vec::with_capacity(debs.len());
    let mut names = BTreeSet::new();
    for path in debs {
        let deb = Deb::open(path)?;
        if ![architecture, "all"].contains(&deb.architecture()) {
            return Err(RootfsError::Architecture {
                package: deb.name().to_owned(),
                found: deb.architecture().to_owned(),
                wanted: architecture.to_owned(),
            });
        }
        if !names.insert(deb.name().to_owned()) {
            return Err(RootfsError::Twice {
                package: deb.name().to_owned(),
            });
        }
        packages.push(deb);
    }
    Ok(packages)
}

/// Receives files while they are written.
pub(super) trait Watch {
    /// Whether `show` should get a file of this real path and size, which is then held in memory.
    fn wants(&self, path: &str, size: u64) -> bool;
    fn show(&mut self, path: &str, mode: u32, content: Vec<u8>);
}

pub(super) struct Layout<'a, 'b, W: Write> {
    pub tar: Writer<W>,
    tree: &'a mut Tree<'b>,
    replaces: BTreeSet<(usize, usize)>,
    source_date_epoch: u64,
    watch: Option<&'a mut dyn Watch>,
}

/// An error of the archive that is read or of the root file system that is written.
enum Stop {
    Archive(MemberError),
    Rootfs(RootfsError),
}

impl From<MemberError> for Stop {
    fn from(error: MemberError) -> Self {
        Stop::Archive(error)
    }
}

impl From<RootfsError> for Stop {
    fn from(error: RootfsError) -> Self {
        Stop::Rootfs(error)
    }
}

impl<'a, 'b, W: Write> Layout<'a, 'b, W> {
    pub(crate) fn new(
        out: W,
        tree: &'a mut Tree<'b>,
        source_date_epoch: u64,
        watch: Option<&'a mut dyn Watch>,
    ) -> Self {
        Layout {
            tar: Writer::new(Format::Gnu, out),
            tree,
            replaces: BTreeSet::new(),
            source_date_epoch,
            watch,
        }
    }

    /// Writes the packages' files, and returns for each package what was written.
    pub(crate) fn lay(
        &mut self,
        packages: &[Deb],
        architecture: &str,
    ) -> Result<Vec<Installed>, RootfsError> {
        self.replaces = replaces::replacements(packages, architecture)?;
        let order = replaces::order(packages.len(), &self.replaces);
        let mut installed: Vec<Installed> = packages.iter().map(|_| Installed::default()).collect();
        for_each_data(&order, packages, |index, data| {
            installed[index] = self.package(index, packages, data)?;
            Ok::<_, RootfsError>(())
        })?;
        Ok(installed)
    }

    /// Returns the tar, for more members.
    pub(crate) fn into_tar(self) -> Writer<W> {
        self.tar
    }

    /// Returns the attributes of what belongs to no package: root's, and as old as the root file
    /// system.
    pub(crate) fn own(&self, mode: u32) -> Attributes {
        Attributes {
            mode,
            owner: Some(Owner::ROOT),
            mtime: self.source_date_epoch,
        }
    }

    fn package(
        &mut self,
        index: usize,
        packages: &[Deb],
        data: &mut dyn Read,
    ) -> Result<Installed, RootfsError> {
        let deb = &packages[index];
        let conffiles: BTreeSet<&str> = deb.conffiles().collect();
        let mut installed = Installed::default();
        let mut listed = BTreeSet::new();
        for_each_member(data, |member, content| {
            let placement = self.place(index, &member, packages)?;
            let spelled = if member.path.is_empty() {
                "/.".to_owned()
            } else {
                format!("/{}", member.path)
            };
            if placement != Placement::Replaced && listed.insert(spelled.clone()) {
                installed.paths.push(spelled.clone());
            }
            if let Placement::New(real) = placement {
                let hash = conffiles.contains(spelled.as_str()).then(Md5::new);
                let mut content = HashingReader {
                    inner: content,
                    hash,
                };
                self.member(index, &member, &real, &mut content, deb.name())?;
                if let (Some(hash), PackedKind::File { .. }) = (content.hash, &member.kind) {
                    installed
                        .conffiles
                        .insert(spelled, super::package::hex(&hash.finalize()));
                }
            }
            Ok(())
        })
        .map_err(|stop| match stop {
            Stop::Archive(source) => RootfsError::Member {
                package: deb.name().to_owned(),
                source,
            },
            Stop::Rootfs(error) => error,
        })?;
        Ok(installed)
    }

    fn place(
        &mut self,
        index: usize,
        member: &Member,
        packages: &[Deb],
    ) -> Result<Placement, RootfsError> {
        let node = match &member.kind {
            PackedKind::Directory => Node::Directory,
            PackedKind::Symlink { target } => Node::Symlink(target.clone()),
            PackedKind::File { .. } | PackedKind::Hardlink { .. } => Node::File,
        };
        let mut implied = Vec::new();
        let replaces = &self.replaces;
        let placement = self
            .tree
            .place(
                &member.path,
                node,
                Some(index),
                |a, b| replaces.contains(&(a, b)),
                &mut implied,
            )
            .map_err(|error| {
                let (package, path) = (packages[index].name().to_owned(), member.path.clone());
                match error {
                    PlaceError::Parent(parent) => RootfsError::Parent {
                        package,
                        path,
                        parent,
                    },
                    PlaceError::Conflict(other) => {
                        let other = other
                            .map_or("the system's layout", |other| packages[other].name())
                            .to_owned();
                        RootfsError::Conflict {
                            package,
                            other,
                            path,
                        }
                    }
                }
            })?;
        self.implied(implied)?;
        Ok(placement)
    }

    fn member(
        &mut self,
        index: usize,
        member: &Member,
        real: &str,
        content: &mut dyn Read,
        package: &str,
    ) -> Result<(), RootfsError> {
        let attributes = Attributes {
            mode: member.mode,
            owner: Some(Owner {
                uid: member.uid,
                gid: member.gid,
            }),
            mtime: member.mtime.min(self.source_date_epoch),
        };
        match &member.kind {
            PackedKind::Directory => self.tar.directory(real, attributes)?,
            PackedKind::File { size } => match &mut self.watch {
                Some(watch) if watch.wants(real, *size) => {
                    let mut bytes = Vec::new();
                    content.read_to_end(&mut bytes)?;
                    self.tar.file(real, attributes, *size, bytes.as_slice())?;
                    watch.show(real, member.mode, bytes);
                }
                _ => self.tar.file(real, attributes, *size, content)?,
            },
            PackedKind::Symlink { target } => self.tar.symlink(real, target, attributes)?,
            PackedKind::Hardlink { target } => {
                let real_target = self
                    .tree
                    .real_path(target, &mut Vec::new())
                    .unwrap_or_default();
                if real_target == real || !self.tree.is_file_of(&real_target, index) {
                    return Err(RootfsError::Link {
                        package: package.to_owned(),
                        path: member.path.clone(),
                        target: target.clone(),
                    });
                }
                self.tar.hardlink(real, &real_target, attributes)?;
            }
        }
        Ok(())
    }

    pub(crate) fn implied(&mut self, implied: Vec<Implied>) -> io::Result<()> {
        for item in implied {
            match item {
                Implied::Directory(path) => self.tar.directory(&path, self.own(0o755))?,
                Implied::Symlink { path, target } => {
                    self.tar.symlink(&path, &target, self.own(0o777))?
                }
            }
        }
        Ok(())
    }

    fn database(
        &mut self,
        packages: &[Deb],
        installed: &[Installed],
        architecture: &str,
    ) -> Result<(), RootfsError> {
        for (path, content, executable) in
            dpkg::database(packages, installed, architecture, State::Unpacked)
        {
            let path = format!("var/lib/dpkg/{path}");
            let mut implied = Vec::new();
            let placed = self
                .tree
                .place(&path, Node::File, None, |_, _| false, &mut implied);
            self.implied(implied)?;
            let Ok(Placement::New(real)) = placed else {
                return Err(RootfsError::Database { path });
            };
            let attributes = self.own(if executable { 0o755 } else { 0o644 });
            self.tar
                .file(&real, attributes, content.len() as u64, content.as_slice())?;
        }
        Ok(())
    }
}

struct HashingReader<'a> {
    inner: &'a mut dyn Read,
    hash: Option<Md5>,
}

impl Read for HashingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if let Some(hash) = &mut self.hash {
            hash.update(&buffer[..read]);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
