//! Imports an exported cache, or any OCI image layout, into the store, and verifies each blob on the way.
//!
//! A blob is verified by its digest, whatever its source. What a record states about blobs (that a step made
//! this layer, that an image was validated, that a wheel has this name) is trusted only if a key that the
//! user trusts signed it, because builds use the outputs that the store's actions name.

use super::error::StoreError;
use super::export::{RECORD, REF, Record, signature, statement};
use super::files::entries;
use super::handle::{OnProgress, Store};
use super::images::{REF_NAME, digest};
use serde::Serialize;
use serde_json::Value;
use stackforge_binary::tar::{MemberKind, Reader};
use stackforge_types::{Digest, Platform};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

const MOST_JSON: u64 = 64 << 20;
const PIECE: usize = 256 << 10;

/// What an import added.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// Number of blobs that were new.
    pub blobs: usize,
    /// Bytes of blobs that were new.
    pub bytes: u64,
    /// Number of actions.
    pub actions: usize,
    /// Number of image names.
    pub images: usize,
    /// Number of objects of compiles that were new.
    pub objects: usize,
    /// Number of actions in a record without a trusted signature. Their steps run again.
    pub untrusted: usize,
    /// Image names of such an export that other images of this store have; they stay as they are.
    pub kept_names: Vec<String>,
}

/// Whether a key that the user trusts made this signature of these bytes.
pub type HasSigned<'a> = &'a dyn Fn(&[u8], &[u8]) -> bool;

/// State of a running import.
struct Import<'a> {
    store: &'a Store,
    from: &'a Path,
    trusted: Option<HasSigned<'a>>,
    on_progress: OnProgress<'a>,
    total: u64,
    read: u64,
    came: BTreeSet<Digest>,
    index: Option<Vec<u8>>,
    out: Imported,
}

impl Store {
    /// Imports the output of [`Store::export`], a directory or an archive. A blob with another digest than
    /// its name ends the import; blobs imported before stay. Actions and names of files are taken only from
    /// a signed export.
    ///
    /// # Errors
    /// [`StoreError::Unsigned`] if a key is given that did not sign the export.
    pub fn import(
        &self,
        from: &Path,
        trusted: Option<HasSigned<'_>>,
        on_progress: OnProgress<'_>,
    ) -> Result<Imported, StoreError> {
        let read = |e| StoreError::at("read", from, e);
        let metadata = std::fs::metadata(from).map_err(read)?;
        let mut import = Import {
            store: self,
            from,
            trusted,
            on_progress,
            total: super::files::weight(from).0,
            read: 0,
            came: BTreeSet::new(),
            index: None,
            out: Imported::default(),
        };
        if metadata.is_dir() {
            import.directory()?
        } else {
            import.archive(File::open(from).map_err(read)?)?
        }
        import.finish()
    }
}

impl Import<'_> {
    fn foreign(&self, why: impl Into<String>) -> StoreError {
        StoreError::Foreign {
            path: self.from.to_owned(),
            why: why.into(),
        }
    }

    fn directory(&mut self) -> Result<(), StoreError> {
        for name in ["oci-layout", "index.json"] {
            let path = self.from.join(name);
            let file = path.is_file().then(|| File::open(&path).ok()).flatten();
            let file = file.ok_or_else(|| self.foreign(format!("it has no `{name}`")))?;
            self.take(name, file)?;
        }
        for path in entries(&self.from.join("blobs/sha256"))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // Reading a pipe could block, and a device may have no end.
            if !path.is_file() {
                return Err(self.foreign(format!("`{name}` is not a regular file")));
            }
            let file = File::open(&path).map_err(|e| StoreError::at("read", &path, e))?;
            self.take(&format!("blobs/sha256/{name}"), file)?;
        }
        Ok(())
    }

    fn archive(&mut self, file: File) -> Result<(), StoreError> {
        let mut reader = Reader::new(BufReader::with_capacity(PIECE, file));
        loop {
            let entry = reader.next();
            let entry = entry.map_err(|e| self.foreign(format!("it is not an archive: {e}")))?;
            let Some(mut entry) = entry else {
                return Ok(());
            };
            if entry.header.kind == MemberKind::File {
                let name = entry.header.path.clone();
                self.take(&name, &mut entry)?;
            }
        }
    }

    /// Imports one file of the layout.
    fn take(&mut self, name: &str, mut content: impl Read) -> Result<(), StoreError> {
        if name == "index.json" {
            if self.index.is_some() {
                // Other programs might read the other one.
                return Err(self.foreign("it has two of `index.json`"));
            }
            let mut text = Vec::new();
            content
                .take(MOST_JSON)
                .read_to_end(&mut text)
                .map_err(|e| StoreError::at("read", self.from, e))?;
            self.index = Some(text);
            return Ok(());
        }
        let Some(hex) = name.strip_prefix("blobs/sha256/") else {
            return Ok(());
        };
        let Ok(digest) = Digest::from_hex(hex) else {
            return Ok(());
        };
        let known = self.store.blob(&digest).is_some();
        let mut writer = if known {
            None
        } else {
            Some(self.store.writer()?)
        };
        let mut piece = vec![0; PIECE];
        loop {
            let count = match content.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.foreign(format!("`{name}`: {e}"))),
            };
            if let Some(writer) = &mut writer {
                writer.append(&piece[..count])?;
                self.out.bytes += count as u64;
            }
            self.read += count as u64;
            if !(self.on_progress)(self.read.min(self.total), self.total) {
                return Err(StoreError::Interrupted);
            }
        }
        if let Some(writer) = writer {
            writer.commit(Some(&digest))?;
            self.out.blobs += 1;
        }
        self.came.insert(digest);
        Ok(())
    }

    /// Applies what the index states about the imported blobs.
    fn finish(mut self) -> Result<Imported, StoreError> {
        let text = self.index.take();
        let text = text.ok_or_else(|| self.foreign("it has no `index.json`"))?;
        let index: Value = serde_json::from_slice(&text)
            .map_err(|e| self.foreign(format!("its `index.json` is not JSON: {e}")))?;
        let entries = index["manifests"].as_array();
        let entries = entries.ok_or_else(|| self.foreign("its `index.json` has no manifests"))?;
        let (records, images): (Vec<&Value>, Vec<&Value>) = (entries.iter())
            .filter(|entry| entry["annotations"][REF_NAME].is_string())
            .partition(|entry| entry["annotations"][REF_NAME] == REF);
        if records.len() > 1 {
            // A signature is of one of them.
            return Err(self.foreign(format!("it has {} records", records.len())));
        }
        let signed = self.is_signed(records.first().copied())?;
        let record = match records.first().and_then(|entry| digest(entry)) {
            Some(top) => self.record(&top)?,
            None => Record::default(),
        };
        let images = images.into_iter().filter_map(|entry| {
            let name = entry["annotations"][REF_NAME].as_str()?;
            Some((name.to_owned(), digest(entry)?))
        });
        let mut images: Vec<(String, Digest)> = images.collect();
        if signed {
            let is_recorded = |(name, top): &(String, Digest)| record.images.get(name) == Some(top);
            if !images.iter().all(is_recorded) {
                return Err(StoreError::Unsigned(self.from.to_owned()));
            }
            self.apply(&record)?;
        } else {
            self.out.untrusted = record.actions.len();
            let here = self.store.refs()?;
            let is_moved = |(name, top): &(String, Digest)| {
                let mut here = here.iter();
                here.any(|image| image.name.as_ref() == Some(name) && image.digest != *top)
            };
            let (moved, taken): (Vec<_>, Vec<_>) = images.into_iter().partition(is_moved);
            images = taken;
            self.out.kept_names = moved.into_iter().map(|(name, _)| name).collect();
        }
        match self.store.tag_all(&images) {
            Ok(()) => self.out.images = images.len(),
            Err(StoreError::Missing(gone)) => {
                return Err(self.foreign(format!("one of its images lacks blob {gone}")));
            }
            Err(e) => return Err(e),
        }
        Ok(self.out)
    }

    /// Whether the record is signed by the user's key, if one was given.
    fn is_signed(&self, record: Option<&Value>) -> Result<bool, StoreError> {
        let Some(has_signed) = self.trusted else {
            return Ok(false);
        };
        let signed = record.is_some_and(|entry| {
            let parts = digest(entry).zip(signature(entry));
            parts.is_some_and(|(top, signature)| has_signed(&statement(&top), &signature))
        });
        if signed {
            Ok(true)
        } else {
            Err(StoreError::Unsigned(self.from.to_owned()))
        }
    }

    /// Reads the record that a manifest names.
    fn record(&self, top: &Digest) -> Result<Record, StoreError> {
        let manifest = self.store.read_json(top);
        let manifest =
            manifest.ok_or_else(|| self.foreign("it lacks the manifest of its record"))?;
        let layers = manifest["layers"].as_array();
        let layer = layers.and_then(|l| l.iter().find(|l| l["mediaType"] == RECORD));
        let record = layer
            .and_then(digest)
            .filter(|d| self.came.contains(d))
            .and_then(|d| File::open(self.store.blob_path(&d)).ok())
            .ok_or_else(|| self.foreign("it has no record"))?;
        let mut text = Vec::new();
        record
            .take(MOST_JSON)
            .read_to_end(&mut text)
            .map_err(|e| StoreError::at("read the record of", self.from, e))?;
        let record: Record = serde_json::from_slice(&text)
            .map_err(|e| self.foreign(format!("its record cannot be read: {e}")))?;
        if record.version != 1 {
            return Err(self.foreign(format!("its record has format {}", record.version)));
        }
        Ok(record)
    }

    /// Imports actions and names, skipping those whose blobs are missing.
    fn apply(&mut self, record: &Record) -> Result<(), StoreError> {
        for (digest, names) in &record.names {
            for name in names.iter().filter(|_| self.came.contains(digest)) {
                self.store.named(digest, name)?;
            }
        }
        for (key, action) in &record.actions {
            if self.store.has(key) {
                continue;
            }
            match self.store.record(key, action) {
                Ok(()) => self.out.actions += 1,
                Err(StoreError::Missing(_)) => {}
                Err(e) => return Err(e),
            }
        }
        for (name, digest) in &record.objects {
            if self.came.contains(digest) {
                self.objects(name, digest)?;
            }
        }
        Ok(())
    }

    /// Adds the objects of a library to those that are here, and removes the blob that brought them.
    fn objects(&mut self, name: &str, digest: &Digest) -> Result<(), StoreError> {
        let of = |(arch, library)| {
            let platform = Platform::ALL.into_iter().find(|p| p.arch() == arch)?;
            Some((platform, library))
        };
        let Some((platform, library)) = name.split_once('/').and_then(of) else {
            let name = name.escape_debug();
            return Err(self.foreign(format!("its record has objects of `{name}`")));
        };
        // Another process compiles the library: it keeps what it has.
        let Some(folder) = self.store.objects(platform, library)? else {
            return Ok(());
        };
        let path = self.store.blob_path(digest);
        let tar = File::open(&path).map_err(|e| StoreError::at("read", &path, e))?;
        let mut here = folder.names()?;
        let before = here.len();
        folder.unpack(tar, |_| true, &mut here)?;
        self.out.objects += here.len() - before;
        super::files::remove(&path)
    }
}
