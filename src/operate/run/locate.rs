//! Finds the image that is run: in the engine, in the store, else in its registry.
//!
//! In: a name, the store, the engine if there is one. Out: [`Found`], the image where it can be started; one of the store
//! is brought into an engine that takes it. Never: pulls what is here, or takes another image than a digest names.

use crate::engine::{ContainerProgram, Engine};
use crate::error::RunError;
use crate::native::AtRest;
use serde_json::Value;
use stackforge_device::program;
use stackforge_distribute::pull::{self, Place, Settings, Wanted, image_in};
use stackforge_engine::docker::Docker;
use stackforge_image::oci::{self, Image};
use stackforge_image::store::{Ref, Store};
use stackforge_transfer::registry::{Reference, Target};
use stackforge_types::{Cancel, Digest, Platform};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where an image is.
pub enum Here {
    /// In the engine, under this name, with these variables.
    Engine {
        name: String,
        env: Option<Vec<String>>,
    },
    AtRest(AtRest),
}

/// An image that can be started.
pub struct Found {
    pub here: Here,
    pub labels: BTreeMap<String, String>,
}

/// An image of the engine.
pub struct InEngine {
    pub env: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

/// What came of a name.
pub enum Named {
    Here(Found),
    /// It is a reference to a registry, and not here.
    Elsewhere(Reference),
}

/// What happens while an image is found.
pub enum Progress<'a> {
    /// An image goes from the store into the engine.
    Bringing { name: &'a str, engine: String },
    /// The engine has no image of this name, and its command cannot be given one.
    NotInEngine { name: &'a str, engine: &'a str },
    /// Of an index, this variant was taken.
    Taken { variant: &'a str, why: &'a str },
    /// So many bytes are left to fetch.
    Left(u64),
    /// So many bytes were fetched, and so many were there already.
    Fetched { bytes: u64, kept: u64 },
}

/// Where images are looked for.
pub struct Search<'a> {
    pub store: &'a Store,
    /// The engine, and its API if it has a service.
    pub engine: Option<(&'a Engine, Option<&'a Docker>)>,
    /// Is called with what happens.
    pub on: &'a (dyn Fn(Progress<'_>) + Sync),
}

impl Found {
    /// An image outside of the engine.
    pub fn at_rest(image: Image) -> Self {
        let config = image.config.config().as_ref();
        let labels = config.and_then(|c| c.labels().clone());
        Self {
            labels: labels.unwrap_or_default().into_iter().collect(),
            here: Here::AtRest(AtRest::Image(Box::new(image))),
        }
    }

    /// A root file system that `pull` wrote; its image's documents are used if the store still has them.
    pub fn root(path: PathBuf, store: &Store) -> Self {
        let image = image_in(&path).and_then(|digest| origin(store, &digest));
        Self {
            here: Here::AtRest(AtRest::Directory { path, image }),
            labels: BTreeMap::new(),
        }
    }
}

fn origin(store: &Store, digest: &Digest) -> Option<Box<Image>> {
    let size = std::fs::metadata(store.blob_path(digest)).ok()?.len();
    let image = oci::of_manifest(store.root(), digest, size).ok()?;
    Some(Box::new(image))
}

impl Search<'_> {
    /// Looks for a name in the engine and in the store.
    ///
    /// # Errors
    /// If the name is nowhere and is not a reference, or if an image is damaged.
    pub async fn named(&self, name: &str) -> Result<Named, RunError> {
        let reference = name.parse::<Reference>();
        let pinned = match reference.as_ref().map(Reference::target) {
            Ok(Target::Digest(digest)) => Some(digest),
            _ => None,
        };
        let full = reference.as_ref().map(pull::name);
        let full = full.unwrap_or_else(|_| name.to_owned());
        let found = match &pinned {
            // Another image may have the name by now.
            Some(digest) => match self.pinned(&full, digest)? {
                Some(image) => Some(self.brought(image, &full).await?),
                None => None,
            },
            None => self.local(name, &full).await?,
        };
        match (found, reference) {
            (Some(found), _) => Ok(Named::Here(found)),
            (None, Ok(reference)) if name.contains('/') => Ok(Named::Elsewhere(reference)),
            (None, _) => Err(self.absent(name)?),
        }
    }

    fn pinned(&self, full: &str, digest: &Digest) -> Result<Option<Image>, RunError> {
        let refs = self.store.refs()?;
        let is_it = |r: &&Ref| r.name.as_deref() == Some(full) && r.digest == *digest;
        if refs.iter().find(is_it).is_none() {
            return Ok(None);
        }
        let text = digest.to_string();
        let platform = Platform::of_processor();
        Ok(Some(oci::open(self.store.root(), Some(&text), platform)?))
    }

    /// Looks in the engine and in the store. `full` is the name in the store of what was pulled.
    ///
    /// # Errors
    /// If the engine does not answer, or an image is damaged.
    pub async fn local(&self, name: &str, full: &str) -> Result<Option<Found>, RunError> {
        if let Some((engine, docker)) = self.engine
            && let Some(image) = in_engine(engine, docker, name).await?
        {
            return Ok(Some(Found {
                here: Here::Engine {
                    name: name.to_owned(),
                    env: Some(image.env),
                },
                labels: image.labels,
            }));
        }
        for name in [name, full] {
            if let Some(image) = pull::stored(self.store, name, Platform::of_processor())? {
                return Ok(Some(self.brought(image, name).await?));
            }
        }
        Ok(None)
    }

    /// Brings an image of the store into the engine, if there is one that takes it.
    async fn brought(&self, image: Image, name: &str) -> Result<Found, RunError> {
        let Some((engine, docker)) = self.engine else {
            return Ok(Found::at_rest(image));
        };
        let (Some(docker), Some(assembled)) = (docker, pull::assembled(&image)) else {
            let engine = engine.shown();
            (self.on)(Progress::NotInEngine { name, engine });
            return Ok(Found::at_rest(image));
        };
        let engine = docker.server();
        (self.on)(Progress::Bringing { name, engine });
        let (store, cancel) = (self.store, Cancel::new());
        Place::Docker
            .write(&assembled, name, 1, store, &cancel)
            .await?;
        let config = image.config.config().as_ref();
        let env = config.and_then(|c| c.env().clone()).unwrap_or_default();
        Ok(Found {
            here: Here::Engine {
                name: name.to_owned(),
                env: Some(env),
            },
            labels: Found::at_rest(image).labels,
        })
    }

    /// Pulls what is not here, as `pull` does.
    ///
    /// # Errors
    /// If it cannot be pulled, or the engine does not take it.
    pub async fn pulled(
        &self,
        reference: &Reference,
        wanted: &Wanted,
        settings: &Settings<'_>,
    ) -> Result<Found, RunError> {
        let full = pull::name(reference);
        let resolved = pull::resolve(reference, wanted, settings).await?;
        if let Some(taken) = resolved.choice.as_ref().and_then(|c| c.taken.as_ref()) {
            let (variant, why) = (taken.variant.as_str(), taken.why.to_string());
            (self.on)(Progress::Taken { variant, why: &why });
        }
        (self.on)(Progress::Left(resolved.bytes_left(self.store)));
        let fetched = pull::fetch(&resolved, settings, None).await?;
        pull::keep(self.store, &full, &resolved.manifest.digest, 1)?;
        let (bytes, kept) = (fetched.bytes, fetched.kept);
        (self.on)(Progress::Fetched { bytes, kept });
        self.brought(fetched.image, &full).await
    }

    /// Returns the error that the image is nowhere.
    fn absent(&self, name: &str) -> Result<RunError, RunError> {
        let refs = self.store.refs()?;
        Ok(RunError::NoImage {
            name: name.to_owned(),
            engine: self.engine.map(|(engine, _)| engine.shown().to_owned()),
            stored: refs.into_iter().filter_map(|r| r.name).collect(),
        })
    }
}

/// Looks for an image in the engine. `None` if it has none of that name.
///
/// # Errors
/// If the engine does not answer.
pub async fn in_engine(
    engine: &Engine,
    docker: Option<&Docker>,
    name: &str,
) -> Result<Option<InEngine>, RunError> {
    if let Some(docker) = docker {
        let image = docker.image(name).await?;
        return Ok(image.map(|image| InEngine {
            env: image.env,
            labels: image.labels,
        }));
    }
    if engine.kind != ContainerProgram::Podman || name.starts_with('-') {
        return Ok(None);
    }
    // Podman without its service tells only its own command.
    let path = program::on_path(engine.kind.program()).into_iter().next();
    let read = path
        .and_then(|path| program::output(&path, &["image", "inspect", "--format", "json", name]));
    let document: Option<Value> = read.and_then(|text| serde_json::from_str(&text).ok());
    Ok(document.as_ref().and_then(|all| all.get(0)).map(|image| {
        let texts = |value: &Value| value.as_str().map(str::to_owned);
        let env = image["Config"]["Env"].as_array().into_iter().flatten();
        let labels = image["Config"]["Labels"].as_object().into_iter().flatten();
        InEngine {
            env: env.filter_map(texts).collect(),
            labels: labels
                .filter_map(|(key, value)| Some((key.clone(), texts(value)?)))
                .collect(),
        }
    }))
}
