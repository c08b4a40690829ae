//! Lists the content of a store: each blob and file with its kind, its size and its last use.

use super::error::StoreError;
use super::files::{entries, weight};
use super::handle::Store;
use super::images::Ref;
use serde::{Serialize, Serializer};
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Kind of an entry of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryKind {
    /// A blob of an image that `index.json` names.
    Image,
    /// A wheel.
    Wheel,
    /// A source distribution or another source.
    Source,
    /// A Debian package.
    OsPackage,
    /// An output of a step that is none of the above.
    Output,
    /// A blob that nothing references, for instance a layer of an image that was only read.
    Unnamed,
    /// An unpacked directory.
    Unpacked,
    /// A directory of objects that the compilers of one library keep.
    Objects,
    /// An incomplete download.
    Part,
    /// A build's log.
    Log,
    /// A package index of Debian.
    Index,
    /// A fetched program.
    Tool,
    /// What is recorded of the files of a root file system.
    Record,
}

impl EntryKind {
    /// Whether it is a directory that programs filled, under a key of its own and with no blob.
    pub(super) fn is_folder(self) -> bool {
        matches!(self, Self::Unpacked | Self::Objects)
    }
}

/// A blob, a file or a directory of the store.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// What kind of entry it is.
    pub kind: EntryKind,
    /// The name of a file, an image or a step; else the digest.
    pub name: String,
    /// `None` for an entry that is not a blob, such as a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Size of its content in bytes.
    pub size: u64,
    /// When it was last used.
    #[serde(serialize_with = "seconds")]
    pub used: SystemTime,
    /// The file or directory.
    #[serde(skip)]
    pub path: PathBuf,
}

/// The content of a store.
#[derive(Debug, Clone, Serialize)]
pub struct Listing {
    /// Everything that takes space.
    pub entries: Vec<Entry>,
    /// The images that have a name.
    pub images: Vec<Ref>,
    /// Number of recorded actions.
    pub actions: usize,
}

impl Listing {
    /// Bytes of all entries together.
    pub fn size(&self) -> u64 {
        self.entries.iter().map(|e| e.size).sum()
    }
}

fn seconds<S: Serializer>(time: &SystemTime, s: S) -> Result<S::Ok, S::Error> {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    s.serialize_u64(since.as_secs())
}

impl Store {
    /// Lists everything that takes space, sorted by kind and name.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn list(&self) -> Result<Listing, StoreError> {
        let images = self.refs()?;
        let mut known: BTreeMap<Digest, (EntryKind, String)> = BTreeMap::new();
        for image in &images {
            let name = image
                .name
                .clone()
                .unwrap_or_else(|| image.digest.to_string());
            for (digest, what) in self.closure(&image.digest).blobs {
                let name = format!("{name}: {what}");
                known.entry(digest).or_insert((EntryKind::Image, name));
            }
        }
        let keys = self.keys()?;
        for key in &keys {
            let Some(action) = self.read_action(key) else {
                continue;
            };
            for (what, digest) in action.outputs {
                let name = format!("{}: {what}", action.step);
                known.entry(digest).or_insert((EntryKind::Output, name));
            }
        }
        let mut found = Vec::new();
        for (digest, path) in self.blobs()? {
            let Ok(metadata) = std::fs::metadata(&path) else {
                continue;
            };
            let file = self.names_of(&digest).into_iter().next();
            let (kind, name) = match (known.remove(&digest), file) {
                (Some((EntryKind::Image, name)), _) => (EntryKind::Image, name),
                (_, Some(file)) => (kind_of(&file), file),
                (Some(known), None) => known,
                (None, None) => (EntryKind::Unnamed, digest.to_string()),
            };
            found.push(Entry {
                kind,
                name,
                digest: Some(digest),
                size: metadata.len(),
                used: metadata.modified().unwrap_or(UNIX_EPOCH),
                path,
            });
        }
        for (folder, kind) in [
            ("parts", EntryKind::Part),
            ("logs", EntryKind::Log),
            ("indices", EntryKind::Index),
            ("tools", EntryKind::Tool),
            ("trees", EntryKind::Record),
        ] {
            for path in entries(&self.root().join(folder))? {
                let (size, used) = weight(&path);
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                // The note of a part lies beside it and is removed with it.
                if kind == EntryKind::Part && !name.ends_with(".part") {
                    continue;
                }
                found.push(Entry {
                    kind,
                    name: name.into_owned(),
                    digest: None,
                    size,
                    used,
                    path,
                });
            }
        }
        found.extend(self.trees()?);
        found.extend(self.object_folders()?);
        found.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        Ok(Listing {
            entries: found,
            images,
            actions: keys.len(),
        })
    }

    /// Every blob by the digest in its name, which may not be that of its bytes.
    pub(super) fn blobs(&self) -> Result<Vec<(Digest, PathBuf)>, StoreError> {
        let files = entries(&self.root().join("blobs/sha256"))?;
        let blob = |path: PathBuf| {
            let digest = Digest::from_hex(path.file_name()?.to_str()?).ok()?;
            Some((digest, path))
        };
        Ok(files.into_iter().filter_map(blob).collect())
    }
}

fn kind_of(file: &str) -> EntryKind {
    match file.rsplit('.').next() {
        Some("whl") => EntryKind::Wheel,
        Some("deb") => EntryKind::OsPackage,
        Some("gz" | "zip" | "bz2" | "tgz") => EntryKind::Source,
        _ => EntryKind::Output,
    }
}
