//! Errors of a build.

use crate::audit::{Audit, TreeError};
use crate::diag::{Code, Explained, codes};
use crate::prune::PruneError;
use crate::publish::PublishError;
use crate::pull::PullError;
use crate::render::RenderError;
use crate::resolve::PackageError;
use crate::spec::Platform;
use crate::validate::Report;
use stackforge_engine::{EngineError, StepFailure};
use stackforge_image::assemble::AssembleError;
use stackforge_image::layer::LayerError;
use stackforge_image::oci::OciError;
use stackforge_image::store::StoreError;
use stackforge_image::unpack::UnpackError;
use stackforge_sandbox::SandboxError;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("{failure}")]
    Step {
        failure: Box<StepFailure>,
        log: PathBuf,
    },
    #[error("the image does not validate: {}", report.summary())]
    Validation { report: Box<Report>, log: PathBuf },
    /// As `Validation`, for an image at rest.
    #[error("the image does not validate: {}", report.summary())]
    Invalid { report: Box<Report> },
    #[error("{what} does not fit the stack: {}", audit.count())]
    Audit { what: String, audit: Box<Audit> },
    #[error(transparent)]
    Unread(#[from] TreeError),
    #[error("the image does not hold what the lock says: {}", some(.differences))]
    NotTheLocks { differences: Vec<String> },
    #[error("the image has no validation report: {reason}")]
    NoReport { reason: String },
    #[error("the validation was killed for memory{}", if *.certain { "" } else { ", most likely" })]
    ValidationMemory { certain: bool },
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("{} is no directory", path.display())]
    NoRoot { path: PathBuf },
    #[error("the engine has no image `{image}`")]
    NoImage { image: String },
    #[error("no image is for {platform}; there is {there}")]
    OtherPlatform { platform: Platform, there: String },
    #[error("the engine runs on {engine}, the stack is for {platform}")]
    WrongArchitecture { engine: String, platform: Platform },
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error(transparent)]
    Prune(#[from] PruneError),
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    #[error(transparent)]
    Image(#[from] OciError),
    #[error("unpack a layer")]
    Unpack(#[source] UnpackError),
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(transparent)]
    Push(#[from] PublishError),
    #[error(transparent)]
    Package(#[from] PackageError),
    #[error("the base `{base}` is no image that can be fetched")]
    NoBase { base: String },
    #[error("`{library}` has to be compiled first")]
    MustCompile { library: String },
    #[error("the base's own apt would have to choose {packages}")]
    MustInstall { packages: String },
    #[error("`{base}` has no shell, which the steps of a Dockerfile run in")]
    NoShell { base: String },
    #[error("`prune: true`: the steps of a Dockerfile install wheels with all their device code")]
    Prunes,
    #[error("a Docker engine writes no files")]
    EngineWritesNoFiles,
    #[error("stopped")]
    Stopped,
    #[error("{message}")]
    Packages {
        code: Code,
        message: String,
        help: String,
    },
}

impl BuildError {
    pub fn code(&self) -> Code {
        match self {
            Self::Step { failure, .. } if failure.killed_for_memory => codes::KILLED_FOR_MEMORY,
            Self::Step { failure, .. } if hash_mismatch(failure) => codes::HASH_MISMATCH,
            Self::Step { failure, .. }
                if failure
                    .tail
                    .iter()
                    .any(|l| l.contains("No space left on device")) =>
            {
                codes::NO_SPACE
            }
            Self::Step { .. } => codes::STEP_FAILED,
            Self::Validation { .. } | Self::Invalid { .. } => codes::VALIDATION_FAILED,
            Self::Unpack(_) => codes::IMAGE_UNREADABLE,
            Self::Audit { .. } => codes::AUDIT_FAILED,
            Self::Unread(TreeError::Layer { .. }) => codes::IMAGE_UNREADABLE,
            Self::Unread(_) => codes::OBJECT_DAMAGED,
            Self::NotTheLocks { .. } => codes::NOT_THE_LOCKS,
            Self::NoReport { .. } => codes::NO_REPORT,
            Self::ValidationMemory { .. } => codes::KILLED_FOR_MEMORY,
            Self::Sandbox(e) => sandbox_code(e),
            Self::NoImage { .. } | Self::OtherPlatform { .. } | Self::NoRoot { .. } => {
                codes::NO_SUCH_IMAGE
            }
            Self::WrongArchitecture { .. } => codes::ENGINE_REFUSED,
            Self::Engine(e) => engine_code(e),
            Self::Render(_) => codes::TEMPLATE,
            Self::Assemble(_) => codes::STORE_IO,
            Self::Layer(LayerError::Write(_)) => codes::STORE_IO,
            Self::Layer(_) | Self::Prune(PruneError::Zip(_)) => codes::WHEEL_UNSOUND,
            Self::Prune(PruneError::Member { .. }) => codes::STORE_IO,
            Self::Image(_) => codes::IMAGE_UNREADABLE,
            Self::Pull(e) => e.code(),
            Self::Push(e) => e.code(),
            Self::Package(e) => e.code(),
            Self::NoBase { .. } => codes::NO_SUCH_IMAGE,
            Self::MustCompile { .. } | Self::MustInstall { .. } => codes::NEEDS_ENGINE,
            Self::NoShell { .. } | Self::Prunes | Self::EngineWritesNoFiles => codes::NEEDS_NATIVE,
            Self::Stopped => codes::INTERRUPTED,
            Self::Store(e) => e.code(),
            Self::Io { .. } => codes::STORE_IO,
            Self::Packages { code, .. } => *code,
        }
    }

    pub fn help(&self) -> Option<String> {
        match self {
            Self::Engine(e) => Some(e.help().to_owned()),
            Self::Packages { help, .. } => Some(help.clone()),
            Self::Pull(e) => Some(e.help()),
            Self::Push(e) => Some(e.help()),
            Self::Store(e) => Some(e.help().to_owned()),
            Self::Package(e) => Some(e.help()),
            Self::Sandbox(e) => Some(e.help()),
            Self::NoRoot { .. } => {
                Some("name the directory of a root file system: `rootfs:/` is this machine".into())
            }
            Self::ValidationMemory { .. } => {
                Some("give the machine more memory, or stop what else runs on it".into())
            }
            Self::MustInstall { .. } => Some(
                "`stackforge lock STACK --pull` reads what the base has and locks what it lacks; or build with `--engine docker`".into(),
            ),
            Self::NoImage { .. } => {
                Some("`docker images` lists what is there; pull or build it first".to_owned())
            }
            Self::WrongArchitecture { platform, .. } => Some(format!(
                "point DOCKER_HOST at an engine on {}, over ssh:// for instance",
                platform.machine()
            )),
            _ => self.code().explanation().map(|e| e.fix.to_owned()),
        }
    }

    /// Returns the exit status: 1 the stack or image is bad, 2 something requested is missing, 3 the environment
    /// lacks something, 130 interrupted.
    pub fn exit(&self) -> u8 {
        match self.code() {
            codes::INTERRUPTED => 130,
            codes::NO_SUCH_IMAGE => 2,
            codes::PACKAGE_GONE | codes::MIRROR_UNKNOWN => 3,
            codes::PROGRAM_MISSING => 1,
            code if code.0 / 100 == 3 => 3,
            _ => 1,
        }
    }
}

pub fn engine_code(e: &EngineError) -> Code {
    match e {
        EngineError::NotReachable { .. } => codes::ENGINE_MISSING,
        EngineError::Gone { .. } => codes::ENGINE_GONE,
        EngineError::NoSpace { .. } => codes::NO_SPACE,
        EngineError::Cancelled { .. } => codes::INTERRUPTED,
        EngineError::StepFailed(_) => codes::STEP_FAILED,
        EngineError::DockerfileSyntax { .. } => codes::TEMPLATE,
        EngineError::Unsupported { what, .. } if what.contains("GPU") => codes::GPU_UNAVAILABLE,
        EngineError::Context { .. } | EngineError::Log { .. } => codes::STORE_IO,
        EngineError::Misnamed { .. } => codes::MISNAMED,
        EngineError::TooOld { .. } => codes::ENGINE_TOO_OLD,
        _ => codes::ENGINE_REFUSED,
    }
}

fn sandbox_code(e: &SandboxError) -> Code {
    match e {
        SandboxError::NotAllowed { .. } => codes::NAMESPACES_REFUSED,
        SandboxError::Overlay { .. } => codes::OVERLAY_REFUSED,
        SandboxError::Program { .. } => codes::PROGRAM_MISSING,
        SandboxError::Cancelled => codes::INTERRUPTED,
        SandboxError::Setup { .. }
        | SandboxError::Invalid { .. }
        | SandboxError::Lost
        | SandboxError::Unreadable { .. } => codes::SANDBOX_FAILED,
    }
}

/// Whether pip or uv reported a file whose digest is not the locked one.
fn hash_mismatch(failure: &StepFailure) -> bool {
    failure.tail.iter().any(|line| {
        line.contains("Hash mismatch")
            || line.contains("DO NOT MATCH THE HASHES")
            || line.contains("hash mismatch")
    })
}

/// Joins the first few of `differences`.
fn some(differences: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = differences[..differences.len().min(SHOWN)].join("; ");
    if let Some(more @ 1..) = differences.len().checked_sub(SHOWN) {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

/// Returns an error's text with those of its sources, each text once.
pub fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut source = e.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}
