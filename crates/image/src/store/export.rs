//! Exports the cache, or what one stack needs of it, as an OCI image layout in a directory or a tar.
//!
//! Images keep their names. Everything else is listed in a manifest of its own, [`REF`], whose layers are
//! the blobs with their file names and whose first layer is the record: actions and names. So any OCI tool
//! can copy it, also to a registry.

use super::action::Action;
use super::error::StoreError;
use super::files::{remove, write_atomically};
use super::handle::{OnProgress, Store};
use super::images::{REF_NAME, digest};
use super::objects::ObjectFolder;
use super::place::LayoutLock;
use super::save::Save;
use base64::Engine as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stackforge_binary::tar::{Attributes, Format, Writer};
use stackforge_types::{Digest, Platform, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Name of the manifest that lists everything except images.
pub(super) const REF: &str = "stackforge-cache";
pub(super) const RECORD: &str = "application/vnd.stackforge.cache.record.v1+json";
const ARTIFACT: &str = "application/vnd.stackforge.cache.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const TITLE: &str = "org.opencontainers.image.title";
const PIECE: usize = 1 << 20;

/// Annotation of that manifest's entry in the index: a signature in base64.
const SIGNATURE: &str = "io.stackforge.cache.signature";

/// Signs a statement and returns the signature.
pub type Sign<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

/// The statement that an export's signature covers: the manifest names the record and all blobs by digest, and
/// the record names the images.
pub(super) fn statement(manifest: &Digest) -> Vec<u8> {
    format!("stackforge cache export\n{manifest}\n").into_bytes()
}

/// The signature in an entry of the index.
pub(super) fn signature(entry: &Value) -> Option<Vec<u8>> {
    let text = entry["annotations"][SIGNATURE].as_str()?;
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

/// What a record states about the blobs beside it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    pub version: u32,
    pub actions: BTreeMap<Digest, Action>,
    pub names: BTreeMap<Digest, Vec<String>>,
    /// The images by name. Records of before have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, Digest>,
    /// Tars of the objects of compiles, by `ARCH/LIBRARY`. Records of before have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objects: BTreeMap<String, Digest>,
}

/// The objects of libraries as blobs. They are in the store only while they are exported.
struct Packed<'a> {
    store: &'a Store,
    blobs: BTreeMap<String, Digest>,
    objects: usize,
    /// Held until the blobs are removed, so that nobody else packs or changes them meanwhile.
    folders: Vec<ObjectFolder>,
}

impl Drop for Packed<'_> {
    fn drop(&mut self) {
        for digest in self.blobs.values() {
            let _ = remove(&self.store.blob_path(digest));
        }
    }
}

/// What to export.
#[derive(Debug, Default, Clone)]
pub struct Selection {
    /// Keys of steps, which are exported with their outputs.
    pub keys: BTreeSet<Digest>,
    /// Blobs, with everything that they reference.
    pub blobs: BTreeSet<Digest>,
    /// Names of images.
    pub images: BTreeSet<String>,
    /// Libraries whose objects are exported.
    pub objects: BTreeSet<(Platform, String)>,
}

/// What an export wrote.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// Number of blobs.
    pub blobs: usize,
    /// Bytes of the blobs.
    pub bytes: u64,
    /// Number of actions.
    pub actions: usize,
    /// Number of image names.
    pub images: usize,
    /// Number of objects of compiles.
    pub objects: usize,
    /// Libraries whose objects another process has, and that are left out.
    pub in_use: Vec<String>,
}

/// Destination of the layout's files.
enum Sink<'a> {
    Directory(&'a Path, LayoutLock),
    Archive(Box<Writer<io::BufWriter<Save>>>),
}

impl Store {
    /// Writes the selection, or everything without one, to `to`: a directory if it exists or the path ends
    /// in `/`, else a file. Every blob is verified while it is copied. A signature lets [`Store::import`]
    /// trust the actions.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] at the first damaged blob, [`StoreError::Inside`] if `to` is in the store, or
    /// if `to` cannot be written.
    pub fn export(
        &self,
        selection: Option<&Selection>,
        sign: Option<Sign<'_>>,
        to: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<Exported, StoreError> {
        let failed = |e| StoreError::at("write", to, e);
        self.outside(to)?;
        let (mut record, images, mut blobs) = self.selected(selection)?;
        let mut in_use = Vec::new();
        let packed = self.packed_objects(selection, &mut in_use)?;
        record.objects = packed.blobs.clone();
        blobs.extend(packed.blobs.values().cloned());
        self.lease(&blobs)?;
        let actions = record.actions.len();
        let mut cache = self.cache_manifest(&record, &images, &mut blobs)?;
        if let Some((sign, manifest)) = sign.zip(digest(&cache)) {
            let signature = sign(&statement(&manifest));
            let text = base64::engine::general_purpose::STANDARD.encode(signature);
            cache["annotations"][SIGNATURE] = text.into();
        }
        let mut entries: Vec<Value> = images.clone();
        entries.push(cache);
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": entries,
        });
        let mut out = Exported {
            actions,
            images: images.len(),
            objects: packed.objects,
            in_use,
            ..Exported::default()
        };
        let total = blobs
            .iter()
            .map(|d| std::fs::metadata(self.blob_path(d)).map_or(0, |m| m.len()))
            .sum();
        let directory = to.is_dir() || to.as_os_str().as_encoded_bytes().ends_with(b"/");
        let mut sink = Sink::open(to, directory).map_err(failed)?;
        sink.small("oci-layout", b"{\"imageLayoutVersion\":\"1.0.0\"}")
            .map_err(failed)?;
        for digest in &blobs {
            let source = self.blob_path(digest);
            let mut file = File::open(&source).map_err(|e| StoreError::at("read", &source, e))?;
            let size = file.metadata().map_err(failed)?.len();
            let mut content = Hashing {
                content: &mut file,
                hash: Sha256::new(),
                on_read: &mut |bytes| {
                    out.bytes += bytes;
                    on_progress(out.bytes, total)
                },
            };
            let name = format!("blobs/sha256/{}", digest.hex());
            sink.blob(&name, size, &mut content)
                .map_err(|e| match e.downcast::<StoreError>() {
                    Ok(stopped) => stopped,
                    Err(e) => failed(e),
                })?;
            let found = Digest::from_hash(&content.hash.finalize());
            if found != *digest {
                return Err(StoreError::Damaged {
                    digest: Box::new(digest.clone()),
                    found: Box::new(found),
                });
            }
            out.blobs += 1;
        }
        // Written last, so that an incomplete layout is not taken for a complete one.
        sink.sync().map_err(failed)?;
        sink.small("index.json", index.to_string().as_bytes())
            .map_err(failed)?;
        sink.finish().map_err(failed)?;
        Ok(out)
    }

    /// Makes a blob of the objects of each selected library.
    fn packed_objects(
        &self,
        selection: Option<&Selection>,
        in_use: &mut Vec<String>,
    ) -> Result<Packed<'_>, StoreError> {
        let mut out = Packed {
            store: self,
            blobs: BTreeMap::new(),
            objects: 0,
            folders: Vec::new(),
        };
        for (platform, library) in self.libraries_with_objects()? {
            let wanted = (platform, library);
            if selection.is_some_and(|s| !s.objects.contains(&wanted)) {
                continue;
            }
            let (platform, library) = wanted;
            let Some(folder) = self.open_objects(platform, &library)? else {
                in_use.push(library);
                continue;
            };
            let scratch = self.scratch()?;
            let path = scratch.path().join("objects.tar");
            let failed = |e| StoreError::at("write", &path, e);
            let packed = folder.pack(folder.names()?, File::create(&path).map_err(failed)?);
            let packed = packed.map_err(failed)?;
            if packed.is_empty() {
                continue;
            }
            let blob = self.put(File::open(&path).map_err(failed)?, None)?;
            out.objects += packed.len();
            let name = format!("{}/{library}", platform.arch());
            out.blobs.insert(name, blob.digest);
            out.folders.push(folder);
        }
        Ok(out)
    }

    /// The record, the entries of images, and the blobs of both.
    fn selected(
        &self,
        selection: Option<&Selection>,
    ) -> Result<(Record, Vec<Value>, BTreeSet<Digest>), StoreError> {
        let mut record = Record {
            version: 1,
            ..Record::default()
        };
        let mut blobs = BTreeSet::new();
        let index = self.index()?;
        let mut images = Vec::new();
        for entry in index["manifests"].as_array().into_iter().flatten() {
            let name = entry["annotations"][REF_NAME].as_str();
            let wanted = selection.is_none_or(|s| name.is_some_and(|n| s.images.contains(n)));
            let Some(top) = digest(entry).filter(|_| wanted && name != Some(REF)) else {
                continue;
            };
            let closure = self.closure(&top);
            if closure.missing.is_empty() {
                blobs.extend(closure.blobs.into_keys());
                if let Some(name) = name {
                    record.images.insert(name.to_owned(), top);
                }
                images.push(entry.clone());
            }
        }
        for key in self.keys()? {
            if !selection.is_none_or(|s| s.keys.contains(&key)) || !self.has(&key) {
                continue;
            }
            if let Some(action) = self.read_action(&key) {
                blobs.extend(action.outputs.values().cloned());
                record.actions.insert(key, action);
            }
        }
        for (digest, _) in self.blobs()? {
            let wanted = selection.is_none_or(|s| s.blobs.contains(&digest));
            // The manifest of an imported cache is not exported as a blob of this one.
            let names = self.names_of(&digest);
            if wanted && (selection.is_some() || !names.is_empty()) {
                blobs.insert(digest.clone());
            }
            if !names.is_empty() && blobs.contains(&digest) {
                record.names.insert(digest, names);
            }
        }
        Ok((record, images, blobs))
    }

    /// Builds the manifest for everything except images; returns its entry in the index.
    fn cache_manifest(
        &self,
        record: &Record,
        images: &[Value],
        blobs: &mut BTreeSet<Digest>,
    ) -> Result<Value, StoreError> {
        let of_images: BTreeSet<Digest> = images
            .iter()
            .filter_map(digest)
            .flat_map(|top| self.closure(&top).blobs.into_keys())
            .collect();
        let text = serde_json::to_vec(record)
            .map_err(|e| StoreError::at("write the record in", self.root(), io::Error::other(e)))?;
        let kept = self.put(&text[..], None)?;
        let empty = self.put(&b"{}"[..], None)?;
        let mut layers = vec![json!({
            "mediaType": RECORD, "digest": kept.digest, "size": kept.size,
        })];
        for digest in blobs.difference(&of_images) {
            let path = self.blob_path(digest);
            let metadata =
                std::fs::metadata(&path).map_err(|e| StoreError::at("read", &path, e))?;
            let mut layer = json!({
                "mediaType": "application/octet-stream", "digest": digest, "size": metadata.len(),
            });
            if let Some(name) = record.names.get(digest).and_then(|names| names.first()) {
                layer["annotations"] = json!({ TITLE: name });
            }
            layers.push(layer);
        }
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": ARTIFACT,
            "config": {
                "mediaType": "application/vnd.oci.empty.v1+json",
                "digest": empty.digest, "size": empty.size,
            },
            "layers": layers,
        });
        let manifest = self.put(manifest.to_string().as_bytes(), None)?;
        let entry = json!({
            "mediaType": MANIFEST, "digest": manifest.digest, "size": manifest.size,
            "artifactType": ARTIFACT, "annotations": { REF_NAME: REF },
        });
        blobs.extend([kept.digest, empty.digest, manifest.digest]);
        Ok(entry)
    }
}

impl<'a> Sink<'a> {
    fn open(to: &'a Path, directory: bool) -> io::Result<Self> {
        if directory {
            std::fs::create_dir_all(to.join("blobs/sha256"))?;
            let held = LayoutLock::hold(to)?;
            held.sweep();
            return Ok(Self::Directory(to, held));
        }
        let writer = io::BufWriter::with_capacity(PIECE, Save::begin(to)?);
        Ok(Self::Archive(Box::new(Writer::new(
            Format::UstarOldFiles,
            writer,
        ))))
    }

    /// Syncs the files written so far to disk, for a directory.
    fn sync(&self) -> io::Result<()> {
        match self {
            Self::Directory(_, held) => held.sync(),
            Self::Archive(_) => Ok(()),
        }
    }

    fn small(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        match self {
            Self::Directory(path, _) => write_atomically(&path.join(name), content),
            Self::Archive(_) => self.blob(name, content.len() as u64, &mut &*content),
        }
    }

    fn blob(&mut self, name: &str, size: u64, content: &mut dyn Read) -> io::Result<()> {
        match self {
            Self::Directory(root, _) => {
                let path = root.join(name);
                let mut file = tempfile::Builder::new()
                    .prefix(".tmp-")
                    .tempfile_in(path.parent().unwrap_or(root))?;
                let mut piece = vec![0; PIECE];
                loop {
                    match content.read(&mut piece)? {
                        0 => break,
                        count => file.write_all(&piece[..count])?,
                    }
                }
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
                file.as_file().set_permissions(mode)?;
                file.persist(path).map_err(|e| e.error)?;
                Ok(())
            }
            Self::Archive(archive) => archive.file(name, Attributes::new(0o644), size, content),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Directory(..) => Ok(()),
            Self::Archive(archive) => {
                let file = archive.finish()?.into_inner();
                file.map_err(io::IntoInnerError::into_error)?.finish()
            }
        }
    }
}

/// Hashes the bytes that are read; fails with [`StoreError::Interrupted`] once the caller cancels.
struct Hashing<'a> {
    content: &'a mut dyn Read,
    hash: Sha256,
    on_read: &'a mut dyn FnMut(u64) -> bool,
}

impl Read for Hashing<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(piece)?;
        self.hash.update(&piece[..count]);
        if (self.on_read)(count as u64) {
            Ok(count)
        } else {
            Err(io::Error::other(StoreError::Interrupted))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest was computed before the writer was shared.
    #[test]
    fn an_archive_keeps_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(&dir.path().join("store"))).unwrap();
        let blob = store.put(&b"one"[..], None).unwrap();
        let selection = Selection {
            blobs: BTreeSet::from([blob.digest]),
            ..Selection::default()
        };
        let to = dir.path().join("archive.tar");
        let exported = store.export(Some(&selection), None, &to, &|_, _| true);
        assert_eq!(exported.unwrap().blobs, 4);
        let bytes = std::fs::read(&to).unwrap();
        assert_eq!(
            Digest::of(&bytes).to_string(),
            "sha256:425762ed8c96a3c78d7f2c74157a80c1f6a64f70cb04b3cdeb45e5cf9b6034ee"
        );
    }
}
