//! Makes layers, each once, and stores them by a key over everything that decides their bytes.
//!
//! In: a step, and a function that writes its layer. Out: a [`Layer`] whose blob is in the
//! store. A blob gets its name only after it is complete and synced, so a killed run leaves no partial one.

use super::super::base::io as failed_at;
use super::super::{BuildError, BuildEvent, Options, StepResult, recorded};
use super::ahead::Ahead;
use stackforge_binary::tar::{Attributes, Format, Writer};
use stackforge_engine::{Event, StepKind};
use stackforge_image::Layer;
use stackforge_image::assemble::Assembled;
use stackforge_image::layer::Stitched;
use stackforge_image::oci;
use stackforge_image::pack::{self, PackError};
use stackforge_image::store::Action;
use stackforge_plan::{Member, Native, Plan, Step, StepId};
use stackforge_stack::spec::Platform;
use stackforge_types::Cancel;
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Does the steps of a plan.
pub(super) struct NativeBuilder<'a, 'on> {
    pub plan: &'a Plan,
    pub native: &'a Native,
    pub options: &'a Options<'a>,
    pub cancel: &'a Cancel,
    pub on: &'on mut (dyn FnMut(BuildEvent) + Send),
    pub steps: Vec<StepResult>,
    pub threads: usize,
    /// Whether byte code of the plan is missing, because nothing here runs the image's interpreter.
    pub without_bytecode: bool,
    /// Where programs that run in the image write their output, once one did.
    pub log: Option<PathBuf>,
    /// Number of the step whose layer is being made: what programs print is its.
    pub running: Option<u32>,
    /// Directories and audit readings that were made of layers while they were written.
    pub ahead: Ahead,
}

impl<'a, 'on> NativeBuilder<'a, 'on> {
    pub fn new(
        plan: &'a Plan,
        native: &'a Native,
        options: &'a Options<'a>,
        cancel: &'a Cancel,
        on: &'on mut (dyn FnMut(BuildEvent) + Send),
    ) -> Self {
        Self {
            plan,
            native,
            options,
            cancel,
            on,
            steps: Vec::new(),
            threads: std::thread::available_parallelism().map_or(1, Into::into),
            without_bytecode: false,
            log: None,
            running: None,
            ahead: Ahead::default(),
        }
    }

    /// Makes a layer, and unpacks it and reads it for the audit at the same time: `make` passes on its tar.
    pub fn read_once(
        &mut self,
        make: impl FnOnce(&mut dyn FnMut(&Arc<Vec<u8>>)) -> Result<Stitched, BuildError>,
    ) -> Result<Stitched, BuildError> {
        // Validation unpacks what runs here.
        let unpacks = Platform::host() == Some(self.plan.platform);
        self.ahead.watch(self.options.store, unpacks, |on_plain| {
            let written = make(on_plain)?;
            Ok((written.layer.diff_id.clone(), written))
        })
    }

    /// Returns the number of a step in events and logs, from 1. Other work has the number after the last step's.
    pub fn number(&self, step: &str) -> u32 {
        let mut steps = self.plan.steps.iter();
        let place = steps.position(|s| s.id.to_string() == step);
        u32::try_from(place.unwrap_or(self.plan.steps.len())).map_or(u32::MAX, |place| place + 1)
    }

    /// Sends the events that a step begins and ends around its work. Work of the same step within it sends none.
    pub fn with_events<T>(
        &mut self,
        step: &str,
        work: impl FnOnce(&mut Self) -> Result<T, BuildError>,
    ) -> Result<T, BuildError> {
        let (id, name, start) = (self.number(step), format!("[{step}]"), Instant::now());
        if self.running == Some(id) {
            return work(self);
        }
        (self.on)(BuildEvent::Engine(Event::StepStarted {
            id,
            name: name.clone(),
            kind: StepKind::Layer,
        }));
        let before = self.running.replace(id);
        let done = work(self);
        self.running = before;
        (self.on)(BuildEvent::Engine(Event::StepFinished {
            id,
            name,
            cached: false,
            seconds: start.elapsed().as_secs_f64(),
            error: done.as_ref().err().map(ToString::to_string),
        }));
        done
    }

    /// Notes that a step was done since `start`.
    pub fn finished(&mut self, id: &StepId, start: Instant) {
        self.steps.push(StepResult {
            id: id.clone(),
            cached: false,
            seconds: start.elapsed().as_secs_f64(),
        });
    }

    /// Notes that the store has what a step makes.
    pub fn found(&mut self, step: &Step) {
        self.steps.push(StepResult {
            id: step.id.clone(),
            cached: true,
            seconds: 0.0,
        });
    }

    /// Returns the layers that a step made before, if the store has them.
    pub fn known(&self, step: &Step) -> Option<Vec<Layer>> {
        let known = recorded::layers(self.options.store, self.plan, step);
        known.filter(|_| !self.options.no_cache)
    }

    /// Records that a step makes no layer.
    pub fn nothing(&mut self, step: &Step) -> Result<(), BuildError> {
        let action = Action {
            step: step.id.to_string(),
            outputs: recorded::compiled(self.options.store, self.plan, step),
            made: Some(serde_json::json!([])),
            ..Action::default()
        };
        self.options.store.record(&step.key, &action)?;
        self.finished(&step.id, Instant::now());
        Ok(())
    }

    /// Returns the layer of a step from the store, or calls `make` to write its blob.
    pub fn layer(
        &mut self,
        step: &Step,
        make: impl FnOnce(&mut Self, &File) -> Result<Layer, BuildError>,
    ) -> Result<Layer, BuildError> {
        let start = Instant::now();
        let store = self.options.store;
        if let Some(layer) = self
            .known(step)
            .and_then(|layers| layers.into_iter().next())
        {
            self.found(step);
            return Ok(layer);
        }
        let compiled = recorded::compiled(store, self.plan, step);
        let layer = self.made(&step.id.to_string(), &step.key, compiled, make)?;
        self.finished(&step.id, start);
        Ok(layer)
    }

    /// Returns a layer that is not a step of the plan by its key from the store, or calls `make`.
    pub fn side_layer(
        &mut self,
        id: &str,
        key: &Digest,
        make: impl FnOnce(&mut Self, &File) -> Result<Layer, BuildError>,
    ) -> Result<Layer, BuildError> {
        if !self.options.no_cache
            && let Some(made) = self.options.store.action(key).and_then(|a| a.made)
            && let Ok(layers) = serde_json::from_value::<Vec<Layer>>(made)
            && let Some(layer) = layers.into_iter().next()
            && self.options.store.blob(&layer.digest).is_some()
        {
            return Ok(layer);
        }
        self.made(id, key, BTreeMap::new(), make)
    }

    /// Makes a layer and records it.
    pub fn made(
        &mut self,
        id: &str,
        key: &Digest,
        more: BTreeMap<String, Digest>,
        make: impl FnOnce(&mut Self, &File) -> Result<Layer, BuildError>,
    ) -> Result<Layer, BuildError> {
        if self.cancel.is_cancelled() {
            return Err(BuildError::Stopped);
        }
        let start = Instant::now();
        let temp = self.options.store.temp()?;
        let layer = self.with_events(id, |builder| make(builder, temp.file()))?;
        temp.commit(layer.digest.clone())?;
        let mut outputs = more;
        outputs.insert("layer".to_owned(), layer.digest.clone());
        let action = Action {
            step: id.to_owned(),
            outputs,
            seconds: start.elapsed().as_secs_f64(),
            made: serde_json::to_value([&layer]).ok(),
            ..Action::default()
        };
        self.options.store.record(key, &action)?;
        Ok(layer)
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
            content(sink).map_err(LayerError::Failed)
        });
        let packed = packed.map_err(|e| match e {
            PackError::Content(LayerError::Failed(e)) => e,
            PackError::Content(LayerError::Io(e)) | PackError::Write(e) => {
                failed_at("write a layer below", self.options.store.root(), e)
            }
            PackError::Thread => {
                let ended = io::Error::other(pack::ENDED);
                failed_at("write a layer below", self.options.store.root(), ended)
            }
        })?;
        Ok(packed.described(about, of))
    }

    /// Makes the layer of what was found of the image.
    pub fn evidence(&mut self, members: &[Member]) -> Result<Layer, BuildError> {
        let about = "what was found of the image";
        let tar = self.small_tar(about, members)?;
        let key = serde_json::json!({
            "layer": "evidence",
            "compression": format!("{:?}", self.native.compression),
            "content": Digest::of(&tar),
        });
        let key = Digest::of(key.to_string().as_bytes());
        self.side_layer("evidence", &key, |builder, file| {
            builder.small(about, &tar, file)
        })
    }

    /// Returns the tar of a layer of small files.
    pub fn small_tar(&self, about: &str, members: &[Member]) -> Result<Vec<u8>, BuildError> {
        let failed = |e| failed_at("make a layer for", Path::new(about), e);
        tar(members, self.native.epoch).map_err(failed)
    }

    /// Packs the tar of a layer of small files.
    pub fn small(&mut self, about: &str, tar: &[u8], file: &File) -> Result<Layer, BuildError> {
        self.packed(about, Vec::new(), file, |out| {
            out.write_all(tar)
                .map_err(|e| failed_at("make a layer for", Path::new(about), e))
        })
    }

    /// Stores an image's configuration and manifest.
    pub fn store_documents(&self, image: &Assembled) -> Result<(), BuildError> {
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
enum LayerError {
    Failed(BuildError),
    Io(io::Error),
}

impl From<io::Error> for LayerError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// Writes a tar of `members` and the folders above them, all owned by root.
pub(super) fn tar(members: &[Member], epoch: u32) -> io::Result<Vec<u8>> {
    let mut tar = Writer::new(Format::Ustar, Vec::new());
    let mut folders = std::collections::BTreeSet::new();
    let attributes = |mode| Attributes {
        mtime: u64::from(epoch),
        ..Attributes::new(mode)
    };
    for member in members {
        let path = member.path().trim_start_matches('/');
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        let own = matches!(member, Member::Folder { .. }).then_some(path);
        for folder in above.chain(own) {
            if folders.insert(folder) {
                tar.directory(folder, attributes(0o755))?;
            }
        }
        match member {
            Member::Folder { .. } => {}
            Member::File { content, .. } => {
                let size = content.len() as u64;
                tar.file(path, attributes(0o644), size, content.as_bytes())?;
            }
            Member::Link { to, .. } => tar.symlink(path, to, attributes(0o777))?,
        }
    }
    tar.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest was computed before the writer was shared.
    #[test]
    fn the_tar_of_a_small_layer_keeps_its_bytes() {
        let file = |path: String| Member::File {
            path,
            content: "text".to_owned(),
        };
        let members = [
            Member::Folder {
                path: "/opt/venv".to_owned(),
            },
            file("/opt/venv/pyvenv.cfg".to_owned()),
            // One that ustar's two fields hold, and two that they do not.
            file(format!("/usr/{}f", "long-folder/".repeat(12))),
            file(format!("/usr/{}f", "long-folder/".repeat(30))),
            file(format!("/etc/{}", "é".repeat(80))),
            Member::Link {
                path: "/opt/venv/bin/python".to_owned(),
                to: "/usr/bin/python3".to_owned(),
            },
            Member::Link {
                path: "/opt/far".to_owned(),
                to: format!("../{}", "t/".repeat(60)),
            },
        ];
        let bytes = tar(&members, 1_704_067_200).unwrap();
        assert_eq!(
            Digest::of(&bytes).to_string(),
            "sha256:bdb3bf8527896b267cf392e13ee1fde98f5037152e785e1a4b7f125b552975b3"
        );
    }
}
