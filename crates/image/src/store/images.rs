//! Images of the store by name: entries of `index.json`, and the blobs that they reference.
//!
//! Entries of other programs are kept. Every change is made under a lock and is atomic.

use super::error::StoreError;
use super::files::write_atomically;
use super::handle::Store;
use serde::Serialize;
use serde_json::{Value, json};
use stackforge_types::Digest;
use stackforge_types::reference::canonical;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;

pub(super) const REF_NAME: &str = "org.opencontainers.image.ref.name";
const FULL_NAME: &str = "io.containerd.image.name";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Most bytes of an index, a manifest or a configuration.
const MOST_JSON: u64 = 16 << 20;
/// Longest name of an image in bytes: a name of 255, a tag of 128, and the suffix of older images.
const LONGEST_NAME: usize = 400;
/// Most levels of nested indexes that are followed.
const DEEPEST: usize = 4;

/// An entry of `index.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ref {
    /// `None` for an entry without a name.
    pub name: Option<String>,
    /// Digest of the image's manifest or index.
    pub digest: Digest,
}

/// The blobs that an entry references, each with its role.
#[derive(Debug, Default)]
pub(super) struct Closure {
    pub blobs: BTreeMap<Digest, &'static str>,
    /// Referenced blobs that are missing in the store.
    pub missing: Vec<Digest>,
}

impl Store {
    /// Reads the image index.
    pub(super) fn index(&self) -> Result<Value, StoreError> {
        let path = self.root().join("index.json");
        if !path.exists() {
            return Ok(json!({ "schemaVersion": 2, "manifests": [] }));
        }
        let why = |why: String| StoreError::Index {
            path: path.clone(),
            why,
        };
        let text = self.index_text()?;
        let index: Value = serde_json::from_slice(&text).map_err(|e| why(e.to_string()))?;
        if index["manifests"].is_array() {
            Ok(index)
        } else {
            Err(why("it has no list of manifests".to_owned()))
        }
    }

    /// Reads the bytes of `index.json`, up to the limit.
    pub(super) fn index_text(&self) -> Result<Vec<u8>, StoreError> {
        let path = self.root().join("index.json");
        let mut text = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(MOST_JSON).read_to_end(&mut text))
            .map_err(|e| StoreError::at("read", &path, e))?;
        Ok(text)
    }

    /// Changes the entries of `index.json` under its lock.
    pub(super) fn change_index(
        &self,
        change: impl FnOnce(&mut Vec<Value>),
    ) -> Result<(), StoreError> {
        self.prepare()?;
        let _lock = self.index_lock()?;
        let mut index = self.index()?;
        if let Some(entries) = index["manifests"].as_array_mut() {
            change(entries);
        }
        let path = self.root().join("index.json");
        let text = index.to_string();
        if text.len() as u64 >= MOST_JSON {
            let why = format!("it would have {} bytes, more than are read", text.len());
            return Err(StoreError::Index { path, why });
        }
        write_atomically(&path, text.as_bytes()).map_err(|e| StoreError::at("write", &path, e))
    }

    /// Gives the image with that manifest a name; the name is taken from the image that had it before.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if the manifest is missing, [`StoreError::Name`] for an invalid name, or if
    /// the store cannot be written.
    pub fn tag(&self, name: &str, manifest: &Digest) -> Result<(), StoreError> {
        self.tag_all(&[(name.to_owned(), manifest.clone())])
    }

    /// Names several images at once. Nothing is written if all have their names already.
    ///
    /// # Errors
    /// [`StoreError::Name`] for a name that is empty, longer than 400 bytes or has control characters,
    /// [`StoreError::Missing`] for an incomplete image. Then no name is given.
    pub fn tag_all(&self, images: &[(String, Digest)]) -> Result<(), StoreError> {
        // Many names may belong to few images.
        let mut entries = BTreeMap::new();
        let mut new = Vec::new();
        for (name, manifest) in images {
            if !is_name(name) {
                return Err(StoreError::Name(name.escape_debug().take(120).collect()));
            }
            let mut entry = match entries.get(manifest) {
                Some(entry) => Value::clone(entry),
                None => self.entry(manifest)?,
            };
            entries.entry(manifest).or_insert_with(|| entry.clone());
            entry["annotations"] = annotations(name);
            new.push(entry);
        }
        let index = self.index()?;
        let existing = index["manifests"].as_array().into_iter().flatten();
        let existing: BTreeMap<&str, &Value> =
            existing.filter_map(|e| Some((name_of(e)?, e))).collect();
        let known = |entry| name_of(entry).and_then(|name| existing.get(name)) == Some(&entry);
        if new.iter().all(known) {
            return Ok(());
        }
        let names: BTreeSet<&str> = images.iter().map(|(name, _)| name.as_str()).collect();
        self.change_index(|entries| {
            entries.retain(|e| name_of(e).is_none_or(|name| !names.contains(name)));
            entries.extend(new);
        })
    }

    /// The index entry for a complete image with a name.
    pub(super) fn named_entry(&self, name: &str, manifest: &Digest) -> Result<Value, StoreError> {
        let mut entry = self.entry(manifest)?;
        entry["annotations"] = annotations(name);
        Ok(entry)
    }

    /// The index entry of an image, without a name.
    fn entry(&self, manifest: &Digest) -> Result<Value, StoreError> {
        let closure = self.closure(manifest);
        if let Some(gone) = closure.missing.first() {
            return Err(StoreError::Missing(gone.clone()));
        }
        self.lease(closure.blobs.keys())?;
        let document = self.read_json(manifest);
        let document = document.ok_or_else(|| StoreError::Missing(manifest.clone()))?;
        let media_type = document["mediaType"].as_str().unwrap_or(MANIFEST);
        let path = self.blob_path(manifest);
        let size = std::fs::metadata(&path).map_err(|e| StoreError::at("read", &path, e))?;
        let mut entry = json!({
            "mediaType": media_type,
            "digest": manifest,
            "size": size.len(),
        });
        if let Some(kind) = document.get("artifactType") {
            entry["artifactType"] = kind.clone();
        }
        let config = digest(&document["config"]).and_then(|d| self.read_json(&d));
        if let Some(config) =
            config.filter(|c| c["os"].is_string() && c["architecture"].is_string())
        {
            entry["platform"] =
                json!({ "os": config["os"], "architecture": config["architecture"] });
        }
        Ok(entry)
    }

    /// Removes a name; the image's blobs stay until they are collected.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn untag(&self, name: &str) -> Result<(), StoreError> {
        self.change_index(|entries| entries.retain(|e| name_of(e) != Some(name)))
    }

    /// Removes names from images other than `id`, the digest of their configuration or manifest.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn untag_others(&self, names: &[String], id: &str) -> Result<(), StoreError> {
        let is = |entry: &Value| {
            let manifest = digest(entry);
            let config = manifest
                .as_ref()
                .and_then(|manifest| self.read_json(manifest));
            let config = config.and_then(|manifest| digest(&manifest["config"]));
            [manifest, config]
                .into_iter()
                .flatten()
                .any(|d| d.to_string() == id)
        };
        let named =
            |entry: &Value| name_of(entry).is_some_and(|name| names.iter().any(|n| n == name));
        let other = |entry: &Value| named(entry) && !is(entry);
        let index = self.index()?;
        if index["manifests"]
            .as_array()
            .into_iter()
            .flatten()
            .any(other)
        {
            self.change_index(|entries| entries.retain(|entry| !other(entry)))?;
        }
        Ok(())
    }

    /// Lists the images that have a name or are kept without one, in the order of the index.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn refs(&self) -> Result<Vec<Ref>, StoreError> {
        let index = self.index()?;
        let entries = index["manifests"].as_array().cloned().unwrap_or_default();
        let refs = entries.iter().filter_map(|entry| {
            Some(Ref {
                name: name_of(entry).map(str::to_owned),
                digest: digest(entry)?,
            })
        });
        Ok(refs.collect())
    }

    /// Collects every blob below a manifest or an image index.
    pub(super) fn closure(&self, top: &Digest) -> Closure {
        let mut closure = Closure::default();
        self.walk(top, &mut closure, 0);
        closure
    }

    fn walk(&self, at: &Digest, closure: &mut Closure, depth: usize) {
        if closure.blobs.contains_key(at) || depth > DEEPEST {
            return;
        }
        let kind = if depth == 0 {
            "manifest"
        } else {
            "of an index"
        };
        closure.blobs.insert(at.clone(), kind);
        let Some(document) = self.read_json(at) else {
            closure.missing.push(at.clone());
            return;
        };
        let lists = [("layers", "layer"), ("blobs", "layer")];
        let parts = lists.iter().flat_map(|(list, kind)| {
            let parts = document[*list].as_array().into_iter().flatten();
            parts.map(move |part| (part, *kind))
        });
        for (part, kind) in parts.chain([(&document["config"], "configuration")]) {
            let Some(digest) = digest(part) else { continue };
            if !self.blob_path(&digest).is_file() {
                closure.missing.push(digest.clone());
            }
            closure.blobs.entry(digest).or_insert(kind);
        }
        for below in document["manifests"].as_array().into_iter().flatten() {
            if let Some(digest) = digest(below) {
                self.walk(&digest, closure, depth + 1);
            }
        }
    }

    /// Parses a small JSON blob. `None` if it is missing or invalid.
    pub(super) fn read_json(&self, digest: &Digest) -> Option<Value> {
        let file = File::open(self.blob_path(digest)).ok()?;
        let mut text = Vec::new();
        file.take(MOST_JSON).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// Whether an image may have this name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.contains(char::is_control)
}

/// Annotations of an image's index entry: the name as given, and its full form for containerd where there is
/// one. The name of an older image (`NAME~1`) is not a reference.
fn annotations(name: &str) -> Value {
    let mut annotations = json!({ REF_NAME: name });
    if let Some(full) = canonical(name) {
        annotations[FULL_NAME] = full.into();
    }
    annotations
}

pub(super) fn name_of(entry: &Value) -> Option<&str> {
    entry["annotations"][REF_NAME].as_str()
}

pub(super) fn digest(descriptor: &Value) -> Option<Digest> {
    descriptor["digest"].as_str()?.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Adds a small image to the store; returns the digests of its manifest, configuration and layer.
    pub(crate) fn image(store: &Store, layer: &[u8]) -> [Digest; 3] {
        let layer = store.put(layer, None).unwrap();
        let config = json!({
            "os": "linux", "architecture": "arm64",
            "rootfs": { "type": "layers", "diff_ids": [layer.digest] },
        });
        let config = store.put(config.to_string().as_bytes(), None).unwrap();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": config.digest, "size": config.size,
            },
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": layer.digest, "size": layer.size,
            }],
        });
        let manifest = store.put(manifest.to_string().as_bytes(), None).unwrap();
        [manifest.digest, config.digest, layer.digest]
    }

    #[test]
    fn a_name_stands_for_one_image() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let [one, _, layer] = image(&store, b"one");
        let [two, two_config, _] = image(&store, b"two");
        store.tag("a:1", &one).unwrap();
        store.tag("b", &one).unwrap();
        store.tag("a:1", &two).unwrap();
        let named = |name: &str, digest: &Digest| Ref {
            name: Some(name.to_owned()),
            digest: digest.clone(),
        };
        assert_eq!(
            store.refs().unwrap(),
            [named("b", &one), named("a:1", &two)]
        );
        assert_eq!(
            store.index().unwrap()["manifests"][0]["platform"]["architecture"],
            "arm64"
        );
        store
            .untag_others(&["a:1".to_owned()], &two.to_string())
            .unwrap();
        let id = two_config.to_string();
        store.untag_others(&["a:1".to_owned()], &id).unwrap();
        assert_eq!(store.refs().unwrap().len(), 2, "it is that image");
        store
            .untag_others(&["b".to_owned()], &two.to_string())
            .unwrap();
        assert_eq!(store.refs().unwrap(), [named("a:1", &two)]);
        std::fs::remove_file(store.blob_path(&layer)).unwrap();
        assert!(matches!(store.tag("b", &one), Err(StoreError::Missing(d)) if d == layer));
    }

    #[test]
    fn an_index_that_is_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        store.dir("tmp").unwrap();
        for text in ["", "[]", "{}"] {
            std::fs::write(dir.path().join("index.json"), text).unwrap();
            assert!(
                matches!(store.refs(), Err(StoreError::Index { .. })),
                "{text}"
            );
        }
    }
}
