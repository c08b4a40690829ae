//! A set of files by path, to which every kind of target is converted.
//!
//! In: the path of a shared object, a wheel or a directory; the files of an image come from [`super::image`].
//! Out: the paths at which files are installed, the symbolic links between them, and [`Contents`], readable
//! at any offset. Symbolic links never lead outside the tree, and only regular files are opened.

mod directory;
mod wheel;

use super::os_packages::is_of_database;
use serde::Serialize;
use stackforge_binary::source::{FileSource, Once, Source, Window, bytes};
use stackforge_binary::zip::{Archive, Member, ZipError};
use stackforge_stack::diag::{Code, Explained, codes};
use stackforge_stack::spec::PythonVersion;
use stackforge_types::wheel::NotAWheel;
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MOST_LINKS: usize = 40;
/// Longest path in Linux, in bytes. A few symbolic links could build a path of any length.
const LONGEST_PATH: usize = 4095;

#[derive(Debug)]
pub struct Tree {
    /// Name of the target, as the user typed it.
    pub name: String,
    pub kind: TreeKind,
    /// Paths of the files, sorted.
    pub paths: Vec<String>,
    /// Absolute path of the tree in its system, empty for the root.
    pub mount: String,
    /// The Python in a wheel's tags.
    pub python: Option<PythonVersion>,
    pub links: BTreeMap<String, String>,
    /// Files that describe others, by path.
    pub texts: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TreeKind {
    Object,
    Wheel,
    Directory,
    Image,
}

/// Longest text, in bytes. The largest RECORD of a wheel is below 4 MiB.
pub const LONGEST_TEXT: u64 = 16 << 20;
/// Most bytes of all texts of a tree: hundreds of installed wheels each have a RECORD.
pub const MOST_TEXT: u64 = 128 << 20;

/// Whether a file is kept as a text: the loader's configuration, metadata of installed distributions, and
/// dpkg's database.
pub fn is_text(path: &str) -> bool {
    let (folder, name) = split(path);
    path == "etc/ld.so.conf"
        || folder == "etc/ld.so.conf.d"
        || folder.ends_with(".dist-info") && ["WHEEL", "RECORD"].contains(&name)
        || is_of_database(path)
}

/// The contents of a tree's files, in the order of its paths.
#[derive(Debug)]
pub struct Contents(Vec<Content>);

#[derive(Debug)]
enum Content {
    Disk(PathBuf),
    Member(Arc<(Archive, FileSource)>, Member),
}

#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is neither a shared object, a wheel nor a directory", .0.display())]
    Unknown(PathBuf),
    #[error("layer {layer} of {image} cannot be read")]
    Layer {
        image: String,
        layer: usize,
        source: Box<dyn Error + Send + Sync>,
    },
    #[error(transparent)]
    Wheel(#[from] NotAWheel),
    #[error(transparent)]
    Archive(#[from] ZipError),
}

impl Explained for TreeError {
    fn code(&self) -> Code {
        match self {
            Self::Read { .. } => codes::UNREADABLE,
            Self::Unknown(_) | Self::Wheel(_) => codes::NOTHING_TO_AUDIT,
            Self::Archive(_) => codes::OBJECT_DAMAGED,
            Self::Layer { .. } => codes::IMAGE_UNREADABLE,
        }
    }
}

impl Tree {
    pub fn open(target: &Path) -> Result<(Self, Contents), TreeError> {
        let read = |source| TreeError::Read {
            path: target.to_owned(),
            source,
        };
        let kind = std::fs::metadata(target).map_err(read)?.file_type();
        if kind.is_dir() {
            return directory::open(target);
        }
        if !kind.is_file() {
            return Err(TreeError::Unknown(target.to_owned()));
        }
        if target.extension().is_some_and(|e| e == "whl") {
            return wheel::open(target);
        }
        let mut source = FileSource::open(target).map_err(read)?;
        let magic = stackforge_binary::source::array::<4>(&mut source, 0);
        if magic.is_ok_and(|m| m == stackforge_binary::elf::MAGIC) {
            return Ok(directory::single(target));
        }
        Err(TreeError::Unknown(target.to_owned()))
    }

    /// Resolves symbolic links in a path, with the tree as the root of the system.
    pub fn real(&self, path: &str) -> Option<String> {
        let mut rest: VecDeque<String> = parts(path).map(str::to_owned).collect();
        let mut inside: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                inside.pop();
                continue;
            }
            inside.push(part);
            let here = inside.join("/");
            if here.len() > LONGEST_PATH {
                return None;
            }
            let Some(to) = self.links.get(&here) else {
                continue;
            };
            links += 1;
            if links > MOST_LINKS {
                return None;
            }
            inside.pop();
            if to.starts_with('/') {
                inside.clear();
            }
            for part in parts(to).rev() {
                rest.push_front(part.to_owned());
            }
        }
        Some(inside.join("/"))
    }

    /// Whether there is a file or a symbolic link at that path.
    pub fn has(&self, path: &str) -> bool {
        let file = |p: &str| self.paths.binary_search_by(|f| f.as_str().cmp(p)).is_ok();
        file(path) || self.links.contains_key(path)
    }
}

impl Contents {
    /// Splits files into their sorted paths and their contents.
    fn sorted(mut files: Vec<(String, Content)>) -> (Vec<String>, Self) {
        files.sort_by(|a, b| a.0.cmp(&b.0));
        let (paths, contents) = files.into_iter().unzip();
        (paths, Self(contents))
    }

    /// Reads the files that are texts. One that cannot be read, or is beyond the limit, is left out.
    fn texts(&self, paths: &[String]) -> BTreeMap<String, String> {
        let mut left = MOST_TEXT;
        let mut read = |file: usize| {
            let mut source = self.open(file).ok()?;
            let len = source.size().min(LONGEST_TEXT);
            left = left.checked_sub(len)?;
            let text = bytes(&mut source, 0, len).ok()?;
            Some(String::from_utf8_lossy(&text).into_owned())
        };
        let texts = paths.iter().enumerate().filter(|(_, path)| is_text(path));
        texts
            .filter_map(|(file, path)| Some((path.clone(), read(file)?)))
            .collect()
    }

    /// Estimates the work of reading a file: the bytes to be inflated.
    pub fn work(&self, file: usize) -> u64 {
        match &self.0[file] {
            Content::Disk(_) => 0,
            Content::Member(_, member) => member.size,
        }
    }

    /// Returns the file's path on disk. `None` for a member of a wheel.
    pub fn on_disk(&self, file: usize) -> Option<&Path> {
        match &self.0[file] {
            Content::Disk(path) => Some(path),
            Content::Member(..) => None,
        }
    }

    /// Opens a file as a stream if random access is expensive. `None` if it is not.
    pub fn once(&self, file: usize) -> Result<Option<Once<Window<FileSource>>>, TreeError> {
        Ok(match &self.0[file] {
            Content::Disk(_) => None,
            Content::Member(wheel, member) => wheel.0.once(member, wheel.1.clone())?,
        })
    }

    pub fn open(&self, file: usize) -> Result<Box<dyn Source>, TreeError> {
        Ok(match &self.0[file] {
            Content::Disk(path) => {
                Box::new(FileSource::open(path).map_err(|source| TreeError::Read {
                    path: path.clone(),
                    source,
                })?)
            }
            Content::Member(wheel, member) => Box::new(wheel.0.open(member, wheel.1.clone())?),
        })
    }
}

/// Splits a path into its parts without empty ones and `.`.
fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|p| !p.is_empty() && *p != ".")
}

/// Normalizes a path: absolute, without `.` and `..`.
pub fn normal(path: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    for part in parts(path) {
        if part == ".." {
            out.pop();
        } else {
            out.push(part);
        }
    }
    format!("/{}", out.join("/"))
}

/// Splits a path into directory and name.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn links_are_followed_within_the_tree() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("usr/lib")).unwrap();
        std::fs::write(dir.path().join("usr/lib/libx.so.1.2"), "x").unwrap();
        let link =
            |to: &str, at: &str| std::os::unix::fs::symlink(to, dir.path().join(at)).unwrap();
        link("usr/lib", "lib");
        link("/usr/lib/libx.so.1.2", "usr/lib/libx.so.1");
        link("../../../../etc/passwd", "usr/lib/out");
        link("loop", "loop");
        link(&"d/".repeat(2000), "long");
        link(&format!("long/{}", "d/".repeat(1000)), "longer");
        let (tree, _) = Tree::open(dir.path()).unwrap();
        assert_eq!(tree.real("lib/libx.so.1").unwrap(), "usr/lib/libx.so.1.2");
        assert_eq!(tree.real("lib/out").unwrap(), "etc/passwd");
        assert_eq!(tree.real("loop"), None);
        assert_eq!(tree.real("long").map(|p| p.len()), Some(3999));
        assert_eq!(tree.real("longer"), None);
        assert!(tree.has("usr/lib/libx.so.1.2") && !tree.has("etc/passwd"));
        assert_eq!(tree.paths.len(), 1);
    }

    #[test]
    fn paths_lose_what_means_nothing() {
        assert_eq!(normal("/a/./b//../c/"), "/a/c");
        assert_eq!(normal("/a/../../b"), "/b");
    }

    proptest! {
        #[test]
        fn any_path_becomes_normal(path in "[a./]{0,20}") {
            let once = normal(&path);
            prop_assert!(once.starts_with('/') && !once.contains("//"));
            prop_assert!(once.split('/').all(|p| p != "." && p != ".."));
            prop_assert_eq!(normal(&once), once);
        }
    }
}
