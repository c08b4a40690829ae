//! How a build fails.

use crate::audit::{Audit, TreeError};
use crate::diag::{Code, codes};
use crate::engine::{EngineError, StepFailure};
use crate::render::RenderError;
use crate::spec::Platform;
use crate::store::StoreError;
use crate::validate::Report;
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
    #[error("{what} does not fit the stack: {}", audit.count())]
    Audit { what: String, audit: Box<Audit> },
    #[error(transparent)]
    Unread(#[from] TreeError),
    #[error("the image has no validation report: {reason}")]
    NoReport { reason: String },
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
            Self::Validation { .. } => codes::VALIDATION_FAILED,
            Self::Audit { .. } => codes::AUDIT_FAILED,
            Self::Unread(TreeError::Layer { .. }) => codes::IMAGE_UNREADABLE,
            Self::Unread(_) => codes::OBJECT_DAMAGED,
            Self::NoReport { .. } => codes::NO_REPORT,
            Self::NoImage { .. } | Self::OtherPlatform { .. } => codes::NO_SUCH_IMAGE,
            Self::WrongArchitecture { .. } => codes::ENGINE_REFUSED,
            Self::Engine(e) => engine_code(e),
            Self::Render(_) => codes::TEMPLATE,
            Self::Store(_) | Self::Io { .. } => codes::STORE_IO,
            Self::Packages { code, .. } => *code,
        }
    }

    pub fn help(&self) -> Option<String> {
        match self {
            Self::Engine(e) => Some(e.help().to_owned()),
            Self::Packages { help, .. } => Some(help.clone()),
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

    /// 1 the stack or image is bad, 2 what was asked for is not there, 3 the environment is missing something, 130 interrupted.
    pub fn exit(&self) -> u8 {
        match self.code() {
            codes::INTERRUPTED => 130,
            codes::NO_SUCH_IMAGE => 2,
            codes::PACKAGE_GONE | codes::MIRROR_UNKNOWN => 3,
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
        _ => codes::ENGINE_REFUSED,
    }
}

/// pip's and uv's words for a file that is not the locked one.
fn hash_mismatch(failure: &StepFailure) -> bool {
    failure.tail.iter().any(|line| {
        line.contains("Hash mismatch")
            || line.contains("DO NOT MATCH THE HASHES")
            || line.contains("hash mismatch")
    })
}

/// An error with its sources, each said once.
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
