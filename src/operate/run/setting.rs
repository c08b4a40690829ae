//! The settings of a container, as arguments of an engine's command or as fields of a request to its API.

use crate::request::{Port, Variable};
use crate::shared_memory;
use stackforge_engine::{Devices, Published, StartRequest};

/// One setting of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// The container goes on without its starter, and stays after its end.
    Detach,
    /// The container is removed at its end.
    Remove,
    /// Standard input is passed on; a terminal is given where one is here.
    Streams {
        terminal: bool,
    },
    /// A small process is process 1.
    Init,
    /// GPUs by Docker's own hook: these, or all.
    Gpus(Option<Vec<String>>),
    /// A device by its CDI name.
    Device(String),
    /// The program that starts containers for the engine.
    Runtime(&'static str),
    /// Bytes of `/dev/shm`.
    SharedMemory(u64),
    Port(Port),
    Variable(Variable),
    /// `SOURCE:TARGET[:OPTIONS]`.
    Bind(String),
    Name(String),
    Entrypoint(String),
}

impl Setting {
    /// Returns the arguments of `docker run` and `podman run`.
    pub fn arguments(&self) -> Vec<String> {
        let with = |name: &str, value: &dyn ToString| vec![name.to_owned(), value.to_string()];
        let alone = |name: &str| vec![name.to_owned()];
        match self {
            Self::Detach => alone("-d"),
            Self::Remove => alone("--rm"),
            Self::Streams { terminal: true } => alone("-it"),
            Self::Streams { terminal: false } => alone("-i"),
            Self::Init => alone("--init"),
            Self::Gpus(None) => with("--gpus", &"all"),
            // Docker parses the value as a line of CSV, so a list needs quotes of its own.
            Self::Gpus(Some(names)) => with("--gpus", &format!("\"device={}\"", names.join(","))),
            Self::Device(name) => with("--device", name),
            Self::Runtime(name) => with("--runtime", name),
            Self::SharedMemory(bytes) => with("--shm-size", &shared_memory::shown(*bytes)),
            Self::Port(port) => with("-p", port),
            Self::Variable(variable) => with("-e", variable),
            Self::Bind(bind) => with("-v", bind),
            Self::Name(name) => with("--name", name),
            Self::Entrypoint(program) => with("--entrypoint", program),
        }
    }

    /// Adds the setting to a request. Variables without a value have that of this process, by `own`.
    pub(crate) fn add_to(&self, request: &mut StartRequest, own: impl Fn(&str) -> Option<String>) {
        match self {
            // Which request is made says these.
            Self::Detach | Self::Remove => {}
            Self::Streams { terminal } => request.terminal = *terminal,
            Self::Init => request.init = true,
            Self::Gpus(None) => request.devices.push(Devices::AllGpus),
            Self::Gpus(Some(names)) => request.devices.push(Devices::Gpus(names.clone())),
            Self::Device(name) => request.devices.push(Devices::Cdi(vec![name.clone()])),
            Self::Runtime(name) => request.runtime = Some((*name).to_owned()),
            Self::SharedMemory(bytes) => request.shm_size = Some(*bytes),
            Self::Port(port) => request.ports.push(Published {
                address: port.address,
                host: port.host,
                inside: port.inside,
                udp: port.udp,
            }),
            Self::Variable(Variable { name, value }) => {
                let value = value.clone().or_else(|| own(name));
                // A name alone takes the image's variable away.
                let assigned =
                    value.map_or_else(|| name.clone(), |value| format!("{name}={value}"));
                request.env.push(assigned);
            }
            Self::Bind(bind) => request.binds.push(bind.clone()),
            Self::Name(name) => request.name = Some(name.clone()),
            Self::Entrypoint(program) => request.entrypoint = Some(vec![program.clone()]),
        }
    }
}
