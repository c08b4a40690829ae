//! Codes and advice for errors of the libraries in `crates/`, which know no codes.

use super::{Code, Explained, codes};
use stackforge_debian::KeyringError;
use stackforge_debian::archive::ArchiveError;
use stackforge_debian::fetch::FetchDebsError as DebError;
use stackforge_debian::finish::FinishError;
use stackforge_debian::mirror::MirrorError;
use stackforge_debian::resolve::ResolveError as DebianError;
use stackforge_debian::rootfs::RootfsError;
use stackforge_engine::EngineError;
use stackforge_image::assemble::AssembleError;
use stackforge_image::layer::LayerError;
use stackforge_image::oci::OciError;
use stackforge_image::store::StoreError;
use stackforge_image::unpack::UnpackError;
use stackforge_sandbox::SandboxError;
use stackforge_transfer::fetch::FetchError;
use stackforge_transfer::registry::RegistryError;
use stackforge_types::reference::BadReference;
use std::io::{self, ErrorKind};

/// Returns the code of a failed operation on a file that stackforge writes.
pub fn of_disk(error: &io::Error) -> Code {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => codes::NO_SPACE,
        _ => codes::STORE_IO,
    }
}

impl Explained for StoreError {
    fn code(&self) -> Code {
        match self {
            Self::Full { .. } => codes::NO_SPACE,
            Self::Denied { .. } => codes::STORE_DENIED,
            Self::NoLocks { .. } => codes::STORE_NO_LOCKS,
            Self::Newer { .. } => codes::STORE_NEWER,
            Self::Altered { .. } | Self::Damaged { .. } | Self::Missing(_) | Self::Index { .. } => {
                codes::STORE_DAMAGED
            }
            Self::Foreign { .. } | Self::Name(_) => codes::NO_EXPORTED_CACHE,
            Self::Unsigned(_) => codes::UNSIGNED_CACHE,
            Self::Inside { .. } => codes::BAD_VALUE,
            Self::Interrupted => codes::INTERRUPTED,
            Self::Io { .. } | Self::NoPlace => codes::STORE_IO,
        }
    }

    fn help(&self) -> String {
        let help = match self {
            Self::Full { .. } => {
                "free space there, let `stackforge cache gc --max-size SIZE` do so, or name another directory with `--store`"
            }
            Self::Denied { .. } => {
                "change its owner or mode, or name another directory with `--store`"
            }
            Self::NoLocks { .. } => "put the store on a local file system with `--store`",
            Self::NoPlace => "set one of them, or name a directory with `--store`",
            Self::Newer { .. } => "update stackforge, or name another directory with `--store`",
            Self::Index { .. } | Self::Damaged { .. } | Self::Altered { .. } | Self::Missing(_) => {
                "`stackforge cache verify --repair` removes what is damaged, and the next run makes or fetches it again"
            }
            Self::Foreign { .. } | Self::Name(_) => {
                "name what `stackforge cache export` wrote, a directory or an uncompressed archive"
            }
            Self::Unsigned(_) => {
                "write it with `stackforge cache export --key`, or import it without `--verify`: then its blobs are taken and its steps are made again"
            }
            Self::Inside { .. } => "name a place outside of the store",
            Self::Interrupted => "run it again: what was finished is kept",
            Self::Io { .. } => {
                "check permissions and free space, or name another directory with `--store`"
            }
        };
        help.to_owned()
    }
}

impl Explained for RegistryError {
    fn code(&self) -> Code {
        match self {
            Self::Reference(_) => codes::BAD_REFERENCE,
            Self::Missing { .. } => codes::NO_SUCH_IMAGE,
            Self::File { source, .. } => of_disk(source),
            Self::Payload { .. } => codes::IMAGE_UNREADABLE,
            _ => codes::NETWORK,
        }
    }

    fn help(&self) -> String {
        Self::help(self)
    }
}

impl Explained for BadReference {
    fn code(&self) -> Code {
        codes::BAD_REFERENCE
    }

    fn help(&self) -> String {
        "write it like `nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04`; names are in lower case"
            .to_owned()
    }
}

impl Explained for FetchError {
    fn code(&self) -> Code {
        match self {
            Self::Full { .. } => codes::NO_SPACE,
            Self::Mismatch { .. } => codes::HASH_MISMATCH,
            Self::Io { source, .. } => of_disk(source),
            _ => codes::NETWORK,
        }
    }

    fn help(&self) -> String {
        Self::help(self)
    }
}

impl Explained for OciError {
    fn code(&self) -> Code {
        match self {
            Self::Read { .. } => codes::UNREADABLE,
            Self::Unknown(_)
            | Self::Compressed(_)
            | Self::NoReference { .. }
            | Self::NoPlatform { .. }
            | Self::Several(_) => codes::NO_SUCH_IMAGE,
            _ => codes::IMAGE_UNREADABLE,
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Unknown(_) => {
                "name an image as `oci:DIR`, `oci-archive:FILE`, `docker:NAME` or `registry:NAME`"
                    .to_owned()
            }
            Self::Compressed(_) => "`gunzip` or `unzstd` decompresses it".to_owned(),
            other => other.code().fix().to_owned(),
        }
    }
}

impl Explained for UnpackError {
    fn code(&self) -> Code {
        match self {
            Self::NotLinux => codes::NEEDS_LINUX,
            _ => self.of_disk().map_or(codes::IMAGE_UNREADABLE, of_disk),
        }
    }
}

impl Explained for AssembleError {
    fn code(&self) -> Code {
        match self {
            Self::Io { source, .. } => of_disk(source),
            Self::NoLayout(_) => codes::OUTPUT_IN_THE_WAY,
            Self::Json(_) => codes::STORE_IO,
        }
    }

    fn help(&self) -> String {
        match self {
            Self::NoLayout(_) => {
                "name a directory that is empty, is not there yet, or is an image layout".to_owned()
            }
            other => other.code().fix().to_owned(),
        }
    }
}

impl Explained for LayerError {
    fn code(&self) -> Code {
        match self {
            Self::Write(source) => of_disk(source),
            _ => codes::WHEEL_UNSOUND,
        }
    }
}

impl Explained for EngineError {
    fn code(&self) -> Code {
        match self {
            Self::NotReachable { .. } => codes::ENGINE_MISSING,
            Self::Gone { .. } => codes::ENGINE_GONE,
            Self::NoSpace { .. } => codes::NO_SPACE,
            Self::Cancelled { .. } => codes::INTERRUPTED,
            Self::StepFailed(_) => codes::STEP_FAILED,
            Self::DockerfileSyntax { .. } => codes::TEMPLATE,
            Self::Unsupported { what, .. } if what.contains("GPU") => codes::GPU_UNAVAILABLE,
            Self::Context { source, .. } | Self::Log { source, .. } => of_disk(source),
            Self::Misnamed { .. } => codes::MISNAMED,
            Self::TooOld { .. } => codes::ENGINE_TOO_OLD,
            Self::Program { .. } => codes::PROGRAM_MISSING,
            _ => codes::ENGINE_REFUSED,
        }
    }

    fn help(&self) -> String {
        Self::help(self).to_owned()
    }
}

impl Explained for SandboxError {
    fn code(&self) -> Code {
        match self {
            Self::NotLinux => codes::NEEDS_LINUX,
            Self::NotAllowed { .. } => codes::NAMESPACES_REFUSED,
            Self::Overlay { .. } => codes::OVERLAY_REFUSED,
            Self::Program { .. } => codes::PROGRAM_MISSING,
            Self::Cancelled => codes::INTERRUPTED,
            Self::Setup { .. } | Self::Invalid { .. } | Self::Lost | Self::Unreadable { .. } => {
                codes::SANDBOX_FAILED
            }
        }
    }

    fn help(&self) -> String {
        Self::help(self)
    }
}

impl Explained for MirrorError {
    fn code(&self) -> Code {
        codes::MIRROR_UNKNOWN
    }

    fn help(&self) -> String {
        Self::help(self)
    }
}

impl Explained for DebError {
    fn code(&self) -> Code {
        match self {
            Self::Lock(_) => codes::LOCK_INVALID,
            Self::Mirror { source, .. } => source.code(),
            Self::Gone { .. } => codes::PACKAGE_GONE,
            Self::Download { source, .. } => source.code(),
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Gone { .. } => {
                "run `stackforge lock STACK --upgrade-os`, or configure a mirror that keeps old versions"
                    .to_owned()
            }
            other => Self::help(other),
        }
    }
}

impl Explained for KeyringError {
    fn code(&self) -> Code {
        codes::CATALOG_INVALID
    }

    fn help(&self) -> String {
        Self::help(self).to_owned()
    }
}

impl Explained for ArchiveError {
    fn code(&self) -> Code {
        match self {
            Self::Mirror(source) => source.code(),
            Self::Download { source, .. } => source.code(),
            Self::Read { source, .. } => of_disk(source),
            _ => codes::NETWORK,
        }
    }

    fn help(&self) -> String {
        Self::help(self)
    }
}

impl Explained for DebianError {
    fn code(&self) -> Code {
        match self {
            Self::Unknown { .. } => codes::PACKAGE_UNKNOWN,
            _ => codes::UNSATISFIABLE,
        }
    }

    fn help(&self) -> String {
        Self::help(self).to_owned()
    }
}

impl Explained for RootfsError {
    fn code(&self) -> Code {
        match self {
            Self::Write(source) => of_disk(source),
            _ => codes::STORE_IO,
        }
    }

    fn help(&self) -> String {
        Self::help(self).to_owned()
    }
}

impl Explained for FinishError {
    fn code(&self) -> Code {
        match self {
            Self::Rootfs(source) => source.code(),
            Self::Write(source) => of_disk(source),
            other if other.is_not_understood() => codes::SCRIPT_UNKNOWN,
            _ => codes::STORE_IO,
        }
    }

    fn help(&self) -> String {
        Self::help(self).to_owned()
    }
}
