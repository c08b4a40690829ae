//! Runs an image at rest, or a root file system, in a sandbox: without an engine and without root.
//!
//! The program has the host's network, the caller's streams, terminal and signals, and what the image's
//! configuration says. What it writes goes into a directory of the store, which is removed at the end.

use crate::choice::Choice;
use crate::error::RunError;
use crate::launch::{absolute, make, ports_are_free, sources_are_there};
use crate::models::{Surroundings, shares};
use crate::request::{Gpus, Request, Source};
use crate::{shared_memory, user};
use oci_spec::image::Config;
use stackforge_build::{root_environment, unpacked};
use stackforge_device::Device;
use stackforge_image::oci::Image;
use stackforge_image::store::Store;
use stackforge_sandbox::{
    Mount, Network, Root, Sandbox, SandboxError, Writes, gpu, remove, supported,
};
use stackforge_stack::spec::Platform;
use stackforge_types::Cancel;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a sandbox has as its root.
#[derive(Debug)]
pub enum AtRest {
    /// An image of the store, a layout or an archive. Its layers are unpacked into the store.
    Image(Box<Image>),
    /// A root file system, and the image that it was made of, if that is known.
    Directory {
        path: PathBuf,
        image: Option<Box<Image>>,
    },
}

/// A program that is ready to start.
#[derive(Debug)]
pub struct Prepared {
    sandbox: Sandbox,
    /// What nobody asked for.
    pub choices: Vec<Choice>,
}

/// Unpacks what has to be unpacked, and decides how the program is started. `name` is the image's, for messages.
///
/// # Errors
/// If the image is for another platform or cannot be unpacked, or something was asked for that only an engine
/// does or that is not there.
pub async fn prepare(
    request: &Request,
    name: &str,
    what: AtRest,
    surroundings: &Surroundings,
    store: &Store,
    cancel: &Cancel,
) -> Result<Prepared, RunError> {
    supported()?;
    only_an_engine(request)?;
    ports_are_free(&request.ports)?;
    let (layers, config, env) = match what {
        AtRest::Image(image) => {
            if let Some(host) = Platform::host() {
                image.is_for(host)?;
            }
            let config = image.config.config().clone().unwrap_or_default();
            (unpacked(store, &image, cancel)?, config, BTreeMap::new())
        }
        AtRest::Directory { path, image } => {
            let env = match &image {
                Some(_) => BTreeMap::new(),
                None => root_environment(&path),
            };
            let config = image.and_then(|i| i.config.config().clone());
            let config = config.unwrap_or_default();
            (vec![path], config, env)
        }
    };
    let found = user::find(config.user().as_deref().unwrap_or_default(), &layers)?;
    let root = Root {
        layers,
        writes: Writes::Discard,
    };
    let mut sandbox = Sandbox::new(root, command(request, name, &config)?);
    let image_env = config.env().clone().unwrap_or_default();
    sandbox.env = environment(request, env, &image_env, &found.home);
    sandbox.user = (found.user.uid != 0 || found.user.gid != 0).then_some(found.user);
    if let Some(directory) = config.working_dir().as_ref().filter(|d| d.starts_with('/')) {
        sandbox.cwd = directory.into();
    }
    sandbox.network = Network::Host;
    let mut choices = vec![Choice::nothing(
        "network",
        "the host's: ports of the program are ports of this device",
    )];
    choices.push(give_gpus(&request.gpus, &mut sandbox)?);
    let memory = Device::memory_here();
    sandbox.shm_size = request
        .shared_memory
        .or_else(|| shared_memory::size(memory));
    mount(
        request,
        surroundings,
        &image_env,
        &mut sandbox,
        &mut choices,
    )?;
    Ok(Prepared { sandbox, choices })
}

fn only_an_engine(request: &Request) -> Result<(), RunError> {
    let refuse = |what: String, help: &str| {
        Err(RunError::OnlyEngine {
            what,
            help: help.to_owned(),
        })
    };
    if request.detach {
        return refuse(
            "`-d`".to_owned(),
            "without an engine the program ends with this process: start that with `systemd-run`, or \
             `nohup` and `&`",
        );
    }
    if request.name.is_some() {
        return refuse(
            "`--name`".to_owned(),
            "leave it out: there is no list of names",
        );
    }
    let moved = request
        .ports
        .iter()
        .find(|p| p.host != p.inside || p.address.is_some());
    if let Some(port) = moved {
        return refuse(
            format!("`-p {port}`"),
            "the program has the host's network: leave `-p` out, and have it listen on that address \
             and port itself",
        );
    }
    for volume in &request.volumes {
        if let Source::Named(name) = &volume.source {
            return refuse(
                format!("the volume `{name}`"),
                "name a directory, `./DIR` for instance",
            );
        }
        if let Some(option) = volume
            .options
            .iter()
            .find(|o| !["ro", "rw"].contains(&o.as_str()))
        {
            return refuse(
                format!("the option `{option}` of a volume"),
                "use `ro` or `rw`",
            );
        }
    }
    Ok(())
}

/// Returns the program and its arguments. As with engines, an entry point that was asked for is used without
/// the image's arguments.
fn command(request: &Request, name: &str, config: &Config) -> Result<Vec<String>, RunError> {
    let (mut command, own) = match &request.entrypoint {
        Some(program) => (vec![program.clone()], Vec::new()),
        None => (
            config.entrypoint().clone().unwrap_or_default(),
            config.cmd().clone().unwrap_or_default(),
        ),
    };
    match request.command.as_slice() {
        [] => command.extend(own),
        asked => command.extend(asked.iter().cloned()),
    }
    if command.is_empty() {
        return Err(RunError::NoCommand(name.to_owned()));
    }
    Ok(command)
}

/// Returns the program's variables: `base`, over them the image's, what engines set too, and what was asked for.
fn environment(
    request: &Request,
    base: BTreeMap<OsString, OsString>,
    image: &[String],
    home: &str,
) -> BTreeMap<OsString, OsString> {
    let mut env = base;
    let pairs = image.iter().filter_map(|v| v.split_once('='));
    env.extend(pairs.map(|(name, value)| (name.into(), value.into())));
    let mut default = |name: &str, value: &str| {
        env.entry(name.into()).or_insert_with(|| value.into());
    };
    default("PATH", PATH);
    default("HOME", home);
    if request.terminal {
        default("TERM", "xterm");
    }
    for variable in &request.variables {
        let value = variable.value.as_ref().map(OsString::from);
        if let Some(value) = value.or_else(|| std::env::var_os(&variable.name)) {
            env.insert(variable.name.as_str().into(), value);
        }
    }
    env
}

fn give_gpus(asked: &Gpus, sandbox: &mut Sandbox) -> Result<Choice, RunError> {
    const WHAT: &str = "GPU";
    if *asked == Gpus::None {
        return Ok(Choice::nothing(WHAT, "none was asked for"));
    }
    let searched = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let searched: Vec<PathBuf> = std::env::split_paths(&searched).collect();
    let why = "this device has no device file of an NVIDIA driver";
    let Some(mut access) = gpu::Access::find(Path::new("/"), &searched) else {
        return match asked {
            Gpus::Auto => Ok(Choice::nothing(WHAT, why)),
            _ => Err(RunError::NoGpu(why.to_owned())),
        };
    };
    if let Gpus::These(names) = asked {
        let available = access.gpus();
        for name in names {
            // A Jetson's only GPU has no number among its device files.
            let is_only = available.is_empty() && name == "0";
            if !is_only && !available.iter().any(|n| n.to_string() == *name) {
                return Err(RunError::NoSuchGpu {
                    name: name.clone(),
                    available: available.iter().map(u32::to_string).collect(),
                });
            }
        }
        access.retain_gpus(|number| names.contains(&number.to_string()));
    }
    access.give(sandbox);
    Ok(Choice::nothing(
        WHAT,
        format!("the driver's files, found by {}", access.from.display()),
    ))
}

/// Mounts volumes and directories of models.
fn mount(
    request: &Request,
    surroundings: &Surroundings,
    image_env: &[String],
    sandbox: &mut Sandbox,
    choices: &mut Vec<Choice>,
) -> Result<(), RunError> {
    let (shares, left_out) = shares(request, surroundings, Some(image_env));
    let directories: Vec<PathBuf> = shares.iter().map(|s| s.host.clone()).collect();
    make(&directories)?;
    for share in shares {
        let why = format!(
            "{} is {}: {}",
            share.variable,
            share.host.display(),
            share.why
        );
        choices.push(Choice::nothing("models", why));
        sandbox
            .env
            .insert(share.variable.into(), share.inside.into());
        sandbox.mounts.push(Mount::Bind {
            source: share.host,
            target: share.inside.into(),
            writable: true,
        });
    }
    choices.extend(left_out);
    for volume in &request.volumes {
        let volume = absolute(volume, surroundings);
        let writable = !volume.read_only();
        if let Source::Path(source) = volume.source {
            sources_are_there(std::slice::from_ref(&source))?;
            sandbox.mounts.push(Mount::Bind {
                source,
                target: volume.target,
                writable,
            });
        }
    }
    Ok(())
}

impl Prepared {
    /// Runs the program to its end. Returns its exit status, 128 and the signal's number if a signal ended it.
    ///
    /// # Errors
    /// If it could not be started.
    pub async fn run(mut self, store: &Store) -> Result<u8, RunError> {
        let scratch = store.scratch()?;
        let upper = scratch.path().join("upper");
        self.sandbox.root.writes = Writes::Keep(upper.clone());
        let mut ended = self.sandbox.attach().await;
        if let Err(SandboxError::Overlay { source, .. }) = &ended {
            // A store on NFS or on an overlay cannot hold what is written; nothing has started yet.
            tracing::debug!("what the program writes stays in memory: {source}");
            self.sandbox.root.writes = Writes::Discard;
            ended = self.sandbox.attach().await;
        }
        if upper.exists()
            && let Err(error) = remove(None, &upper).await
        {
            tracing::warn!("what the program wrote stays: {error}");
        }
        let code = ended?.code();
        Ok(u8::try_from(code).unwrap_or(u8::MAX))
    }
}
