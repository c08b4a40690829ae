//! Makes the layers of wheels. Wheels are fetched by digest and stitched without recompressing; the plan says
//! which share a layer.

use super::super::base::io as failed_at;
use super::super::{BuildError, BuildEvent, Options, recorded};
use super::environment::{interpreter, scheme};
use super::inputs::Inputs;
use super::layers::NativeBuilder;
use stackforge_audit::prune::{Pruned, Pruner};
use stackforge_binary::source::FileSource;
use stackforge_image::Layer;
use stackforge_image::layer::{Install, Spec, Wheel, disjoint, write_watched};
use stackforge_plan::{self as plan, LEVEL, LayerWheel, Op, Plan, Step};
use stackforge_resolve::locked_files;
use stackforge_stack::lock::PythonFile;
use stackforge_transfer::fetch;
use stackforge_types::{Digest, Sm};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A wheel of the image, as a file.
#[derive(Debug, Clone)]
pub(super) struct Fetched {
    pub name: String,
    pub version: String,
    pub sha256: Digest,
    pub path: PathBuf,
    /// Whether the stack names it.
    pub requested: bool,
}

/// Fetches locked wheels.
pub(super) async fn wheels(
    locked: &[PythonFile],
    what: &str,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Vec<Fetched>, BuildError> {
    let paths = files(locked, what, options, on).await?;
    let fetched = locked.iter().zip(paths).map(|(wheel, path)| Fetched {
        name: wheel.name.clone(),
        version: wheel.version.clone(),
        sha256: wheel.sha256.clone(),
        path,
        requested: wheel.via.is_empty(),
    });
    Ok(fetched.collect())
}

/// Fetches locked files by digest, each under its own name.
pub(crate) async fn files(
    locked: &[PythonFile],
    what: &str,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Vec<PathBuf>, BuildError> {
    // Before the first byte the program that asks the index may have to be fetched.
    let total: u64 = locked.iter().map(|file| file.size).sum();
    if total > 0 {
        on(BuildEvent::Download {
            what: what.to_owned(),
            done: 0,
            total,
        });
    }
    let on = Mutex::new(on);
    let on_event = |event: fetch::Event<'_>| {
        let mut on = on.lock().unwrap_or_else(PoisonError::into_inner);
        on(BuildEvent::Download {
            what: what.to_owned(),
            done: event.all.have,
            total: event.all.size.unwrap_or_default(),
        });
    };
    let (catalog, store) = (options.catalog, options.store);
    let files = locked_files(
        locked,
        options.stack,
        catalog,
        store,
        options.offline,
        &on_event,
    );
    Ok(files.await?)
}

/// Returns a compiled wheel of the store.
pub(super) fn compiled(
    plan: &Plan,
    library: &str,
    version: &str,
    options: &Options<'_>,
) -> Result<Fetched, BuildError> {
    let store = options.store;
    let must = || BuildError::MustCompile {
        library: library.to_owned(),
    };
    let digest = plan
        .compile(library)
        .and_then(|s| recorded::wheel(store, s))
        .ok_or_else(must)?;
    let file = store
        .names_of(&digest)
        .into_iter()
        .next()
        .ok_or_else(must)?;
    let path = store.named(&digest, &file)?;
    Ok(Fetched {
        name: library.to_owned(),
        version: version.to_owned(),
        sha256: digest,
        path,
        requested: true,
    })
}

fn source(wheel: &Fetched) -> Result<FileSource, BuildError> {
    let path = &wheel.path;
    FileSource::open(path).map_err(|e| failed_at("open the wheel", path, e))
}

/// Opens a wheel, whose digest was verified when it was fetched or stored.
fn open(wheel: &Fetched) -> Result<Wheel<FileSource>, BuildError> {
    let name = wheel.path.file_name().unwrap_or_default().to_string_lossy();
    Ok(Wheel::open(&name, source(wheel)?)?.vouched())
}

impl NativeBuilder<'_, '_> {
    /// Makes a layer of wheels.
    pub fn wheels(
        &mut self,
        step: &Step,
        layer: &plan::StitchedLayer,
        inputs: &Inputs,
    ) -> Result<Layer, BuildError> {
        let wheels = self.of_layer(layer, inputs)?;
        self.layer(step, |builder, file| builder.stitch(layer, &wheels, file))
    }

    /// Opens the wheels of a layer.
    pub fn opened(
        &self,
        layer: &plan::StitchedLayer,
        inputs: &Inputs,
    ) -> Result<Vec<Wheel<FileSource>>, BuildError> {
        let wheels = self.of_layer(layer, inputs)?;
        wheels.iter().map(open).collect()
    }

    fn of_layer(
        &self,
        layer: &plan::StitchedLayer,
        inputs: &Inputs,
    ) -> Result<Vec<Fetched>, BuildError> {
        let fetched = |wheel: &LayerWheel| match &wheel.file {
            None => compiled(self.plan, &wheel.name, &wheel.version, self.options),
            Some(file) => {
                let found = inputs.wheels.iter().find(|f| f.sha256 == file.sha256);
                found.cloned().ok_or_else(|| BuildError::NoReport {
                    reason: format!("the wheel {} was not fetched", file.file),
                })
            }
        };
        layer.wheels.iter().map(fetched).collect()
    }

    /// Fails if a wheel's file would hide another wheel's file of that name: the image would match neither.
    pub fn disjoint(&self, inputs: &Inputs) -> Result<(), BuildError> {
        let layers = self.plan.steps.iter().filter_map(|s| match &s.op {
            Op::Layer(layer) => Some(layer),
            _ => None,
        });
        let layers: Vec<&plan::StitchedLayer> = layers.collect();
        if layers.len() < 2 {
            return Ok(());
        }
        let (mut opened, mut drops) = (Vec::new(), Vec::new());
        for layer in layers {
            opened.extend(self.opened(layer, inputs)?);
            drops.extend(layer.wheels.iter().map(|w| w.drop.as_slice()));
        }
        let unchanged = BTreeMap::new();
        let installs: Vec<Install<'_, FileSource>> = opened
            .iter()
            .zip(drops)
            .map(|(wheel, drop)| Install {
                wheel,
                requested: false,
                drop,
                changed: &unchanged,
            })
            .collect();
        Ok(disjoint(&self.spec(), &installs)?)
    }

    pub fn spec(&self) -> Spec {
        Spec {
            scheme: scheme(self.plan.python),
            python: interpreter(),
            epoch: self.native.epoch,
            level: LEVEL,
            threads: self.threads,
        }
    }

    /// Prunes a wheel's device code. Pure wheels have none.
    fn pruned(
        &self,
        wheel: &Fetched,
        source: &FileSource,
        sms: Option<&[Sm]>,
    ) -> Result<Pruned, BuildError> {
        let pure = wheel.path.to_string_lossy().ends_with("-any.whl");
        let Some(sms) = sms.filter(|_| !pure) else {
            return Ok(Pruned::default());
        };
        let tmp = self.options.store.dir("tmp")?;
        let pruner = Pruner {
            catalog: self.options.catalog,
            sms,
            threads: self.threads,
            scratch: &|| tempfile::tempfile_in(&tmp),
        };
        let pruned = pruner.wheel(&wheel.name, source)?;
        if pruned.removed > 0 {
            let mib = pruned.removed >> 20;
            tracing::info!("{} {}: {mib} MiB pruned", wheel.name, wheel.version);
        }
        Ok(pruned)
    }

    fn stitch(
        &mut self,
        layer: &plan::StitchedLayer,
        wheels: &[Fetched],
        file: &File,
    ) -> Result<Layer, BuildError> {
        let ready = |wheel: &Fetched| {
            let pruned = self.pruned(wheel, &source(wheel)?, layer.prune.as_deref())?;
            Ok::<_, BuildError>((open(wheel)?, pruned))
        };
        let opened = wheels.iter().map(ready).collect::<Result<Vec<_>, _>>()?;
        let installs: Vec<Install<'_, FileSource>> = opened
            .iter()
            .zip(wheels)
            .zip(&layer.wheels)
            .map(|(((wheel, pruned), fetched), of)| Install {
                wheel,
                requested: fetched.requested,
                drop: &of.drop,
                changed: &pruned.members,
            })
            .collect();
        let spec = self.spec();
        let written =
            self.read_once(|on_plain| Ok(write_watched(&spec, &installs, file, on_plain)?))?;
        for file in &written.misstated {
            tracing::warn!("{file} has another digest than its wheel's RECORD states");
        }
        let names: Vec<String> = wheels
            .iter()
            .map(|w| format!("{} {}", w.name, w.version))
            .collect();
        Ok(written.layer.described(names.join(", "), names))
    }
}
