//! Makes layers, each once, and stores them by a key over everything that decides their bytes.
//!
//! In: a layer's inputs by name, and a function that writes it. Out: a [`Layer`] whose blob is in the
//! store. A blob gets its name only after it is complete and synced, so a killed run leaves no partial one.

use super::super::base::io as failed_at;
use super::super::{BuildError, BuildEvent, Options, StepResult};
use super::{FORMAT, Native};
use crate::plan::Plan;
use stackforge_image::Layer;
use stackforge_image::assemble::Assembled;
use stackforge_image::oci;
use stackforge_image::pack::{self, PackError};
use stackforge_image::store::Action;
use stackforge_types::Cancel;
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// The inputs that decide a layer's bytes, by name.
pub(super) type Inputs = BTreeMap<String, String>;

pub(super) struct Maker<'a, 'on> {
    pub plan: &'a Plan,
    pub native: &'a Native,
    pub options: &'a Options<'a>,
    pub cancel: &'a Cancel,
    pub on: &'on mut (dyn FnMut(BuildEvent) + Send),
    pub steps: Vec<StepResult>,
    pub threads: usize,
}

/// A small file, folder or symbolic link of a layer, by its absolute path.
pub(super) enum Member {
    Folder(String),
    File(String, Vec<u8>),
    Link(String, String),
}

impl Member {
    pub fn file(path: &str, content: impl Into<Vec<u8>>) -> Self {
        Self::File(path.to_owned(), content.into())
    }
}

impl<'a, 'on> Maker<'a, 'on> {
    pub fn new(
        plan: &'a Plan,
        native: &'a Native,
        options: &'a Options<'a>,
        cancel: &'a Cancel,
        on: &'on mut (dyn FnMut(BuildEvent) + Send),
    ) -> Result<Self, BuildError> {
        Ok(Self {
            plan,
            native,
            options,
            cancel,
            on,
            steps: Vec::new(),
            threads: std::thread::available_parallelism().map_or(1, Into::into),
        })
    }

    pub fn step(&mut self, id: &str, cached: bool, start: Instant) {
        let seconds = if cached {
            0.0
        } else {
            start.elapsed().as_secs_f64()
        };
        let id = id.to_owned();
        self.steps.push(StepResult {
            id,
            cached,
            seconds,
        });
    }

    /// Returns the layer of `inputs` from the store, or calls `make` to write its blob.
    pub fn layer(
        &mut self,
        id: &str,
        inputs: &Inputs,
        make: impl FnOnce(&mut Self, &File) -> Result<Layer, BuildError>,
    ) -> Result<Layer, BuildError> {
        let start = Instant::now();
        let key = layer_key(inputs);
        if !self.options.no_cache
            && let Some(layer) = self.kept(&key)
        {
            self.step(id, true, start);
            return Ok(layer);
        }
        if self.cancel.is_cancelled() {
            return Err(BuildError::Stopped);
        }
        let temp = self.options.store.temp()?;
        let layer = make(self, temp.file())?;
        temp.commit(layer.digest.clone())?;
        let action = Action {
            step: id.to_owned(),
            outputs: [("layer".to_owned(), layer.digest.clone())].into(),
            seconds: start.elapsed().as_secs_f64(),
            made: serde_json::to_value(&layer).ok(),
            ..Action::default()
        };
        self.options.store.record(&key, &action)?;
        self.step(id, false, start);
        Ok(layer)
    }

    /// Returns the layer of an earlier run, if the store has its blob.
    fn kept(&self, key: &Digest) -> Option<Layer> {
        let made = self.options.store.action(key)?.made?;
        let layer: Layer = serde_json::from_value(made).ok()?;
        self.options.store.blob(&layer.digest).map(|_| layer)
    }

    /// Makes a layer of the tar that `content` writes.
    pub fn packed(
        &mut self,
        about: &str,
        of: Vec<String>,
        file: &File,
        content: impl FnOnce(&mut dyn Write) -> Result<(), BuildError>,
    ) -> Result<Layer, BuildError> {
        let compression = self.native.compression;
        let packed = pack::pack(compression, self.threads, file, |sink| {
            content(sink).map_err(Made::Failed)
        });
        let packed = packed.map_err(|e| match e {
            PackError::Content(Made::Failed(e)) => e,
            PackError::Content(Made::Io(e)) | PackError::Write(e) => {
                failed_at("write a layer below", self.options.store.root(), e)
            }
            PackError::Thread => {
                let ended = io::Error::other(pack::ENDED);
                failed_at("write a layer below", self.options.store.root(), ended)
            }
        })?;
        Ok(packed.described(about, of))
    }

    /// Makes a layer of small files and the folders above them.
    pub fn files(
        &mut self,
        id: &str,
        about: &str,
        members: &[Member],
    ) -> Result<Layer, BuildError> {
        let mut inputs = self.packed_inputs("files");
        let tar = tar(members, self.native.epoch)
            .map_err(|e| failed_at("make a layer for", Path::new(id), e))?;
        inputs.insert("content".into(), Digest::of(&tar).to_string());
        self.layer(id, &inputs, |maker, file| {
            maker.packed(about, Vec::new(), file, |out| {
                out.write_all(&tar)
                    .map_err(|e| failed_at("make a layer for", Path::new(id), e))
            })
        })
    }

    /// Returns the inputs that every layer has.
    pub fn inputs(&self, kind: &str) -> Inputs {
        Inputs::from([
            ("format".into(), FORMAT.to_string()),
            ("kind".into(), kind.to_owned()),
            ("epoch".into(), self.native.epoch.to_string()),
        ])
    }

    /// Returns the inputs of layers that [`Maker::packed`] compresses.
    pub fn packed_inputs(&self, kind: &str) -> Inputs {
        let compression = format!("{:?}", self.native.compression);
        let mut inputs = self.inputs(kind);
        inputs.insert("compression".into(), compression);
        inputs
    }

    /// Stores an image's configuration and manifest.
    pub fn keep(&self, image: &Assembled) -> Result<(), BuildError> {
        for (digest, bytes) in [
            (&image.config_digest, &image.config),
            (&image.digest, &image.manifest),
        ] {
            self.options.store.put(bytes.as_slice(), Some(digest))?;
        }
        Ok(())
    }

    /// Opens an image whose configuration and manifest are stored.
    pub fn at_rest(&self, image: &Assembled) -> Result<oci::Image, BuildError> {
        let size = image.manifest.len() as u64;
        Ok(oci::of_manifest(
            self.options.store.root(),
            &image.digest,
            size,
        )?)
    }
}

/// An error of writing or of compressing a packed layer.
enum Made {
    Failed(BuildError),
    Io(io::Error),
}

impl From<io::Error> for Made {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

fn layer_key(inputs: &Inputs) -> Digest {
    let canonical = serde_json::json!({ "layer": inputs });
    Digest::of(canonical.to_string().as_bytes())
}

/// Writes a tar of `members` and the folders above them, all owned by root.
pub(super) fn tar(members: &[Member], epoch: u32) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut folders = std::collections::BTreeSet::new();
    let header = |kind, size: u64, mode| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(mode);
        header.set_mtime(u64::from(epoch));
        header
    };
    for member in members {
        let (Member::Folder(path) | Member::File(path, _) | Member::Link(path, _)) = member;
        let path = path.trim_start_matches('/');
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        let own = matches!(member, Member::Folder(_)).then_some(path);
        for folder in above.chain(own) {
            if folders.insert(folder) {
                let mut header = header(tar::EntryType::Directory, 0, 0o755);
                tar.append_data(&mut header, format!("{folder}/"), io::empty())?;
            }
        }
        match member {
            Member::Folder(_) => {}
            Member::File(_, content) => {
                let mut header = header(tar::EntryType::Regular, content.len() as u64, 0o644);
                tar.append_data(&mut header, path, content.as_slice())?;
            }
            Member::Link(_, target) => {
                let mut header = header(tar::EntryType::Symlink, 0, 0o777);
                tar.append_link(&mut header, path, target)?;
            }
        }
    }
    tar.into_inner()
}
