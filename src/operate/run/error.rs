//! Why an image is not started. How the program ends is an exit status, not an error.

use stackforge_build::BuildError;
use stackforge_distribute::pull::PullError;
use stackforge_engine::EngineError;
use stackforge_image::oci::OciError;
use stackforge_image::store::StoreError;
use stackforge_sandbox::SandboxError;
use stackforge_stack::diag::{Code, Explained, codes};
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Image(#[from] OciError),
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the GPUs of this device cannot be given to a container: {why}")]
    NoGpuAccess { why: String, help: String },
    #[error("{0}")]
    NoGpu(String),
    #[error("there is no GPU `{name}`; there is {}", list(available))]
    NoSuchGpu {
        name: String,
        available: Vec<String>,
    },
    #[error("port {port} of this device is in use")]
    PortInUse { port: u16, udp: bool },
    #[error("{what} needs a container engine")]
    OnlyEngine { what: String, help: String },
    #[error("a volume's source is not there: {}", .0.display())]
    NoSource(PathBuf),
    #[error("this process's signals or terminal cannot be the container's")]
    Signals(#[source] io::Error),
    #[error("{}", nowhere(name, engine.as_deref(), stored))]
    NoImage {
        name: String,
        /// The engine that was asked.
        engine: Option<String>,
        /// Names of the store's images.
        stored: Vec<String>,
    },
    #[error("`{0}` names no program to start")]
    NoCommand(String),
    #[error("the image's user `{0}` is not in its /etc/passwd or /etc/group")]
    NoUser(String),
    #[error("{doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

fn nowhere(name: &str, engine: Option<&str>, stored: &[String]) -> String {
    let mut message = match engine {
        Some(engine) => format!("neither {engine} nor the store has an image `{name}`"),
        None => format!("the store has no image `{name}`, and no container engine was asked"),
    };
    if !stored.is_empty() {
        message += &format!("; the store has {}", stored.join(", "));
    }
    message
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

impl RunError {
    /// Returns the exit status of engines and shells for a program that could not be started: 127 if it is not
    /// there, 126 if it cannot be executed. `None` for other errors.
    pub fn of_program(&self) -> Option<u8> {
        match self {
            Self::Sandbox(SandboxError::Program { source, .. }) => match source.kind() {
                io::ErrorKind::NotFound => Some(127),
                _ => Some(126),
            },
            Self::Engine(EngineError::Program { missing, .. }) => {
                Some(if *missing { 127 } else { 126 })
            }
            _ => None,
        }
    }
}

impl Explained for RunError {
    fn code(&self) -> Code {
        match self {
            Self::Build(e) => e.code(),
            Self::Engine(e) => e.code(),
            Self::Image(e) => e.code(),
            Self::Pull(e) => e.code(),
            Self::Sandbox(e) => e.code(),
            Self::Store(e) => e.code(),
            Self::NoGpuAccess { .. } => codes::GPU_UNAVAILABLE,
            Self::NoGpu(_) | Self::NoSuchGpu { .. } => codes::NO_SUCH_GPU,
            Self::PortInUse { .. } => codes::PORT_IN_USE,
            Self::OnlyEngine { .. } => codes::RUN_NEEDS_ENGINE,
            Self::NoSource(_) => codes::VOLUME_MISSING,
            Self::NoImage { .. } => codes::NO_SUCH_IMAGE,
            Self::NoCommand(_) => codes::NO_COMMAND,
            Self::NoUser(_) => codes::NO_SUCH_USER,
            Self::Io { .. } | Self::Signals(_) => codes::STORE_IO,
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Build(e) => e.help(),
            Self::Engine(e) => Explained::help(e),
            Self::Image(e) => e.help(),
            Self::Pull(e) => e.help(),
            Self::Sandbox(e) => Explained::help(e),
            Self::Store(e) => e.help(),
            Self::NoGpuAccess { help, .. } | Self::OnlyEngine { help, .. } => help.clone(),
            Self::NoGpu(_) => {
                "`stackforge doctor` shows what the device has; leave `--gpus` out to run without"
                    .to_owned()
            }
            Self::NoSuchGpu { .. } => "name one of these, or leave `--gpus` out".to_owned(),
            Self::PortInUse { port, udp } => {
                let kind = if *udp { 'u' } else { 't' };
                format!(
                    "`ss -l{kind}np 'sport = :{port}'` shows who has it; `-p OTHER:{port}` takes another one"
                )
            }
            Self::NoImage { name, .. } => {
                let hub: String = name.chars().take(100).collect();
                format!(
                    "name one that is here, a stack file, `oci:DIR` or `rootfs:DIR`; to pull it from Docker Hub, write \
                     `docker.io/library/{hub}`"
                )
            }
            Self::NoCommand(_) => "name it: `stackforge run IMAGE -- PROGRAM`".to_owned(),
            other => other.code().fix().to_owned(),
        }
    }
}
