//! The system that is being finished: the system below, what was laid over it, and what is changed.
//!
//! Names are kept for everything, contents only for the few files that finishing reads. Changes are
//! collected by real path and written in that order, so parents come before their contents.

use std::collections::BTreeMap;
use std::io::Write;

use super::super::tree::{Implied, Node, Tree};
use super::FinishError;
use stackforge_binary::tar::{Attributes, Owner, Writer};

/// A system to add packages to. Paths are real and have no leading `/`.
pub trait Root {
    /// Returns the node at a path, without following links. `None` also if it cannot be read.
    fn node(&self, path: &str) -> Option<Node>;
    /// Returns a file's content. `None` if the file does not exist.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    fn read(&self, path: &str) -> std::io::Result<Option<Vec<u8>>>;
    /// Returns the names in a directory, in any order. Empty if the directory does not exist.
    fn names(&self, directory: &str) -> Vec<String>;
}

/// The empty system.
pub struct Nothing;

impl Root for Nothing {
    fn node(&self, _: &str) -> Option<Node> {
        None
    }

    fn read(&self, _: &str) -> std::io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn names(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// A root file system that is unpacked in a directory.
pub struct Unpacked(pub std::path::PathBuf);

impl Root for Unpacked {
    fn node(&self, path: &str) -> Option<Node> {
        let path = self.0.join(path);
        let kind = path.symlink_metadata().ok()?.file_type();
        if kind.is_dir() {
            Some(Node::Directory)
        } else if kind.is_symlink() {
            let target = std::fs::read_link(path).ok()?;
            Some(Node::Symlink(target.to_str()?.to_owned()))
        } else {
            Some(Node::File)
        }
    }

    fn read(&self, path: &str) -> std::io::Result<Option<Vec<u8>>> {
        match self.node(path) {
            Some(Node::File) => std::fs::read(self.0.join(path)).map(Some),
            _ => Ok(None),
        }
    }

    fn names(&self, directory: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.0.join(directory)) else {
            return Vec::new();
        };
        let name =
            |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        entries.filter_map(name).collect()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    Directory {
        mode: u32,
        gid: u64,
    },
    Symlink(String),
    File {
        mode: u32,
        gid: u64,
        content: Vec<u8>,
    },
}

pub(super) struct System<'r> {
    pub tree: Tree<'r>,
    root: &'r dyn Root,
    /// Mode and content of the files that were kept while the packages' files were written.
    pub kept: BTreeMap<String, (u32, Vec<u8>)>,
    changes: BTreeMap<String, Change>,
}

impl<'r> System<'r> {
    pub(super) fn new(root: &'r dyn Root, tree: Tree<'r>) -> Self {
        System {
            tree,
            root,
            kept: BTreeMap::new(),
            changes: BTreeMap::new(),
        }
    }

    /// Whether something exists at the path once links are followed.
    pub(super) fn exists(&self, path: &str) -> bool {
        self.tree.follow(path).is_some()
    }

    pub(super) fn is_directory(&self, path: &str) -> bool {
        self.tree
            .follow(path)
            .is_some_and(|real| self.tree.node(&real) == Some(Node::Directory))
    }

    pub(super) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, FinishError> {
        Ok(self.read_with_mode(path)?.map(|(_, content)| content))
    }

    fn read_with_mode(&self, path: &str) -> Result<Option<(u32, Vec<u8>)>, FinishError> {
        let Some(real) = self.tree.follow(path) else {
            return Ok(None);
        };
        if let Some(Change::File { mode, content, .. }) = self.changes.get(&real) {
            return Ok(Some((*mode, content.clone())));
        }
        if let Some((mode, content)) = self.kept.get(&real) {
            return Ok(Some((*mode, content.clone())));
        }
        let content = self
            .root
            .read(&real)
            .map_err(|source| FinishError::Root { path: real, source })?;
        Ok(content.map(|content| (0o644, content)))
    }

    /// Reads a file as text. A system's own tables are ASCII.
    pub(super) fn text(&self, path: &str) -> Result<Option<String>, FinishError> {
        let bytes = self.read(path)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Returns the sorted names in a directory, from all sources.
    pub(super) fn names(&self, directory: &str) -> Vec<String> {
        let Some(real) = self.tree.follow(directory) else {
            return Vec::new();
        };
        let mut names = self.root.names(&real);
        names.extend(self.tree.names(&real).into_iter().map(str::to_owned));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the real path of a name without following its last part, and creates missing parents.
    fn place(&mut self, path: &str) -> Result<String, FinishError> {
        let mut implied = Vec::new();
        let real = self
            .tree
            .real_path(path, &mut implied)
            .map_err(|_| FinishError::Parent {
                path: path.to_owned(),
            })?;
        for item in implied {
            match item {
                Implied::Directory(path) => {
                    self.changes.insert(
                        path,
                        Change::Directory {
                            mode: 0o755,
                            gid: 0,
                        },
                    );
                }
                Implied::Symlink { path, target } => {
                    self.changes.insert(path, Change::Symlink(target));
                }
            }
        }
        Ok(real)
    }

    pub(super) fn directory(&mut self, path: &str, mode: u32, gid: u64) -> Result<(), FinishError> {
        let real = self.place(path)?;
        self.tree.put(&real, Node::Directory);
        self.changes.insert(real, Change::Directory { mode, gid });
        Ok(())
    }

    /// Creates a link instead of whatever is there, unless that is a file or a directory.
    pub(super) fn link(&mut self, path: &str, target: &str) -> Result<(), FinishError> {
        let real = self.place(path)?;
        match self.tree.node(&real) {
            Some(Node::Symlink(existing)) if existing == target => return Ok(()),
            Some(Node::File | Node::Directory) => {
                return Err(FinishError::Occupied {
                    path: path.to_owned(),
                });
            }
            _ => {}
        }
        self.tree.put(&real, Node::Symlink(target.to_owned()));
        self.changes
            .insert(real, Change::Symlink(target.to_owned()));
        Ok(())
    }

    /// Creates a file instead of whatever is there, unless that is a directory.
    pub(super) fn file(
        &mut self,
        path: &str,
        mode: u32,
        gid: u64,
        content: Vec<u8>,
    ) -> Result<(), FinishError> {
        let real = self.place(path)?;
        if self.tree.node(&real) == Some(Node::Directory) {
            return Err(FinishError::Occupied {
                path: path.to_owned(),
            });
        }
        self.tree.put(&real, Node::File);
        self.changes
            .insert(real, Change::File { mode, gid, content });
        Ok(())
    }

    /// Copies a file, unless the target exists.
    pub(super) fn copy(&mut self, from: &str, to: &str) -> Result<(), FinishError> {
        if self.exists(to) {
            return Ok(());
        }
        let Some((mode, content)) = self.read_with_mode(from)? else {
            return Err(FinishError::Missing {
                path: from.to_owned(),
            });
        };
        self.file(to, mode, 0, content)
    }

    /// Creates a link instead of a directory that a package ships later.
    pub(super) fn migrate(&mut self, real: &str, target: &str) {
        self.tree.put(real, Node::Symlink(target.to_owned()));
        self.changes
            .insert(real.to_owned(), Change::Symlink(target.to_owned()));
    }

    /// Writes the changes after the packages' files.
    pub(super) fn write<W: Write>(
        self,
        tar: &mut Writer<W>,
        mtime: u64,
    ) -> Result<(), FinishError> {
        let own = |mode, gid| Attributes {
            mode,
            owner: Some(Owner { uid: 0, gid }),
            mtime,
        };
        for (path, change) in self.changes {
            match change {
                Change::Directory { mode, gid } => tar.directory(&path, own(mode, gid))?,
                Change::Symlink(target) => tar.symlink(&path, &target, own(0o777, 0))?,
                Change::File { mode, gid, content } => {
                    let size = content.len() as u64;
                    tar.file(&path, own(mode, gid), size, content.as_slice())?;
                }
            }
        }
        Ok(())
    }
}
