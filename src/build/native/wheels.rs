//! Makes layers of wheels. Wheels are fetched by digest, grouped so that a new version changes one layer,
//! and stitched without recompressing.

use super::super::base::io as failed_at;
use super::super::{BuildError, BuildEvent, Options};
use super::environment::{interpreter, scheme};
use super::layers::Maker;
use crate::lock::PythonFile;
use crate::plan::Plan;
use crate::prune::{self, Pruned, Pruner};
use crate::resolve::locked_files;
use stackforge_binary::source::FileSource;
use stackforge_image::Layer;
use stackforge_image::layer::{self, Install, Limits, Part, Spec, Wheel, group};
use stackforge_transfer::fetch;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Compression level of members that are stored in the wheel, and of tar headers.
const LEVEL: u32 = 6;

/// A wheel of the image, as a file.
#[derive(Debug, Clone)]
pub(super) struct Fetched {
    pub name: String,
    pub version: String,
    pub sha256: String,
    pub size: u64,
    pub path: PathBuf,
    /// Whether the stack names it.
    pub requested: bool,
}

/// Returns the plan's locked wheels, from the store or the index.
pub(super) async fn fetch(
    plan: &Plan,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Vec<Fetched>, BuildError> {
    let locked: Vec<PythonFile> = (plan.parts.layers.iter())
        .flat_map(|layer| layer.wheels.iter().cloned())
        .collect();
    wheels(&locked, "wheels", options, on).await
}

/// Fetches locked wheels.
pub(super) async fn wheels(
    locked: &[PythonFile],
    what: &str,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Vec<Fetched>, BuildError> {
    let paths = files(locked, what, options, on).await?;
    let fetched = locked.iter().zip(paths).map(|(wheel, path)| {
        let found = std::fs::metadata(&path).map_err(|e| failed_at("open the wheel", &path, e))?;
        Ok(Fetched {
            name: wheel.name.clone(),
            version: wheel.version.clone(),
            sha256: wheel.sha256.clone(),
            size: found.len(),
            path,
            requested: wheel.via.is_empty(),
        })
    });
    fetched.collect()
}

/// Fetches locked files by digest, each under its own name.
pub(in crate::build) async fn files(
    locked: &[PythonFile],
    what: &str,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Vec<PathBuf>, BuildError> {
    let on = Mutex::new(on);
    let hear = |event: fetch::Event<'_>| {
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
        &hear,
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
    let key = plan.compile(library).map(|s| &s.key);
    let action = key.and_then(|key| store.action(key)).ok_or_else(must)?;
    let digest = action.outputs.get("wheel").ok_or_else(must)?;
    let file = store.names_of(digest).into_iter().next().ok_or_else(must)?;
    let path = store.named(digest, &file)?;
    let found = std::fs::metadata(&path).map_err(|e| failed_at("open the wheel", &path, e))?;
    Ok(Fetched {
        name: library.to_owned(),
        version: version.to_owned(),
        sha256: digest.hex().to_owned(),
        size: found.len(),
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

impl Maker<'_, '_> {
    /// Makes the layers of wheels: one for each large wheel, a few for the others.
    pub fn wheels(&mut self, wheels: &[Fetched]) -> Result<Vec<Layer>, BuildError> {
        let parts: Vec<Part<'_>> = wheels
            .iter()
            .map(|wheel| Part {
                name: &wheel.name,
                size: wheel.size,
            })
            .collect();
        let groups = group(&parts, &Limits::default());
        if groups.len() > 1 {
            // A file of one layer would hide another wheel's file of that name: the image would match neither.
            self.disjoint(wheels)?;
        }
        let mut layers = Vec::new();
        for group in groups {
            let group: Vec<&Fetched> = group.iter().map(|&place| &wheels[place]).collect();
            layers.push(self.group(&group)?);
        }
        Ok(layers)
    }

    fn disjoint(&self, wheels: &[Fetched]) -> Result<(), BuildError> {
        let opened = wheels.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let slim = &self.options.catalog.slim;
        let drops: Vec<Vec<String>> = wheels.iter().map(|w| slim.of(&w.name)).collect();
        let unchanged = BTreeMap::new();
        let installs: Vec<Install<'_, FileSource>> = opened
            .iter()
            .zip(&drops)
            .map(|(wheel, drop)| Install {
                wheel,
                requested: false,
                drop,
                changed: &unchanged,
            })
            .collect();
        Ok(layer::disjoint(&self.spec(), &installs)?)
    }

    fn spec(&self) -> Spec {
        Spec {
            scheme: scheme(self.plan.python),
            python: interpreter(),
            epoch: self.native.epoch,
            level: LEVEL,
            threads: self.threads,
        }
    }

    fn group(&mut self, wheels: &[&Fetched]) -> Result<Layer, BuildError> {
        let slim = &self.options.catalog.slim;
        let drops: Vec<Vec<String>> = wheels.iter().map(|w| slim.of(&w.name)).collect();
        let mut inputs = self.inputs("wheels");
        inputs.insert("python".into(), self.plan.python.to_string());
        inputs.insert("level".into(), LEVEL.to_string());
        let pruned = wheels.iter().any(|wheel| self.prunes(wheel));
        if pruned {
            let sms: Vec<String> = self.plan.sm.iter().map(ToString::to_string).collect();
            let how = format!("{} {}", prune::FORMAT, sms.join(" "));
            inputs.insert("prune".into(), how);
        }
        for (wheel, drops) in wheels.iter().zip(&drops) {
            let how = if wheel.requested { " requested" } else { "" };
            let without = drops.iter().map(|d| format!(" -{d}")).collect::<String>();
            inputs.insert(
                format!("wheel:{}", wheel.name),
                format!("{} sha256:{}{how}{without}", wheel.version, wheel.sha256),
            );
        }
        let id = match wheels {
            [one] => format!("wheel:{}", one.name),
            _ => format!("wheels:{}…", wheels.first().map_or("", |w| &w.name)),
        };
        self.layer(&id, &inputs, |maker, file| {
            maker.stitch(wheels, &drops, file)
        })
    }

    /// Whether to prune a wheel's device code. Pure wheels have none.
    fn prunes(&self, wheel: &Fetched) -> bool {
        let pure = wheel.path.to_string_lossy().ends_with("-any.whl");
        self.plan.parts.prune && !pure
    }

    fn pruned(&self, wheel: &Fetched, source: &FileSource) -> Result<Pruned, BuildError> {
        if !self.prunes(wheel) {
            return Ok(Pruned::default());
        }
        let tmp = self.options.store.dir("tmp")?;
        let pruner = Pruner {
            catalog: self.options.catalog,
            sms: &self.plan.sm,
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
        wheels: &[&Fetched],
        drops: &[Vec<String>],
        file: &File,
    ) -> Result<Layer, BuildError> {
        let ready = |wheel: &&Fetched| {
            let pruned = self.pruned(wheel, &source(wheel)?)?;
            Ok::<_, BuildError>((open(wheel)?, pruned))
        };
        let opened = wheels.iter().map(ready).collect::<Result<Vec<_>, _>>()?;
        let installs: Vec<Install<'_, FileSource>> = opened
            .iter()
            .zip(wheels)
            .zip(drops)
            .map(|(((wheel, pruned), fetched), drop)| Install {
                wheel,
                requested: fetched.requested,
                drop,
                changed: &pruned.members,
            })
            .collect();
        let written = layer::write(&self.spec(), &installs, file)?;
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
