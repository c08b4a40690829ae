//! Errors of an update.

use stackforge_build::BuildError;
use stackforge_distribute::evidence::KeyError;
use stackforge_distribute::pull::PullError;
use stackforge_engine::EngineError;
use stackforge_image::oci::OciError;
use stackforge_image::store::StoreError;
use stackforge_stack::diag::{Code, Explained, codes, of_disk};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    #[error("the settings {} are not valid: {message}", path.display())]
    Settings { path: PathBuf, message: String },
    #[error("the state {} cannot be read: {message}", path.display())]
    State { path: PathBuf, message: String },
    #[error("the state directory {} is not this update's: {why}", dir.display())]
    Foreign { dir: PathBuf, why: String },
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Image(#[from] OciError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("the engine does not have `{0}`, which was loaded")]
    NotLoaded(String),
    #[error("the image has no manifest of its own")]
    NoDocuments,
    #[error("`systemctl {verb} {unit}` failed: {reason}")]
    Service {
        verb: &'static str,
        unit: String,
        reason: String,
    },
    #[error("another update of this device is under way")]
    UnderWay,
    #[error("stopped")]
    Stopped,
    #[error("{doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl From<EngineError> for UpdateError {
    fn from(e: EngineError) -> Self {
        Self::Build(e.into())
    }
}

impl From<stackforge_image::assemble::AssembleError> for UpdateError {
    fn from(e: stackforge_image::assemble::AssembleError) -> Self {
        Self::Pull(e.into())
    }
}

impl UpdateError {
    pub fn io(doing: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    }

    /// Whether the publisher's image is at fault, and not this device or its network.
    pub fn is_of_image(&self) -> bool {
        match self {
            Self::Pull(PullError::Image(OciError::NoPlatform { .. })) => true,
            // These files belong to this device's own store.
            Self::Pull(PullError::Image(e)) | Self::Image(e) if is_local(e) => false,
            Self::Pull(e) => matches!(
                e.code(),
                codes::NONE_RUNS
                    | codes::IMAGE_UNREADABLE
                    | codes::IMAGE_OLDER
                    | codes::SIGNATURE_MISSING
                    | codes::SIGNATURE_FOREIGN
                    | codes::SIGNATURE_OTHER
                    | codes::SIGNATURE_NAME
            ),
            Self::Image(_) | Self::NoDocuments => true,
            _ => false,
        }
    }
}

impl Explained for UpdateError {
    fn code(&self) -> Code {
        match self {
            Self::Settings { .. } => codes::UPDATE_SETTINGS,
            Self::State { .. } => codes::UPDATE_STATE,
            Self::Foreign { .. } => codes::UPDATE_FOREIGN,
            Self::Key(e) => e.code(),
            Self::Pull(e) => e.code(),
            Self::Store(e) => e.code(),
            Self::Build(e) => e.code(),
            Self::Image(e) => e.code(),
            Self::NotLoaded(_) | Self::NoDocuments => codes::IMAGE_UNREADABLE,
            Self::Service { .. } => codes::UPDATE_SERVICE,
            Self::UnderWay => codes::UPDATE_UNDER_WAY,
            Self::Stopped => codes::INTERRUPTED,
            Self::Io { doing: "read", .. } => codes::UNREADABLE,
            Self::Io { source, .. } => of_disk(source),
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Settings { .. } => "examples/edge/edge.yaml says what each setting is".into(),
            Self::State { .. } => {
                "see that the service runs, then remove the file: the next update begins anew"
                    .into()
            }
            Self::Foreign { .. } => {
                "name a directory of its own in `state`, which only this user may write".into()
            }
            Self::Key(e) => e.help(),
            Self::Pull(e) => e.help(),
            Self::Store(e) => e.help(),
            Self::Build(e) => e.help(),
            Self::NotLoaded(_) => {
                "something else removes images; the next update loads it again".into()
            }
            Self::NoDocuments | Self::Image(_) => "push the image again".into(),
            Self::Service { unit, .. } => {
                format!("`systemctl status {unit}` and `journalctl -u {unit}` say why")
            }
            Self::UnderWay => "`stackforge update CONFIG --status` says where it stands".into(),
            Self::Stopped => "the next update goes on from there".into(),
            Self::Io { .. } => "check the path, its permissions and the disk".into(),
        }
    }

    /// Returns 1 if the image is at fault and 3 if the device or the network is, whatever the code: this is
    /// what a fleet watches.
    fn exit(&self) -> u8 {
        match self {
            _ if self.is_of_image() => 1,
            Self::Pull(_)
            | Self::Store(_)
            | Self::Build(_)
            | Self::Image(_)
            | Self::NotLoaded(_) => 3,
            other => other.code().exit(),
        }
    }
}

/// Whether the device's disk is at fault.
fn is_local(e: &OciError) -> bool {
    matches!(
        e,
        OciError::Read { .. } | OciError::Missing(_) | OciError::Bytes { .. }
    )
}
