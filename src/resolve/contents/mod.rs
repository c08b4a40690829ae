//! What chosen distributions hold: the objects and the modules of wheels, and the modules of sources.
//!
//! In: locked files and where they are. Out: [`Contents`] by the distribution's name. Metadata do not say which libraries
//! an object needs, or what a file of Python imports; the files do. They are read at their places in a wheel, by ranges,
//! once: what was read of a digest is kept in the store. No digest vouches for a range, so a server that lies can have OS
//! packages, or distributions that the catalog names for a module, added or left out, and nothing else: they come from
//! the base's own archive and the index, and a build's audit reads the verified wheels. Never: runs anything, fetches a
//! wheel, or fails, for the audit and the validation of a build name what is missing as well.

mod imports;
mod members;
mod modules;
mod objects;
mod sdist;
mod wheel;

use super::answer::Files as Addresses;
use futures_util::stream::{self, StreamExt as _};
use members::Place;
pub(crate) use modules::Modules;
pub(crate) use objects::Objects;
use serde::{Deserialize, Serialize};
use stackforge_image::store::Store;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::lock::PythonFile;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::Fetcher;
use stackforge_types::Digest;
use stackforge_types::wheel::WheelName;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use wheel::Bounds;

/// Changed when more, or something else, is read.
const FORMAT: u32 = 5;
/// Files that are read in parallel.
const AT_A_TIME: usize = 6;

/// What was read of a distribution's file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contents {
    pub objects: Objects,
    pub modules: Modules,
}

/// [`Contents`] by the distribution's normalized name.
pub(crate) type AllContents<'a> = BTreeMap<&'a str, Contents>;

/// Reads files of distributions.
pub(crate) struct Reader<'a> {
    pub catalog: &'a Catalog,
    /// The store's root.
    pub cache: &'a Path,
    pub offline: bool,
}

impl Reader<'_> {
    /// Returns what the files hold, without those that cannot be read. Wheels without objects are not read if the catalog
    /// describes their library: such a library requires what it imports.
    pub async fn contents<'f>(
        &self,
        files: impl IntoIterator<Item = &'f PythonFile>,
        addresses: &Addresses,
        progress: &mut dyn FnMut(&str),
    ) -> AllContents<'f> {
        let mut all = AllContents::new();
        let mut unread = Vec::new();
        for file in files {
            match self.kept(&file.sha256) {
                Some(contents) => {
                    all.insert(&file.name, contents);
                }
                None if has_objects(file) || !self.is_known(&file.name) => unread.push(file),
                None => {}
            }
        }
        if !unread.is_empty() && !self.offline {
            progress(&match unread.len() {
                1 => format!("reading what the files of {} need", unread[0].name),
                n => format!("reading what the files of {n} distributions need"),
            });
            for (file, contents) in self.read(&unread, addresses).await {
                if let Err(error) = self.keep(&file.sha256, &contents) {
                    tracing::debug!(%error, "what was read of {} is not kept", file.file);
                }
                all.insert(&file.name, contents);
            }
        }
        all
    }

    async fn read<'f>(
        &self,
        files: &[&'f PythonFile],
        addresses: &Addresses,
    ) -> Vec<(&'f PythonFile, Contents)> {
        let Ok(fetcher) = Fetcher::new(RetryPolicy::default()) else {
            return Vec::new();
        };
        let store = Store::open(Some(self.cache)).ok();
        let read = stream::iter(files).map(|file| {
            let (fetcher, store) = (&fetcher, store.as_ref());
            async move {
                let local = store.and_then(|store| store.blob(&file.sha256));
                match self.read_one(file, local, addresses, fetcher).await {
                    Ok(contents) => Some((*file, contents)),
                    // A source that is kept from an old lock was not fetched; its build names what it lacks.
                    Err(why) if !file.file.ends_with(".whl") => {
                        tracing::debug!("{} could not be read: {why}", file.file);
                        None
                    }
                    Err(why) => {
                        tracing::warn!(
                            "what {} needs could not be read ({why}); the audit and the validation of a build will name it",
                            file.file
                        );
                        None
                    }
                }
            }
        });
        let read: Vec<_> = read.buffer_unordered(AT_A_TIME).collect().await;
        read.into_iter().flatten().collect()
    }

    async fn read_one(
        &self,
        file: &PythonFile,
        local: Option<PathBuf>,
        addresses: &Addresses,
        fetcher: &Fetcher,
    ) -> Result<Contents, String> {
        if !file.file.ends_with(".whl") {
            let path = local.ok_or("it was not fetched")?;
            let files = sdist::read(&file.file, &path).map_err(|e| e.to_string())?;
            return Ok(Contents {
                modules: files.modules(&file.name),
                ..Contents::default()
            });
        }
        let address = || addresses.address(&file.sha256).and_then(Place::at);
        let place = local.map(Place::Disk).or_else(address);
        let place = place.ok_or("it has no address")?;
        let bounds = if self.is_known(&file.name) {
            Bounds::KNOWN
        } else {
            Bounds::USUAL
        };
        let (objects, files) = wheel::read(&file.file, place, bounds, fetcher).await?;
        let modules = files.modules(&file.name);
        Ok(Contents { objects, modules })
    }

    /// Whether the catalog describes a distribution, or it is NVIDIA's: the objects of torch and CUDA are gigabytes.
    fn is_known(&self, name: &str) -> bool {
        let mut recipes = self.catalog.recipes.values();
        name.starts_with("nvidia-") || recipes.any(|recipe| recipe.distribution == name)
    }

    fn place(&self, sha256: &Digest) -> PathBuf {
        let folder = self.cache.join("indices/contents");
        folder.join(format!("{}.json", sha256.hex()))
    }

    /// Returns what was read before of the file with this digest.
    fn kept(&self, sha256: &Digest) -> Option<Contents> {
        let text = std::fs::read(self.place(sha256)).ok()?;
        let (format, contents): (u32, Contents) = serde_json::from_slice(&text).ok()?;
        (format == FORMAT).then_some(contents)
    }

    /// Keeps what was read. If that fails, the file is read again by the next `lock`.
    fn keep(&self, sha256: &Digest, contents: &Contents) -> io::Result<()> {
        let place = self.place(sha256);
        let folder = place.parent().unwrap_or(self.cache);
        std::fs::create_dir_all(folder)?;
        let part = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&part, &(FORMAT, contents))?;
        part.persist(&place)?;
        Ok(())
    }
}

/// Whether a file is a wheel for one platform, as nearly all with objects are.
pub(crate) fn has_objects(file: &PythonFile) -> bool {
    let name: Option<WheelName> = file.file.parse().ok();
    name.is_some_and(|name| !name.is_for_any_platform())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_kept_by_digest() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::default();
        let reader = Reader {
            catalog: &catalog,
            cache: dir.path(),
            offline: true,
        };
        let digest = Digest::of(b"a wheel");
        let mut contents = Contents::default();
        let objects = &mut contents.objects;
        objects.add("a/b.so", vec!["libc.so.6".into()]);
        objects.name("c/d.so.1");
        objects.metadata("Requires-Dist: x ; extra == 'cuda'\n");
        contents.modules.wanted.insert("six".to_owned());
        reader.keep(&digest, &contents).unwrap();
        assert_eq!(reader.kept(&digest).unwrap(), contents);
        assert!(reader.kept(&Digest::of(b"another")).is_none());
        std::fs::write(reader.place(&digest), "[0, {}]").unwrap();
        assert!(reader.kept(&digest).is_none());
    }
}
