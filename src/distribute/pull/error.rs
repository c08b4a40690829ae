//! Errors of pulling.

use super::choose::Reason;
use crate::evidence::EvidenceError;
use stackforge_engine::EngineError;
use stackforge_image::assemble::AssembleError;
use stackforge_image::oci::OciError;
use stackforge_image::store::StoreError;
use stackforge_image::unpack::UnpackError;
use stackforge_stack::diag::{Code, Explained, codes, of_disk};
use stackforge_transfer::registry::RegistryError;
use stackforge_types::reference::BadReference;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Image(#[from] OciError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    #[error("no variant of `{reference}` runs on this device{}", reasons(others))]
    NoVariant {
        reference: String,
        others: Vec<Reason>,
    },
    #[error(
        "`{reference}` has no variant `{variant}`; there is {}",
        list(available)
    )]
    NoSuchVariant {
        reference: String,
        variant: String,
        available: Vec<String>,
    },
    #[error("`{}` has {} MiB of space, {} MiB are needed", path.display(), free >> 20, needed.div_ceil(1 << 20))]
    Space {
        path: PathBuf,
        free: u64,
        needed: u64,
    },
    #[error("unpack a layer below {}", path.display())]
    Unpack { path: PathBuf, source: UnpackError },
    #[error("{} is there and was not written by stackforge", .0.display())]
    InTheWay(PathBuf),
    #[error("{} is a mount point, and what is mounted cannot be moved", .0.display())]
    Mounted(PathBuf),
    #[error(
        "the image has `/{0}`, which is the name of stackforge's own file in a root file system"
    )]
    Reserved(&'static str),
    #[error("`{name}` would go back: {why}")]
    Older { name: String, why: String },
    #[error(
        "the index that leads to `{reference}` is not signed and calls the image {index}, and the signed image calls itself {image}"
    )]
    OtherVariant {
        reference: String,
        index: String,
        image: String,
    },
    #[error("{doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("a thread that unpacks ended too early")]
    Thread,
}

impl PullError {
    pub(super) fn io(doing: &'static str, path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    }
}

impl Explained for PullError {
    fn code(&self) -> Code {
        match self {
            Self::Registry(e) => e.code(),
            Self::Image(e) => e.code(),
            Self::Store(e) => e.code(),
            Self::Assemble(e) => e.code(),
            Self::Engine(e) => e.code(),
            Self::Evidence(e) => e.code(),
            Self::Unpack { source, .. } => source.code(),
            Self::Reserved(_) => codes::IMAGE_UNREADABLE,
            Self::NoVariant { .. } => codes::NONE_RUNS,
            Self::NoSuchVariant { .. } => codes::NO_SUCH_VARIANT,
            Self::Space { .. } => codes::NO_SPACE,
            Self::InTheWay(_) => codes::OUTPUT_IN_THE_WAY,
            Self::Older { .. } => codes::IMAGE_OLDER,
            Self::OtherVariant { .. } => codes::SIGNATURE_NAME,
            Self::Mounted(_) => codes::OUTPUT_MOUNTED,
            Self::Io { source, .. } => of_disk(source),
            Self::Thread => codes::STORE_IO,
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Registry(e) => e.help(),
            Self::Image(e) => e.help(),
            Self::Store(e) => e.help(),
            Self::Assemble(e) => e.help(),
            Self::Engine(e) => Explained::help(e),
            Self::Evidence(e) => e.help(),
            Self::Older { .. } => "if the publisher went back on purpose, it signs the older image again; or leave `--no-downgrade` out".to_owned(),
            Self::OtherVariant { .. } => "ask the publisher to sign the index; an index that nobody signed leads anywhere".to_owned(),
            Self::Reserved(_) => "remove it from the image, or pull to another output".to_owned(),
            other => other.code().fix().to_owned(),
        }
    }
}

fn reasons(others: &[Reason]) -> String {
    let line = |reason: &Reason| format!("\n{}: {}", reason.variant, reason.why);
    others.iter().map(line).collect()
}

fn list(available: &[String]) -> String {
    if available.is_empty() {
        "none".to_owned()
    } else {
        available.join(", ")
    }
}

impl From<BadReference> for PullError {
    fn from(e: BadReference) -> Self {
        RegistryError::from(e).into()
    }
}
