//! The engine's command that starts a container.

use crate::ImageFacts;
use crate::choice::Choice;
use crate::engine::{Engine, Kind};
use crate::error::RunError;
use crate::gpus::gpus;
use crate::models::{Share, Surroundings, shares};
use crate::quote;
use crate::request::{Port, Request, Source, Volume};
use crate::shared_memory;
use stackforge_device::{Device, program};
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command that starts a container, and why it is what it is.
#[derive(Debug)]
pub struct Launch {
    pub engine: Engine,
    /// The command's arguments, without its name.
    pub arguments: Vec<String>,
    /// What nobody asked for.
    pub choices: Vec<Choice>,
    ports: Vec<Port>,
    /// Directories and files of the host that have to be there.
    sources: Vec<PathBuf>,
    /// Directories of the host that are made if they are missing.
    directories: Vec<PathBuf>,
}

/// Decides how `image` is started.
///
/// # Errors
/// If the GPUs that were asked for cannot be given, or those of the device cannot be given at all.
pub fn launch(
    request: &Request,
    image: &str,
    facts: &ImageFacts,
    device: &Device,
    surroundings: &Surroundings,
    engine: Engine,
) -> Result<Launch, RunError> {
    let mut choices = ways(request, &engine);
    choices.push(gpus(&request.gpus, device, &engine)?);
    let memory = engine.memory.or(device.memory.total);
    if request.shared_memory.is_none() {
        choices.extend(shared_memory::choice(memory));
    }
    let (shares, left_out) = match &engine.elsewhere {
        None => shares(request, surroundings, facts.env.as_deref()),
        Some(place) => {
            let why =
                format!("the engine is at {place}, which does not have this machine's directories");
            (Vec::new(), vec![Choice::nothing("models", why)])
        }
    };
    choices.extend(shares.iter().map(mounted));
    choices.extend(left_out);
    let mut arguments = Vec::new();
    if let Some(address) = &engine.address {
        let name = match engine.kind {
            Kind::Docker => "--host",
            Kind::Podman => "--url",
        };
        arguments.extend([name.to_owned(), address.clone()]);
    }
    arguments.push("run".to_owned());
    arguments.extend(choices.iter().flat_map(|c| c.arguments.iter().cloned()));
    let here = engine.elsewhere.is_none();
    let volumes: Vec<Volume> = request
        .volumes
        .iter()
        .map(|v| absolute(v, surroundings))
        .collect();
    arguments.extend(asked(request, &volumes));
    arguments.push(image.to_owned());
    arguments.extend(request.command.iter().cloned());
    let source = |volume: Volume| match volume.source {
        Source::Path(path) if here => Some(path),
        Source::Path(_) | Source::Named(_) => None,
    };
    Ok(Launch {
        engine,
        arguments,
        choices,
        ports: if here {
            request.ports.clone()
        } else {
            Vec::new()
        },
        sources: volumes.into_iter().filter_map(source).collect(),
        directories: shares.into_iter().map(|share| share.host).collect(),
    })
}

/// Decides how the container is started and ended.
fn ways(request: &Request, engine: &Engine) -> Vec<Choice> {
    let mut choices = Vec::new();
    if request.detach {
        let why = "asked for; the container stays after its end, with its log";
        choices.push(Choice::new("start", ["-d"], why));
    } else {
        let why = "nothing of the container is left behind";
        choices.push(Choice::new("end", ["--rm"], why));
        let (flag, why) = if request.terminal {
            ("-it", "standard input and output are a terminal")
        } else {
            ("-i", "standard input is passed on")
        };
        choices.push(Choice::new("streams", [flag], why));
    }
    if engine.init {
        let why = "the kernel ignores SIGTERM and Ctrl-C for a process 1 without handlers";
        choices.push(Choice::new("process 1", ["--init"], why));
    }
    choices
}

fn mounted(share: &Share) -> Choice {
    let mount = format!("{}:{}", share.host.display(), share.inside);
    let variable = format!("{}={}", share.variable, share.inside);
    Choice::new(
        "models",
        ["-v", &mount, "-e", &variable],
        share.why.as_str(),
    )
}

/// Returns the arguments for what was asked for.
fn asked(request: &Request, volumes: &[Volume]) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    if let Some(size) = request.shared_memory {
        add("--shm-size", shared_memory::shown(size));
    }
    for port in &request.ports {
        add("-p", port.to_string());
    }
    for variable in &request.variables {
        add("-e", variable.to_string());
    }
    for volume in volumes {
        let source = match &volume.source {
            Source::Path(path) => path.display().to_string(),
            Source::Named(name) => name.clone(),
        };
        let mut value = format!("{source}:{}", volume.target.display());
        if !volume.options.is_empty() {
            value = format!("{value}:{}", volume.options.join(","));
        }
        add("-v", value);
    }
    if let Some(name) = &request.name {
        add("--name", name.clone());
    }
    if let Some(entrypoint) = &request.entrypoint {
        add("--entrypoint", entrypoint.clone());
    }
    arguments
}

/// Engines before Docker 23 take a relative path for the name of a volume.
pub(crate) fn absolute(volume: &Volume, surroundings: &Surroundings) -> Volume {
    let source = match &volume.source {
        Source::Path(path) => Source::Path(match (path.strip_prefix("~"), &surroundings.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => clean(&surroundings.directory.join(path)),
        }),
        named => named.clone(),
    };
    Volume {
        source,
        ..volume.clone()
    }
}

/// Returns the path without `.`; `..` stays, because a link may be before it.
fn clean(path: &Path) -> PathBuf {
    path.components().collect()
}

impl Launch {
    /// Returns the command as a line for a shell.
    pub fn line(&self) -> String {
        let program = self.engine.kind.program();
        quote::line(
            [program]
                .into_iter()
                .chain(self.arguments.iter().map(String::as_str)),
        )
    }

    /// Looks whether the container can start, makes the directories of models, and replaces this process by
    /// the command. Returns only the error.
    pub fn replace_process(&self) -> RunError {
        match self.ready() {
            Ok(path) => {
                let source = Command::new(&path).args(&self.arguments).exec();
                RunError::Io {
                    doing: "start",
                    path,
                    source,
                }
            }
            Err(error) => error,
        }
    }

    fn ready(&self) -> Result<PathBuf, RunError> {
        let name = self.engine.kind.program();
        let program = program::on_path(name).into_iter().next();
        let program = program.ok_or_else(|| RunError::NoProgram {
            program: name,
            server: self.engine.shown().to_owned(),
        })?;
        sources_are_there(&self.sources)?;
        ports_are_free(&self.ports)?;
        make(&self.directories)?;
        Ok(program)
    }
}

/// Checks that volumes have something to mount: an engine would make a directory that belongs to root.
pub(crate) fn sources_are_there(sources: &[PathBuf]) -> Result<(), RunError> {
    match sources.iter().find(|path| path.symlink_metadata().is_err()) {
        Some(absent) => Err(RunError::NoSource(absent.clone())),
        None => Ok(()),
    }
}

/// Makes the directories of models that variables name.
pub(crate) fn make(directories: &[PathBuf]) -> Result<(), RunError> {
    for path in directories {
        std::fs::create_dir_all(path).map_err(|source| RunError::Io {
            doing: "create",
            path: path.clone(),
            source,
        })?;
    }
    Ok(())
}

/// Checks that nobody listens on the ports. A port that this user may not open counts as free: an engine may.
pub(crate) fn ports_are_free(ports: &[Port]) -> Result<(), RunError> {
    for port in ports {
        let address = port.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let place = (address, port.host);
        let opened = if port.udp {
            UdpSocket::bind(place).map(drop)
        } else {
            TcpListener::bind(place).map(drop)
        };
        if opened.is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse) {
            return Err(RunError::PortInUse {
                port: port.host,
                udp: port.udp,
            });
        }
    }
    Ok(())
}
