//! Makes the layers below the wheels: an image of a registry, or a system of Debian packages.

use super::super::{BuildError, BuildEvent, recorded};
use super::inputs::Inputs;
use super::layers::NativeBuilder;
use super::scripts::not_understood;
use oci_spec::image::ImageConfiguration;
use stackforge_debian::finish;
use stackforge_distribute::pull;
use stackforge_image::Layer;
use stackforge_image::store::Action;
use stackforge_plan::{self as plan, Packages, Step, StepId};
use stackforge_stack::lock::{OsPackageLock, PinnedImage};
use stackforge_transfer::registry::Reference;
use stackforge_types::Digest;
use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;
use tokio::task::block_in_place;

/// The lowest layers of an image.
#[derive(Default)]
pub(super) struct Base {
    pub config: Option<ImageConfiguration>,
    pub layers: Vec<Layer>,
}

impl NativeBuilder<'_, '_> {
    /// Makes or pulls the base.
    pub async fn base(
        &mut self,
        step: &Step,
        base: &plan::Base,
        inputs: &Inputs,
    ) -> Result<Base, BuildError> {
        if base.bootstrap {
            let layer = block_in_place(|| self.system(step, base, &inputs.base))?;
            return Ok(Base {
                config: None,
                layers: vec![layer],
            });
        }
        let Some(runtime) = &base.lock.runtime else {
            return Err(BuildError::NoBase {
                base: base.lock.name.clone(),
            });
        };
        let start = Instant::now();
        let here = recorded::layers(self.options.store, self.plan, step);
        (self.on)(BuildEvent::Phase { name: "base" });
        let pulled = self.of_registry(runtime).await?;
        let digests =
            |layers: &[Layer]| -> Vec<Digest> { layers.iter().map(|l| l.digest.clone()).collect() };
        if here.is_some_and(|known| digests(&known) == digests(&pulled.layers)) {
            self.found(step);
            return Ok(pulled);
        }
        let layers = pulled.layers.iter().enumerate();
        let outputs = layers.map(|(n, l)| (format!("layer:{n:03}"), l.digest.clone()));
        let action = Action {
            step: step.id.to_string(),
            outputs: outputs.collect(),
            seconds: start.elapsed().as_secs_f64(),
            made: serde_json::to_value(&pulled.layers).ok(),
            ..Action::default()
        };
        self.options.store.record(&step.key, &action)?;
        self.finished(&step.id, start);
        Ok(pulled)
    }

    /// Makes a Debian system as its maintainer scripts leave it, without running any where all are understood.
    fn system(
        &mut self,
        step: &Step,
        base: &plan::Base,
        debs: &[PathBuf],
    ) -> Result<Layer, BuildError> {
        let about = format!("{} of Debian packages", base.lock.name);
        self.layer(step, |builder, file| {
            let (arch, epoch) = (builder.plan.platform.arch(), builder.native.epoch.into());
            let packages = &base.lock.packages;
            let written = builder.packed(&about, names(packages), file, |out| {
                finish::write(debs, arch, epoch, out)?;
                Ok(())
            });
            written.or_else(|error| {
                let reason = not_understood(error)?;
                builder.system_by_scripts(&about, reason, packages, debs, file)
            })
        })
    }

    /// Pulls the image that compilers run in. `None` if that is the base.
    pub async fn devel(&mut self) -> Result<Option<Base>, BuildError> {
        match &self.plan.base().lock.devel {
            Some(devel) => {
                (self.on)(BuildEvent::Phase { name: "toolchain" });
                Ok(Some(self.of_registry(devel).await?))
            }
            None => Ok(None),
        }
    }

    async fn of_registry(&self, image: &PinnedImage) -> Result<Base, BuildError> {
        let name = match &image.digest {
            Some(digest) => format!("{}@{digest}", image.reference),
            None => image.reference.clone(),
        };
        let reference: Reference = name
            .parse()
            .map_err(|_| BuildError::NoBase { base: name.clone() })?;
        let platform = self.plan.platform;
        let (store, config) = (self.options.store, self.options.config);
        let pulled = pull::pull(&reference, platform, true, store, config, None);
        let image = pulled.await?;
        let layers = image.layers.into_iter();
        Ok(Base {
            layers: layers
                .map(|layer| layer.described("base", Vec::new()))
                .collect(),
            config: Some(image.config),
        })
    }

    /// Makes the layer of OS packages over the base. If the base has no Python, they include it.
    pub fn packages(
        &mut self,
        step: &Step,
        base: &Base,
        packages: &Packages,
        inputs: &Inputs,
    ) -> Result<Layer, BuildError> {
        let packages = &packages.packages;
        by_digest(packages)?;
        self.layer(step, |builder, file| {
            builder.add(&step.id, base, packages, &inputs.packages, file)
        })
    }

    /// Makes the layer that adds the compilers' packages to the base. The image has none of it.
    pub fn compilers(
        &mut self,
        base: &Base,
        packages: &[OsPackageLock],
        debs: &[PathBuf],
    ) -> Result<Layer, BuildError> {
        by_digest(packages)?;
        let below: Vec<&Digest> = base.layers.iter().map(|l| &l.diff_id).collect();
        let key = serde_json::json!({
            "layer": "compilers",
            "finish": [finish::VERSION.to_string(), Digest::of(finish::SCRIPTS.as_bytes()).to_string()],
            "native": format!("{:?}", self.native),
            "platform": self.plan.platform,
            "packages": packages.iter().map(|p| p.sha256.as_ref().map(Digest::hex)).collect::<Vec<_>>(),
            "below": below,
        });
        let key = Digest::of(key.to_string().as_bytes());
        self.side_layer("compilers", &key, |builder, file| {
            builder.add(&StepId::Tools, base, packages, debs, file)
        })
    }

    fn add(
        &mut self,
        step: &StepId,
        base: &Base,
        packages: &[OsPackageLock],
        debs: &[PathBuf],
        file: &File,
    ) -> Result<Layer, BuildError> {
        let below = self.image_of(&base.layers)?;
        let root = pull::tree(&below, self.options.store)?;
        let (arch, epoch) = (self.plan.platform.arch(), self.native.epoch.into());
        let written = self.packed("OS packages", names(packages), file, |out| {
            finish::add(debs, &finish::Unpacked(root.clone()), arch, epoch, out)?;
            Ok(())
        });
        written.or_else(|error| {
            let reason = not_understood(error)?;
            self.packages_by_scripts(step, &root, reason, packages, debs, file)
        })
    }
}

/// Fails for packages that the lock names without a digest.
fn by_digest(packages: &[OsPackageLock]) -> Result<(), BuildError> {
    let by_name = packages.iter().filter(|p| p.sha256.is_none());
    let by_name: Vec<&str> = by_name.map(|p| p.name.as_str()).collect();
    if by_name.is_empty() {
        return Ok(());
    }
    Err(BuildError::MustInstall {
        packages: by_name.join(", "),
    })
}

fn names(packages: &[OsPackageLock]) -> Vec<String> {
    packages.iter().map(|p| p.name.clone()).collect()
}
