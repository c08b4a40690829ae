//! Layers applied in order, by their headers alone: which files an image has and which layer
//! provides each.
//!
//! In: the headers of each layer's tar in their order. Out: [`Node`]s by path. Whiteouts and opaque
//! directories hide what lower layers have, never what their own layer has (OCI image
//! specification 1.1, layer.md, "Whiteouts"). Within a layer a later member replaces an earlier
//! one. A member below a symbolic link lies where the link leads, as containerd and umoci unpack
//! it. Hard links become what they lead to, in their layer or a lower one. Never reads content.
//! Directories that no member names are not listed.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use stackforge_binary::tar::{Header, Kind};

/// What Linux takes in a path, without the zero at its end.
const MOST_PATH: usize = 4095;
/// As Linux does.
const MOST_LINKS: usize = 40;
/// Ten times what the largest images hold.
const MOST_FILES: usize = 2_000_000;
/// Bytes of names and link targets.
const MOST_TEXT: usize = 512 << 20;

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";
/// Other names that start so are AUFS's own and mean nothing.
const META: &str = ".wh..wh.";

/// A file of the merged image: what it is, and where its content lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The layer whose member put the path there, from 0.
    pub layer: usize,
    /// The member that has the content: another one where the path is a hard link.
    pub content: Member,
    /// Of that member, with its path in its layer; never a hard link. Without extended attributes,
    /// which one global header could put on every file.
    pub header: Header,
}

/// A member of a layer by number, both from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The layer, counted from 0 at the lowest.
    pub layer: usize,
    /// The member of the layer's tar, counted from 0.
    pub member: usize,
}

/// Why a layer does not fit over those below it.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The path.
    #[error("`{}` is longer than a path can be", short(.0))]
    Long(String),
    /// The path.
    #[error("`{}` lies below links that lead in a circle", short(.0))]
    Circle(String),
    /// The path.
    #[error("`{}` lies below a file of the same layer", short(.0))]
    BelowFile(String),
    /// A hard link has no target.
    #[error("the hard link `{}` leads to `{}`, which is not there", short(.path), short(.to))]
    NoTarget {
        /// The link.
        path: String,
        /// Where it leads.
        to: String,
    },
    /// A hard link's target is a directory.
    #[error("the hard link `{}` leads to the directory `{}`", short(.path), short(.to))]
    ToDirectory {
        /// The link.
        path: String,
        /// Where it leads.
        to: String,
    },
    /// The whiteout's path.
    #[error("the whiteout `{}` names no file", short(.0))]
    Whiteout(String),
    /// More than memory is given to.
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

/// Puts layers over each other by their headers alone.
#[derive(Debug, Default)]
pub struct Merge {
    /// What the layers below have, less what this one hides.
    lower: Nodes,
    /// What this layer has.
    upper: Nodes,
    layer: usize,
    member: usize,
    /// Bytes of the names that were placed.
    text: usize,
    /// The directory of the last member, as it stands and where it is.
    last: Option<(String, String)>,
}

impl Merge {
    /// An image without layers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next member of the layer at hand.
    ///
    /// # Errors
    /// If the member does not fit, or there are too many.
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
            Kind::HardLink => self.target(&path, header)?,
            _ => Node {
                layer: self.layer,
                content,
                header,
            },
        };
        self.place(path, node)
    }

    /// The layer at hand is complete; what is added next belongs to the one above it.
    pub fn end_layer(&mut self) {
        let mut parent = String::new();
        for (path, node) in std::mem::take(&mut self.upper) {
            if node.header.kind != Kind::Directory {
                remove(&mut self.lower, &path);
            }
            // A directory that only its members name replaces a file below, too.
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

    /// The files of all layers that are complete.
    pub fn finish(self) -> BTreeMap<String, Node> {
        self.lower
    }

    fn place(&mut self, path: String, node: Node) -> Result<(), MergeError> {
        let old = self.upper.get(&path).map(|old| old.header.kind);
        if node.header.kind != Kind::Directory {
            remove(&mut self.upper, &path);
            // At once: a later member of the layer may make it a directory again.
            remove(&mut self.lower, &path);
        }
        // Anything but a plain file or a new directory may change where paths lead.
        if node.header.kind != Kind::File || old.is_some() {
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

    /// What a hard link leads to.
    fn target(&mut self, path: &str, header: Header) -> Result<Node, MergeError> {
        let to = header.link.unwrap_or_default();
        let (directory, name) = split(&to);
        let real = join(&self.resolve(directory)?, name);
        match self.get(&real) {
            None => Err(MergeError::NoTarget {
                path: path.to_owned(),
                to,
            }),
            Some(node) if node.header.kind == Kind::Directory => Err(MergeError::ToDirectory {
                path: path.to_owned(),
                to,
            }),
            Some(node) => Ok(Node {
                layer: self.layer,
                ..node.clone()
            }),
        }
    }

    fn get(&self, path: &str) -> Option<&Node> {
        self.upper.get(path).or_else(|| self.lower.get(path))
    }

    /// Where a directory is, its symbolic links followed within the root.
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
                (Some(link), Kind::SymLink) => {
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
                (_, Kind::Directory) => {}
                _ if own.is_some() => return Err(MergeError::BelowFile(directory.to_owned())),
                _ => {}
            }
        }
        Ok(real)
    }
}

/// The directory and the name of a path.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() {
        return name.to_owned();
    }
    format!("{directory}/{name}")
}

/// Takes away everything below a directory.
fn remove(nodes: &mut Nodes, directory: &str) {
    if directory.is_empty() {
        nodes.clear();
        return;
    }
    nodes
        .extract_if(below(directory), |_, _| true)
        .for_each(drop);
}

/// `/` and the byte after it enclose what lies below.
fn below(directory: &str) -> Range<String> {
    format!("{directory}/")..format!("{directory}0")
}

fn remove_file(nodes: &mut Nodes, path: &str) {
    let file = nodes
        .get(path)
        .is_some_and(|node| node.header.kind != Kind::Directory);
    if file {
        nodes.remove(path);
    }
}

#[cfg(test)]
mod tests;
