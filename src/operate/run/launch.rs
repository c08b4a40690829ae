//! How an engine starts a container: by its command, which takes this process's place, or by its API.

use crate::ImageFacts;
use crate::choice::Choice;
use crate::engine::{ContainerProgram, Engine};
use crate::error::RunError;
use crate::gpus::gpus;
use crate::models::{Share, Surroundings, shares};
use crate::quote;
use crate::request::{Port, Request, Source, Variable, Volume};
use crate::setting::Setting;
use crate::shared_memory;
use stackforge_device::{Device, program};
use stackforge_engine::StartRequest;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a container is started, and why so.
#[derive(Debug)]
pub struct Launch {
    pub engine: Engine,
    /// What nobody asked for.
    pub choices: Vec<Choice>,
    asked: Vec<Setting>,
    image: String,
    program: Vec<String>,
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
    let mut choices = start_and_end(request, &engine);
    choices.push(gpus(&request.gpus, device, &engine)?);
    let memory = engine.memory.or(device.memory.total);
    if request.shared_memory.is_none() {
        choices.extend(shared_memory_of(memory));
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
    let here = engine.elsewhere.is_none();
    let volumes: Vec<Volume> = request
        .volumes
        .iter()
        .map(|v| absolute(v, surroundings))
        .collect();
    let asked = asked(request, &volumes);
    let source = |volume: Volume| match volume.source {
        Source::Path(path) if here => Some(path),
        Source::Path(_) | Source::Named(_) => None,
    };
    Ok(Launch {
        engine,
        choices,
        asked,
        image: image.to_owned(),
        program: request.command.clone(),
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
fn start_and_end(request: &Request, engine: &Engine) -> Vec<Choice> {
    let mut choices = Vec::new();
    if request.detach {
        let why = "asked for; the container stays after its end, with its log";
        choices.push(Choice::new("start", [Setting::Detach], why));
    } else {
        let why = "nothing of the container is left behind";
        choices.push(Choice::new("end", [Setting::Remove], why));
        let terminal = request.terminal;
        let why = if terminal {
            "standard input and output are a terminal"
        } else {
            "standard input is passed on"
        };
        choices.push(Choice::new("streams", [Setting::Streams { terminal }], why));
    }
    if engine.init {
        let why = "the kernel ignores SIGTERM and Ctrl-C for a process 1 without handlers";
        choices.push(Choice::new("process 1", [Setting::Init], why));
    }
    choices
}

fn mounted(share: &Share) -> Choice {
    let mount = format!("{}:{}", share.host.display(), share.inside);
    let variable = Variable {
        name: share.variable.to_owned(),
        value: Some(share.inside.to_owned()),
    };
    let settings = [Setting::Bind(mount), Setting::Variable(variable)];
    Choice::new("models", settings, share.why.as_str())
}

/// Returns what was asked for.
fn asked(request: &Request, volumes: &[Volume]) -> Vec<Setting> {
    let mut settings = Vec::new();
    settings.extend(request.shared_memory.map(Setting::SharedMemory));
    settings.extend(request.ports.iter().copied().map(Setting::Port));
    settings.extend(request.variables.iter().cloned().map(Setting::Variable));
    settings.extend(volumes.iter().map(bound));
    settings.extend(request.name.clone().map(Setting::Name));
    settings.extend(request.entrypoint.clone().map(Setting::Entrypoint));
    settings
}

fn bound(volume: &Volume) -> Setting {
    let source = match &volume.source {
        Source::Path(path) => path.display().to_string(),
        Source::Named(name) => name.clone(),
    };
    let mut value = format!("{source}:{}", volume.target.display());
    if !volume.options.is_empty() {
        value = format!("{value}:{}", volume.options.join(","));
    }
    Setting::Bind(value)
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
    fn settings(&self) -> impl Iterator<Item = &Setting> {
        let chosen = self.choices.iter().flat_map(|choice| &choice.settings);
        chosen.chain(&self.asked)
    }

    /// Returns the arguments of the engine's command.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Some(address) = &self.engine.address {
            let name = match self.engine.kind {
                ContainerProgram::Docker => "--host",
                ContainerProgram::Podman => "--url",
            };
            arguments.extend([name.to_owned(), address.clone()]);
        }
        arguments.push("run".to_owned());
        arguments.extend(self.settings().flat_map(Setting::arguments));
        arguments.push(self.image.clone());
        arguments.extend(self.program.iter().cloned());
        arguments
    }

    /// Returns the command as a line for a shell.
    pub fn line(&self) -> String {
        let arguments = self.arguments();
        let arguments = arguments.iter().map(String::as_str);
        quote::line([self.engine.kind.program()].into_iter().chain(arguments))
    }

    /// Returns what the engine's API is asked for.
    pub(crate) fn start_request(&self) -> StartRequest {
        let mut request = StartRequest {
            image: self.image.clone(),
            cmd: self.program.clone(),
            ..StartRequest::default()
        };
        for setting in self.settings() {
            setting.add_to(&mut request, |name| std::env::var(name).ok());
        }
        request
    }

    /// Whether the container goes on by itself.
    pub(crate) fn detaches(&self) -> bool {
        self.settings().any(|setting| *setting == Setting::Detach)
    }

    /// Whether the engine's command is on PATH.
    pub fn has_command(&self) -> bool {
        !program::on_path(self.engine.kind.program()).is_empty()
    }

    /// Looks whether the container can start, makes the directories of models, and replaces this process by
    /// the engine's command. Returns only the error.
    pub fn replace_process(&self) -> RunError {
        if let Err(error) = self.prepare() {
            return error;
        }
        let name = self.engine.kind.program();
        let source = Command::new(name).args(self.arguments()).exec();
        RunError::Io {
            doing: "start",
            path: name.into(),
            source,
        }
    }

    pub(crate) fn prepare(&self) -> Result<(), RunError> {
        sources_are_there(&self.sources)?;
        ports_are_free(&self.ports)?;
        make(&self.directories)
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

/// Decides how large `/dev/shm` is, if nobody asked for a size.
fn shared_memory_of(memory: Option<u64>) -> Option<Choice> {
    let size = shared_memory::size(memory)?;
    Some(Choice::new(
        "shared memory",
        [Setting::SharedMemory(size)],
        "half of the memory, as outside of containers: torch's data loaders and NCCL pass data \
         through /dev/shm, and engines give it 64 MB",
    ))
}
