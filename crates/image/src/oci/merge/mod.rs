//! Merges layers in order, by their headers alone: which files an image has and which layer
//! provides each.
//!
//! In: the headers of each layer's tar in order. Out: [`Node`]s by path. Whiteouts and opaque directories
//! hide files of lower layers, never of their own layer (OCI image specification 1.1, layer.md,
//! "Whiteouts"). Within a layer a later member replaces an earlier one. A member below a symbolic link is
//! placed at the link's target, as containerd and umoci unpack it. A hard link becomes its target, in its
//! layer or a lower one. Never reads content. Directories that no member names are not listed.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use stackforge_binary::tar::{Header, MemberKind};

/// Longest path that Linux takes, in bytes without the final zero.
const MOST_PATH: usize = 4095;
/// Most symbolic links that are followed in one path, as in Linux.
const MOST_LINKS: usize = 40;
/// Most files: ten times those of the largest images.
const MOST_FILES: usize = 2_000_000;
/// Most bytes of names and link targets.
const MOST_TEXT: usize = 512 << 20;

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";
/// Other names with this prefix belong to AUFS and have no meaning here.
const META: &str = ".wh..wh.";

/// A file of the merged image: its metadata, and where its content is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The layer whose member created the path, counted from 0.
    pub layer: usize,
    /// The member that has the content: another one if the path is a hard link.
    pub content: Member,
    /// Header of that member, with its path in its layer; never a hard link. It has no extended attributes,
    /// because one global header could put them on every file.
    pub header: Header,
}

/// A member of a layer, by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The layer, counted from 0 at the lowest.
    pub layer: usize,
    /// The member of the layer's tar, counted from 0.
    pub member: usize,
}

/// Why a layer cannot be applied over those below it.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The path, which is too long.
    #[error("`{}` is longer than a path can be", short(.0))]
    Long(String),
    /// The path, below symbolic links that form a circle.
    #[error("`{}` lies below links that lead in a circle", short(.0))]
    Circle(String),
    /// The path, which lies below a file.
    #[error("`{}` lies below a file of the same layer", short(.0))]
    BelowFile(String),
    /// A hard link has no target.
    #[error("the hard link `{}` leads to `{}`, which is not there", short(.path), short(.to))]
    NoTarget {
        /// The link's path.
        path: String,
        /// The link's target.
        to: String,
    },
    /// A hard link's target is a directory.
    #[error("the hard link `{}` leads to the directory `{}`", short(.path), short(.to))]
    ToDirectory {
        /// The link's path.
        path: String,
        /// The link's target.
        to: String,
    },
    /// The whiteout's path.
    #[error("the whiteout `{}` names no file", short(.0))]
    Whiteout(String),
    /// The layers have more files or longer names than memory is reserved for.
    #[error("the layers have more than {MOST_FILES} files, or too long names")]
    Many,
}

fn short(path: &str) -> String {
    path.chars()
        .take(200)
        .flat_map(char::escape_debug)
        .collect()
}

type Nodes = BTreeMap<String, Node>;

/// Merges layers by their headers alone.
#[derive(Debug, Default)]
pub struct Merge {
    /// Files of the layers below, less those that this layer hides.
    lower: Nodes,
    /// Files of this layer.
    upper: Nodes,
    layer: usize,
    member: usize,
    /// Bytes of the names so far.
    text: usize,
    /// Directory of the last member: as written and resolved.
    last: Option<(String, String)>,
}

impl Merge {
    /// Starts with an image without layers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next member of the current layer.
    ///
    /// # Errors
    /// If the member cannot be placed, or there are too many.
    pub fn add(&mut self, mut header: Header) -> Result<(), MergeError> {
        header.xattrs = Vec::new();
        let content = Member {
            layer: self.layer,
            member: self.member,
        };
        self.member += 1;
        if header.path.is_empty() {
            return Ok(());
        }
        let (directory, name) = split(&header.path);
        let directory = self.resolve(directory)?;
        if name == OPAQUE {
            remove(&mut self.lower, &directory);
            self.last = None;
            return Ok(());
        }
        if name.starts_with(META) {
            return Ok(());
        }
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            if matches!(hidden, "" | "." | "..") {
                return Err(MergeError::Whiteout(header.path));
            }
            let path = join(&directory, hidden);
            self.lower.remove(&path);
            remove(&mut self.lower, &path);
            self.last = None;
            return Ok(());
        }
        let path = join(&directory, name);
        if path.len() > MOST_PATH {
            return Err(MergeError::Long(header.path));
        }
        let node = match header.kind {
            MemberKind::HardLink => self.target(&path, header)?,
            _ => Node {
                layer: self.layer,
                content,
                header,
            },
        };
        self.place(path, node)
    }

    /// Ends the current layer; members added next belong to the layer above it.
    pub fn end_layer(&mut self) {
        let mut parent = String::new();
        for (path, node) in std::mem::take(&mut self.upper) {
            if node.header.kind != MemberKind::Directory {
                remove(&mut self.lower, &path);
            }
            // A directory that exists only because of its members also replaces a lower file.
            let (directory, _) = split(&path);
            if directory != parent {
                for (at, _) in directory.match_indices('/') {
                    remove_file(&mut self.lower, &directory[..at]);
                }
                remove_file(&mut self.lower, directory);
                parent = directory.to_owned();
            }
            self.lower.insert(path, node);
        }
        self.layer += 1;
        self.member = 0;
        self.last = None;
    }

    /// The files of all layers that were ended.
    pub fn finish(self) -> BTreeMap<String, Node> {
        self.lower
    }

    fn place(&mut self, path: String, node: Node) -> Result<(), MergeError> {
        let old = self.upper.get(&path).map(|old| old.header.kind);
        if node.header.kind != MemberKind::Directory {
            remove(&mut self.upper, &path);
            // Removed now, because a later member of the layer may make it a directory again.
            remove(&mut self.lower, &path);
        }
        // Anything but a new plain file may change how paths resolve.
        if node.header.kind != MemberKind::File || old.is_some() {
            self.last = None;
        }
        let link = node.header.link.as_ref().map_or(0, String::len);
        let node_text = path.len() + node.header.path.len() + link;
        self.upper.insert(path, node);
        self.text += node_text;
        if self.lower.len() + self.upper.len() > MOST_FILES || self.text > MOST_TEXT {
            return Err(MergeError::Many);
        }
        Ok(())
    }

    /// The node that a hard link points to.
    fn target(&mut self, path: &str, header: Header) -> Result<Node, MergeError> {
        let to = header.link.unwrap_or_default();
        let (directory, name) = split(&to);
        let real = join(&self.resolve(directory)?, name);
        match self.get(&real) {
            None => Err(MergeError::NoTarget {
                path: path.to_owned(),
                to,
            }),
            Some(node) if node.header.kind == MemberKind::Directory => {
                Err(MergeError::ToDirectory {
                    path: path.to_owned(),
                    to,
                })
            }
            Some(node) => Ok(Node {
                layer: self.layer,
                ..node.clone()
            }),
        }
    }

    fn get(&self, path: &str) -> Option<&Node> {
        self.upper.get(path).or_else(|| self.lower.get(path))
    }

    /// The path of a directory after following its symbolic links within the root.
    fn resolve(&mut self, directory: &str) -> Result<String, MergeError> {
        if directory.is_empty() {
            return Ok(String::new());
        }
        if let Some((from, to)) = &self.last
            && from == directory
        {
            return Ok(to.clone());
        }
        let real = self.follow(directory)?;
        self.last = Some((directory.to_owned(), real.clone()));
        Ok(real)
    }

    fn follow(&self, directory: &str) -> Result<String, MergeError> {
        let mut rest: VecDeque<&str> = directory.split('/').collect();
        let mut real = String::new();
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            match part {
                "" | "." => continue,
                ".." => {
                    real.truncate(split(&real).0.len());
                    continue;
                }
                _ => {}
            }
            let before = real.len();
            if before > 0 {
                real.push('/');
            }
            real.push_str(part);
            if real.len() > MOST_PATH {
                return Err(MergeError::Long(directory.to_owned()));
            }
            let own = self.upper.get(&real);
            let Some(node) = own.or_else(|| self.lower.get(&real)) else {
                continue;
            };
            match (&node.header.link, node.header.kind) {
                (Some(link), MemberKind::SymLink) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(MergeError::Circle(directory.to_owned()));
                    }
                    if link.len() > MOST_PATH {
                        return Err(MergeError::Long(directory.to_owned()));
                    }
                    real.truncate(if link.starts_with('/') { 0 } else { before });
                    for part in link.rsplit('/') {
                        rest.push_front(part);
                    }
                }
                (_, MemberKind::Directory) => {}
                _ if own.is_some() => return Err(MergeError::BelowFile(directory.to_owned())),
                _ => {}
            }
        }
        Ok(real)
    }
}

/// Splits a path into its directory and its name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() {
        return name.to_owned();
    }
    format!("{directory}/{name}")
}

/// Removes everything below a directory.
fn remove(nodes: &mut Nodes, directory: &str) {
    if directory.is_empty() {
        nodes.clear();
        return;
    }
    nodes
        .extract_if(below(directory), |_, _| true)
        .for_each(drop);
}

/// Keys from `/` up to the byte after it are those below the directory.
fn below(directory: &str) -> Range<String> {
    format!("{directory}/")..format!("{directory}0")
}

fn remove_file(nodes: &mut Nodes, path: &str) {
    let file = nodes
        .get(path)
        .is_some_and(|node| node.header.kind != MemberKind::Directory);
    if file {
        nodes.remove(path);
    }
}

#[cfg(test)]
mod tests;
