//! Finds the image that is run: in the engine, in the store, else in its registry.

use super::super::args::{Common, RunArgs};
use super::super::output::{Failure, print_status, warn};
use super::super::progress::{Amount, mib};
use super::super::push::{plain_http, stored};
use super::subject::Subject;
use serde_json::Value;
use stackforge_device::{Device, program};
use stackforge_distribute::pull::{self, Machine, Place, Settings, Wanted, image_in};
use stackforge_engine::docker::Docker;
use stackforge_image::oci::{self, Image};
use stackforge_image::store::Store;
use stackforge_run::native::AtRest;
use stackforge_run::{Engine, Kind};
use stackforge_stack::config::Config;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::labels;
use stackforge_stack::spec::Platform;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::registry::{Reference, Target};
use stackforge_types::printable::word;
use stackforge_types::{Cancel, Digest};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the image was found.
pub(super) enum Here {
    /// In the engine, under this name, with these variables.
    Engine {
        name: String,
        env: Option<Vec<String>>,
    },
    AtRest(AtRest),
}

pub(super) struct Found {
    pub here: Here,
    pub labels: BTreeMap<String, String>,
}

/// An image of the engine.
pub(super) struct InEngine {
    pub env: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

/// Where images are looked for.
pub(super) struct Search<'a> {
    pub common: &'a Common,
    pub args: &'a RunArgs,
    pub store: &'a Store,
    pub engine: Option<(&'a Engine, Option<&'a Docker>)>,
}

impl Found {
    fn at_rest(image: Image) -> Self {
        let labels = image
            .config
            .config()
            .as_ref()
            .and_then(|c| c.labels().clone());
        Self {
            labels: labels.unwrap_or_default().into_iter().collect(),
            here: Here::AtRest(AtRest::Image(Box::new(image))),
        }
    }

    /// Warns of an image that an earlier form of the stack made.
    pub fn warnings(&self, common: &Common, subject: &Subject) {
        let Subject::Stack {
            file,
            project,
            chosen,
            name,
        } = subject
        else {
            return;
        };
        // Without a lock, or if the stack cannot work, there is no plan to compare with.
        let Ok(planned) = project.plan(chosen) else {
            return;
        };
        let key = planned.plan.image_key().to_string();
        if self.labels.get(labels::KEY) == Some(&key) {
            return;
        }
        let warning = Diagnostic::warning(
            codes::STACK_CHANGED,
            format!("{} changed since `{name}` was built", file.display()),
        );
        warn(
            common,
            &project.report(vec![warning.help(build_command(subject))]),
        );
    }
}

/// Returns the advice to build a stack.
fn build_command(subject: &Subject) -> String {
    let Subject::Stack {
        file,
        chosen,
        project,
        ..
    } = subject
    else {
        return String::new();
    };
    let file = file.display().to_string();
    let mut command = format!("stackforge build {}", word(&file));
    if project.file.single().is_none() {
        command += &format!(" --variant {}", word(chosen.stack.name()));
    }
    format!("run `{command}`")
}

impl Search<'_> {
    pub async fn find(&self, subject: &Subject) -> Result<Found, Failure> {
        match subject {
            Subject::AtRest(at_rest) => Ok(Found::at_rest(at_rest.1.clone())),
            Subject::Root { path } => Ok(Found {
                here: Here::AtRest(AtRest::Directory {
                    path: path.clone(),
                    image: image_in(path).and_then(|digest| self.origin(&digest)),
                }),
                labels: BTreeMap::new(),
            }),
            Subject::Stack { name, file, .. } => match self.local(name, name).await? {
                Some(found) => Ok(found),
                None => Err(Failure::of(
                    Diagnostic::error(
                        codes::STACK_NOT_BUILT,
                        format!(
                            "{} is not built: there is no image `{name}`",
                            file.display()
                        ),
                    )
                    .help(build_command(subject)),
                )),
            },
            Subject::Name(name) => self.named(name).await,
        }
    }

    /// Returns the image that a root file system was made of, if the store still has its documents.
    fn origin(&self, digest: &Digest) -> Option<Box<Image>> {
        let size = std::fs::metadata(self.store.blob_path(digest)).ok()?.len();
        let image = oci::of_manifest(self.store.root(), digest, size).ok()?;
        Some(Box::new(image))
    }

    async fn named(&self, name: &str) -> Result<Found, Failure> {
        let reference = name.parse::<Reference>();
        let pinned = match reference.as_ref().map(Reference::target) {
            Ok(Target::Digest(digest)) => Some(digest),
            _ => None,
        };
        let full = reference
            .as_ref()
            .map(pull::name)
            .unwrap_or_else(|_| name.to_owned());
        let local = match &pinned {
            // Another image may have the name by now.
            Some(digest) => self
                .pinned(&full, digest)?
                .map(|image| (image, full.clone())),
            None => match self.local(name, &full).await? {
                Some(found) => return Ok(found),
                None => None,
            },
        };
        if let Some((image, full)) = local {
            return self.brought(image, &full).await;
        }
        match reference {
            Ok(reference) if name.contains('/') => self.pulled(&reference, &full).await,
            _ => Err(self.absent(name)?),
        }
    }

    fn pinned(&self, full: &str, digest: &Digest) -> Result<Option<Image>, Failure> {
        let refs = self.store.refs()?;
        let is_it = |r: &&stackforge_image::store::Ref| {
            r.name.as_deref() == Some(full) && r.digest == *digest
        };
        if refs.iter().find(is_it).is_none() {
            return Ok(None);
        }
        let text = digest.to_string();
        Ok(Some(oci::open(
            self.store.root(),
            Some(&text),
            Platform::of_processor(),
        )?))
    }

    /// Looks in the engine and in the store. `full` is the name in the store of what was pulled.
    async fn local(&self, name: &str, full: &str) -> Result<Option<Found>, Failure> {
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
        let own = stored(self.store, name, Platform::of_processor())?;
        let own = match own {
            Some(image) => Some((image, name)),
            None => stored(self.store, full, Platform::of_processor())?.map(|image| (image, full)),
        };
        match own {
            Some((image, name)) => Ok(Some(self.brought(image, name).await?)),
            None => Ok(None),
        }
    }

    /// Brings an image of the store into the engine, if there is one that takes it.
    async fn brought(&self, image: Image, name: &str) -> Result<Found, Failure> {
        let Some((engine, docker)) = self.engine else {
            return Ok(Found::at_rest(image));
        };
        let (Some(docker), Some(assembled)) = (docker, pull::assembled(&image)) else {
            print_status(
                self.common,
                &format!(
                    "{} does not have {name}: running it without an engine",
                    engine.shown()
                ),
            );
            return Ok(Found::at_rest(image));
        };
        print_status(
            self.common,
            &format!("bringing {name} into {}", docker.server()),
        );
        Place::Docker
            .write(&assembled, name, 1, self.store, &Cancel::new())
            .await?;
        let found = Found::at_rest(image);
        let env = match &found.here {
            Here::AtRest(AtRest::Image(image)) => {
                image.config.config().as_ref().and_then(|c| c.env().clone())
            }
            _ => None,
        };
        Ok(Found {
            here: Here::Engine {
                name: name.to_owned(),
                env: Some(env.unwrap_or_default()),
            },
            labels: found.labels,
        })
    }

    /// Pulls what is not here, as `pull` does.
    async fn pulled(&self, reference: &Reference, full: &str) -> Result<Found, Failure> {
        if self.common.offline {
            return Err(Failure::of(
                Diagnostic::error(
                    codes::OFFLINE,
                    format!("{reference} is not here, and an image is pulled over the network"),
                )
                .help("leave `--offline` out"),
            ));
        }
        let config = Config::load()?;
        let wanted = match &self.args.variant {
            Some(name) => Wanted::Variant(name.clone()),
            None => {
                let catalog = stackforge_stack::catalog::load(self.common.catalog.as_deref())?;
                Wanted::Machine(Machine::of(&Device::here(), &catalog))
            }
        };
        let amount = Arc::new(Amount::new(self.common, &reference.to_string()));
        let settings = Settings {
            store: self.store,
            config: &config,
            plain_http: plain_http(self.args.plain_http),
            patience: RetryPolicy::default(),
            rate: None,
            observer: Some(amount.observer()),
        };
        let resolved = pull::resolve(reference, &wanted, &settings).await?;
        if let Some(taken) = resolved.choice.as_ref().and_then(|c| c.taken.as_ref()) {
            print_status(self.common, &format!("{}: {}", taken.variant, taken.why));
        }
        amount.expect(resolved.bytes_left(self.store));
        let fetched = pull::fetch(&resolved, &settings, None).await;
        amount.end();
        let fetched = fetched?;
        pull::keep(self.store, full, &resolved.manifest.digest, 1)?;
        print_status(
            self.common,
            &format!(
                "{reference}: {} fetched, {} there already",
                mib(fetched.bytes),
                mib(fetched.kept)
            ),
        );
        self.brought(fetched.image, full).await
    }

    /// Returns the failure that the image is nowhere.
    fn absent(&self, name: &str) -> Result<Failure, Failure> {
        let refs = self.store.refs()?;
        let names: Vec<&str> = refs.iter().filter_map(|r| r.name.as_deref()).collect();
        let mut message = match &self.engine {
            Some((engine, _)) => format!(
                "neither {} nor the store has an image `{name}`",
                engine.shown()
            ),
            None => format!("the store has no image `{name}`, and no container engine was asked"),
        };
        if !names.is_empty() {
            message += &format!("; the store has {}", names.join(", "));
        }
        let hub: String = name.chars().take(100).collect();
        Ok(Failure::of(
            Diagnostic::error(codes::NO_SUCH_IMAGE, message).help(format!(
                "name one that is here, a stack file, `oci:DIR` or `rootfs:DIR`; to pull it from Docker Hub, write \
                 `docker.io/library/{hub}`"
            )),
        ))
    }
}

/// Looks for an image in the engine. `None` if it has none of that name.
pub(super) async fn in_engine(
    engine: &Engine,
    docker: Option<&Docker>,
    name: &str,
) -> Result<Option<InEngine>, Failure> {
    if let Some(docker) = docker {
        let image = docker.image(name).await?;
        return Ok(image.map(|image| InEngine {
            env: image.env,
            labels: image.labels,
        }));
    }
    if engine.kind != Kind::Podman || name.starts_with('-') {
        return Ok(None);
    }
    // Podman without its service tells only its own command.
    let path = program::on_path(engine.kind.program()).into_iter().next();
    let told = path
        .and_then(|path| program::output(&path, &["image", "inspect", "--format", "json", name]));
    let told: Option<Value> = told.and_then(|text| serde_json::from_str(&text).ok());
    Ok(told.as_ref().and_then(|all| all.get(0)).map(|image| {
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
