//! Makes the layers below the wheels: an image of a registry, or a system of Debian packages.

use super::super::base::fetch as fetch_debs;
use super::super::{BuildError, BuildEvent, Options};
use super::layers::{Inputs, Maker};
use crate::lock::{OsPackageLock, PinnedImage};
use crate::plan::Plan;
use crate::pull;
use oci_spec::image::ImageConfiguration;
use stackforge_debian::finish;
use stackforge_image::Layer;
use stackforge_transfer::registry::Reference;
use stackforge_types::Digest;
use std::path::PathBuf;
use tokio::task::block_in_place;

/// Package files, in the order of the lock.
pub(super) struct Sources {
    base: Vec<PathBuf>,
    packages: Vec<PathBuf>,
    /// Packages that compilers need; empty if nothing is compiled.
    pub builder: Vec<PathBuf>,
}

/// The lowest layers of an image.
pub(super) struct Base {
    pub config: Option<ImageConfiguration>,
    pub layers: Vec<Layer>,
}

pub(super) async fn fetch(
    plan: &Plan,
    compiles: bool,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Sources, BuildError> {
    let parts = &plan.parts;
    let builder = match compiles {
        true => fetch_debs(
            &parts.builder_packages,
            "OS packages for compilers",
            options,
            on,
        ),
        false => fetch_debs(&[], "", options, on),
    };
    Ok(Sources {
        builder: builder.await?,
        base: fetch_debs(&parts.base.packages, "base packages", options, on).await?,
        packages: fetch_debs(&parts.runtime_packages, "OS packages", options, on).await?,
    })
}

impl Maker<'_, '_> {
    pub async fn base(&mut self, sources: &Sources) -> Result<Base, BuildError> {
        if self.plan.parts.bootstrap {
            let layer = block_in_place(|| self.system(sources))?;
            return Ok(Base {
                config: None,
                layers: vec![layer],
            });
        }
        self.pulled().await
    }

    /// Makes a Debian system as its maintainer scripts would leave it, without running any.
    fn system(&mut self, sources: &Sources) -> Result<Layer, BuildError> {
        let base = &self.plan.parts.base;
        let about = format!("{} of Debian packages", base.name);
        let inputs = self.debian("debian", &base.packages);
        self.layer("base", &inputs, |maker, file| {
            let (arch, epoch) = (maker.plan.platform.arch(), maker.native.epoch.into());
            maker.packed(&about, names(&base.packages), file, |out| {
                finish::write(&sources.base, arch, epoch, out)?;
                Ok(())
            })
        })
    }

    /// Returns the inputs that decide a layer of OS packages.
    fn debian(&self, kind: &str, packages: &[OsPackageLock]) -> Inputs {
        let mut inputs = self.packed_inputs(kind);
        inputs.insert("platform".into(), self.plan.platform.to_string());
        let scripts = Digest::of(finish::SCRIPTS.as_bytes());
        inputs.insert("finish".into(), format!("{} {scripts}", finish::VERSION));
        for (place, package) in packages.iter().enumerate() {
            let sha256 = package.sha256.as_deref().unwrap_or_default();
            inputs.insert(format!("package:{place:04}"), sha256.to_owned());
        }
        inputs
    }

    /// Pulls the base image from a registry.
    async fn pulled(&mut self) -> Result<Base, BuildError> {
        let base = &self.plan.parts.base;
        let Some(runtime) = &base.runtime else {
            return Err(BuildError::NoBase {
                base: base.name.clone(),
            });
        };
        (self.on)(BuildEvent::Phase { name: "base" });
        self.of_registry(runtime).await
    }

    /// Pulls the image that compilers run in. `None` if that is the base.
    pub async fn devel(&mut self) -> Result<Option<Base>, BuildError> {
        match &self.plan.parts.base.devel {
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

    /// Makes the layer of OS packages over the base. `None` if there are none.
    pub fn packages(
        &mut self,
        base: &Base,
        sources: &Sources,
    ) -> Result<Option<Layer>, BuildError> {
        let packages = &self.plan.parts.runtime_packages;
        // If the base has no Python, these packages include it.
        if packages.is_empty() {
            return Ok(None);
        }
        let layer = self.added("packages", base, packages, &sources.packages)?;
        Ok(Some(layer))
    }

    /// Makes the layer that adds `packages` to the base.
    pub fn added(
        &mut self,
        id: &str,
        base: &Base,
        packages: &[OsPackageLock],
        debs: &[PathBuf],
    ) -> Result<Layer, BuildError> {
        let by_name = packages.iter().filter(|p| p.sha256.is_none());
        let by_name: Vec<&str> = by_name.map(|p| p.name.as_str()).collect();
        if !by_name.is_empty() {
            return Err(BuildError::MustInstall {
                packages: by_name.join(", "),
            });
        }
        let mut inputs = self.debian("packages", packages);
        for (place, layer) in base.layers.iter().enumerate() {
            inputs.insert(format!("below:{place:04}"), layer.diff_id.to_string());
        }
        self.layer(id, &inputs, |maker, file| {
            let below = maker.image_of(&base.layers)?;
            let root = pull::tree(&below, maker.options.store)?;
            let (arch, epoch) = (maker.plan.platform.arch(), maker.native.epoch.into());
            maker.packed("OS packages", names(packages), file, |out| {
                finish::add(debs, &finish::Unpacked(root), arch, epoch, out)?;
                Ok(())
            })
        })
    }
}

fn names(packages: &[OsPackageLock]) -> Vec<String> {
    packages.iter().map(|p| p.name.clone()).collect()
}
