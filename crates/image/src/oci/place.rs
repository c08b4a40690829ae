//! Finds the files of a layout: in a directory, or in an archive whose members are listed once.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::error::OciError;
use stackforge_binary::source::{self, FileSource, Source as _, Window};
use stackforge_binary::tar::{MemberKind, Reader};
use stackforge_types::Digest;

/// Most bytes of a document that is parsed: an index, a manifest, a configuration.
pub const MOST_JSON: u64 = 4 << 20;
/// Most members of an archive; an image has some hundred.
const MOST_MEMBERS: usize = 100_000;

#[derive(Debug)]
pub(super) enum Files {
    Directory(PathBuf),
    Archive(Archive),
}

#[derive(Debug)]
pub(super) struct Archive {
    path: PathBuf,
    file: FileSource,
    /// Offset and size in bytes of each file's content, by path.
    members: HashMap<String, (u64, u64)>,
}

/// A file that can be opened repeatedly and from any thread.
#[derive(Debug, Clone)]
pub(super) enum Place {
    File(PathBuf),
    /// A member of an archive: the archive, the offset of the content in it, and its bytes.
    Member(PathBuf, u64, Window<FileSource>),
}

impl Files {
    pub(super) fn open(path: &Path) -> Result<Self, OciError> {
        let read = |source| OciError::Read {
            path: path.to_owned(),
            source,
        };
        let kind = std::fs::metadata(path).map_err(read)?;
        if kind.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        if !kind.is_file() {
            return Err(OciError::Unknown(path.to_owned()));
        }
        let mut first = Vec::new();
        let head = File::open(path).and_then(|f| f.take(512).read_to_end(&mut first));
        head.map_err(read)?;
        if first.starts_with(&[0x1f, 0x8b])
            || first.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
            || first.starts_with(b"\xfd7zXZ\0")
            || first.starts_with(b"BZh")
        {
            return Err(OciError::Compressed(path.to_owned()));
        }
        // Both kinds of tar header have this magic, and every program that writes images writes one of them.
        if first.get(257..262) != Some(b"ustar") {
            return Err(OciError::Unknown(path.to_owned()));
        }
        Ok(Self::Archive(Archive {
            path: path.to_owned(),
            members: members(path)?,
            file: FileSource::open(path).map_err(read)?,
        }))
    }

    /// Returns `None` if there is no such file.
    pub(super) fn find(&self, name: &str) -> Result<Option<Place>, OciError> {
        match self {
            Self::Directory(root) => {
                let path = root.join(name);
                match std::fs::metadata(&path) {
                    Ok(found) if found.is_file() => Ok(Some(Place::File(path))),
                    Ok(_) => Err(OciError::Member {
                        member: name.to_owned(),
                        problem: "is not a file",
                    }),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(source) => Err(OciError::Read { path, source }),
                }
            }
            Self::Archive(archive) => archive
                .members
                .get(name)
                .map(|(offset, size)| {
                    Window::new(archive.file.clone(), *offset, *size)
                        .map(|window| Place::Member(archive.path.clone(), *offset, window))
                        .map_err(|source| OciError::Bytes {
                            what: name.to_owned(),
                            source,
                        })
                })
                .transpose(),
        }
    }

    pub(super) fn blob(&self, digest: &Digest) -> Result<Place, OciError> {
        self.find(&format!("blobs/sha256/{}", digest.hex()))?
            .ok_or_else(|| OciError::Missing(format!("blob {digest}")))
    }

    /// Reads a small file whole. `None` if it is missing.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, OciError> {
        self.find(name)?.map(|place| place.read(name)).transpose()
    }
}

impl Place {
    pub(super) fn open(&self) -> Result<Window<FileSource>, OciError> {
        match self {
            Self::File(path) => {
                let read = |source| OciError::Read {
                    path: path.clone(),
                    source,
                };
                let file = FileSource::open(path).map_err(read)?;
                let size = file.size();
                Window::new(file, 0, size).map_err(|source| OciError::Bytes {
                    what: path.display().to_string(),
                    source,
                })
            }
            Self::Member(_, _, window) => Ok(window.clone()),
        }
    }

    /// The file that holds the content, and the content's offset in it in bytes.
    pub(super) fn at(&self) -> (&Path, u64) {
        match self {
            Self::File(path) => (path, 0),
            Self::Member(path, offset, _) => (path, *offset),
        }
    }

    /// Reads a small file whole. `what` names it in errors.
    pub(super) fn read(&self, what: &str) -> Result<Vec<u8>, OciError> {
        let mut window = self.open()?;
        let size = window.size();
        if size > MOST_JSON {
            return Err(OciError::TooLarge {
                what: what.to_owned(),
                size,
                most: MOST_JSON,
            });
        }
        source::bytes(&mut window, 0, size).map_err(|source| OciError::Bytes {
            what: what.to_owned(),
            source,
        })
    }

    /// Reads the file and verifies its size and digest.
    pub(super) fn verified(
        &self,
        what: &str,
        digest: &Digest,
        size: u64,
    ) -> Result<Vec<u8>, OciError> {
        let bytes = self.read(what)?;
        if bytes.len() as u64 != size {
            return Err(OciError::Size {
                what: what.to_owned(),
                expected: size,
                found: bytes.len() as u64,
            });
        }
        let found = Digest::of(&bytes);
        if found != *digest {
            return Err(OciError::Altered {
                what: what.to_owned(),
                expected: digest.clone(),
                found,
            });
        }
        Ok(bytes)
    }
}

fn members(path: &Path) -> Result<HashMap<String, (u64, u64)>, OciError> {
    let damaged = |source| OciError::Archive {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(|source| OciError::Read {
        path: path.to_owned(),
        source,
    })?;
    let wrong = |member: &str, problem| OciError::Member {
        member: member.escape_debug().to_string(),
        problem,
    };
    // Most members are large, so the bytes buffered after a header are discarded by the next seek.
    let mut reader = Reader::seeking(BufReader::with_capacity(4 << 10, file));
    let mut found = HashMap::new();
    let mut links = Vec::new();
    while let Some(entry) = reader.next().map_err(damaged)? {
        let start = entry.start();
        let header = entry.header;
        if found.len() + links.len() >= MOST_MEMBERS {
            return Err(wrong(&header.path, "is one too many: images have fewer"));
        }
        let content = match (header.kind, header.link) {
            (MemberKind::File, _) => (start, header.size),
            (MemberKind::HardLink, Some(to)) => *found
                .get(&to)
                .ok_or_else(|| wrong(&header.path, "is a hard link to a file that is not there"))?,
            (MemberKind::SymLink, Some(to)) => {
                links.push((header.path, to));
                continue;
            }
            _ => continue,
        };
        if found.insert(header.path.clone(), content).is_some() {
            return Err(wrong(&header.path, "is there twice"));
        }
    }
    // `docker save` writes a layer that several images share once, and adds symbolic links to it.
    let targets: Vec<_> = links
        .into_iter()
        .filter_map(|(from, to)| Some((*found.get(&target(&from, &to)?)?, from)))
        .collect();
    for (content, from) in targets {
        if found.contains_key(&from) {
            return Err(wrong(&from, "is there twice"));
        }
        found.insert(from, content);
    }
    Ok(found)
}

/// The target of a symbolic link of the archive. `None` if it is outside.
fn target(from: &str, to: &str) -> Option<String> {
    if to.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn links_stay_inside() {
        assert_eq!(
            target("a/layer.tar", "../b/layer.tar").unwrap(),
            "b/layer.tar"
        );
        for to in ["/etc/passwd", "../../x"] {
            assert_eq!(target("a/layer.tar", to), None);
        }
    }
}
