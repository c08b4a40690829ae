//! Errors of a build.

use crate::render::RenderError;
use crate::service::AccountError;
use crate::validate::Report;
use stackforge_audit::prune::PruneError;
use stackforge_audit::{Audit, TreeError};
use stackforge_debian::fetch::FetchDebsError as DebError;
use stackforge_debian::finish::FinishError;
use stackforge_debian::mirror::MirrorError;
use stackforge_debian::rootfs::RootfsError;
use stackforge_distribute::publish::PublishError;
use stackforge_distribute::pull::PullError;
use stackforge_engine::{EngineError, StepFailure};
use stackforge_image::assemble::AssembleError;
use stackforge_image::layer::LayerError;
use stackforge_image::oci::OciError;
use stackforge_image::store::StoreError;
use stackforge_image::unpack::UnpackError;
use stackforge_resolve::PackageError;
use stackforge_sandbox::SandboxError;
use stackforge_stack::diag::{Code, Explained, codes, of_disk};
use stackforge_stack::spec::Platform;
use stackforge_transfer::fetch::FetchError;
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
    #[error("the image does not hold what the lock says: {}", join_first(.differences))]
    NotTheLocks { differences: Vec<String> },
    #[error(
        "the wheel that was built of {library} has version {found}, and its options make it {wanted}"
    )]
    OtherVersion {
        library: String,
        found: String,
        wanted: String,
    },
    #[error("the image has no validation report: {reason}")]
    NoReport { reason: String },
    #[error("the validation was killed for memory{}", if *.certain { "" } else { ", most likely" })]
    ValidationMemory { certain: bool },
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("{} is not a directory", path.display())]
    NoRoot { path: PathBuf },
    #[error("the engine has no image `{image}`")]
    NoImage { image: String },
    #[error("no image is for {platform}; there is {found}")]
    OtherPlatform { platform: Platform, found: String },
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
    #[error("the base `{base}` is not an image that can be fetched")]
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
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error("{} changed while the image was built", path.display())]
    AppChanged { path: PathBuf },
    #[error("the app's project cannot be installed: {why}")]
    Project { why: String },
    #[error("`{path}` leads through `{link}`, which the base has as a link to `{to}`")]
    ThroughLink {
        path: String,
        link: String,
        to: String,
    },
    #[error("stopped")]
    Stopped,
    #[error(transparent)]
    Mirrors(#[from] MirrorError),
    #[error(transparent)]
    Client(#[from] FetchError),
    #[error(transparent)]
    Debs(Box<DebError>),
    #[error("make the base's root file system")]
    System(#[source] Box<FinishError>),
    #[error(
        "packages' scripts have to run, and this machine runs no programs for {platform}: {reason}"
    )]
    ForeignScripts {
        reason: Box<FinishError>,
        platform: Platform,
    },
    #[error(
        "packages' scripts have to run, which changes owners of files and takes root: {reason}"
    )]
    ScriptsNeedRoot { reason: Box<FinishError> },
    #[error("make the base's root file system")]
    Rootfs(#[source] Box<RootfsError>),
}

impl From<DebError> for BuildError {
    fn from(e: DebError) -> Self {
        Self::Debs(Box::new(e))
    }
}

impl From<FinishError> for BuildError {
    fn from(e: FinishError) -> Self {
        Self::System(Box::new(e))
    }
}

impl From<RootfsError> for BuildError {
    fn from(e: RootfsError) -> Self {
        Self::Rootfs(Box::new(e))
    }
}

impl Explained for BuildError {
    fn code(&self) -> Code {
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
            Self::Audit { .. } => codes::AUDIT_FAILED,
            Self::NotTheLocks { .. } => codes::NOT_THE_LOCKS,
            Self::OtherVersion { .. } => codes::BUILD_OPTION,
            Self::NoReport { .. } => codes::NO_REPORT,
            Self::ValidationMemory { .. } => codes::KILLED_FOR_MEMORY,
            Self::NoImage { .. }
            | Self::OtherPlatform { .. }
            | Self::NoRoot { .. }
            | Self::NoBase { .. } => codes::NO_SUCH_IMAGE,
            Self::WrongArchitecture { .. } => codes::ENGINE_REFUSED,
            Self::MustCompile { .. } | Self::MustInstall { .. } => codes::NEEDS_ENGINE,
            Self::NoShell { .. } | Self::Prunes | Self::EngineWritesNoFiles => codes::NEEDS_NATIVE,
            Self::Account(_) | Self::ThroughLink { .. } | Self::Project { .. } => codes::APP_UNFIT,
            Self::AppChanged { .. } => codes::APP_CHANGED,
            Self::Stopped => codes::INTERRUPTED,
            Self::Io { source, .. } => of_disk(source),
            Self::Unread(e) => e.code(),
            Self::Sandbox(e) => e.code(),
            Self::Engine(e) => e.code(),
            Self::Render(e) => e.code(),
            Self::Store(e) => e.code(),
            Self::Layer(e) => e.code(),
            Self::Prune(e) => e.code(),
            Self::Assemble(e) => e.code(),
            Self::Image(e) => e.code(),
            Self::Unpack(e) => e.code(),
            Self::Pull(e) => e.code(),
            Self::Push(e) => e.code(),
            Self::Package(e) => e.code(),
            Self::Mirrors(e) => e.code(),
            Self::Client(e) => e.code(),
            Self::Debs(e) => e.code(),
            Self::System(e) => e.code(),
            Self::ForeignScripts { reason, .. } | Self::ScriptsNeedRoot { reason } => reason.code(),
            Self::Rootfs(e) => e.code(),
        }
    }

    fn help(&self) -> String {
        match self {
            Self::NoRoot { .. } => {
                "name the directory of a root file system: `rootfs:/` is this machine".to_owned()
            }
            Self::ValidationMemory { .. } => {
                "give the machine more memory, or stop what else runs on it".to_owned()
            }
            Self::OtherVersion { .. } => {
                "let `local_version` of the recipe name the variable that the library's build takes its local version from, or remove `options`".to_owned()
            }
            Self::MustInstall { .. } => {
                "`stackforge lock STACK --pull` reads what the base has and locks what it lacks; or build with `--engine docker`".to_owned()
            }
            Self::Account(_) => {
                "choose another name or number for `image.user`, or leave the numbers out".to_owned()
            }
            Self::Project { .. } => {
                "correct its `pyproject.toml`, or set `install: false`".to_owned()
            }
            Self::ThroughLink { to, .. } => format!("write the place that it leads to, `{to}`"),
            Self::NoImage { .. } => {
                "`docker images` lists what is there; pull or build it first".to_owned()
            }
            Self::WrongArchitecture { platform, .. } => format!(
                "point DOCKER_HOST at an engine on {}, over ssh:// for instance",
                platform.machine()
            ),
            Self::Unread(e) => e.help(),
            Self::Sandbox(e) => e.help(),
            Self::Engine(e) => Explained::help(e),
            Self::Render(e) => e.help(),
            Self::Store(e) => e.help(),
            Self::Layer(e) => e.help(),
            Self::Prune(e) => e.help(),
            Self::Assemble(e) => e.help(),
            Self::Image(e) => e.help(),
            Self::Unpack(e) => e.help(),
            Self::Pull(e) => e.help(),
            Self::Push(e) => e.help(),
            Self::Package(e) => e.help(),
            Self::Mirrors(e) => e.help(),
            Self::Client(e) => e.help(),
            Self::Debs(e) => Explained::help(e.as_ref()),
            Self::System(e) => Explained::help(e.as_ref()),
            Self::ScriptsNeedRoot { .. } => {
                "build as root (`sudo stackforge build …`), or with `--engine docker`".to_owned()
            }
            Self::ForeignScripts { .. } if stackforge_sandbox::supported().is_err() => {
                "build with `--engine docker`, or start stackforge on Linux".to_owned()
            }
            Self::ForeignScripts { platform, .. } => format!(
                "install qemu-user-static and binfmt-support, with which this machine runs programs for {platform}, \
                 or build on such a machine"
            ),
            Self::Rootfs(e) => Explained::help(e.as_ref()),
            _ => self.code().fix().to_owned(),
        }
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
fn join_first(differences: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = differences[..differences.len().min(SHOWN)].join("; ");
    if let Some(more @ 1..) = differences.len().checked_sub(SHOWN) {
        text.push_str(&format!("; and {more} more"));
    }
    text
}
