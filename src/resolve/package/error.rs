//! Errors of fetching a published wheel, and what to do about them.

use super::super::simple::PageError;
use super::super::uv::UvError;
use stackforge_image::store::StoreError;
use stackforge_stack::diag::{Code, Explained, codes};
use stackforge_transfer::fetch::FetchError;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error("`{0}` is not a package with its version")]
    Malformed(String),
    #[error("`{name}` is not on {}", indexes(*.asked))]
    NoProject { name: String, asked: usize },
    #[error("`{name}` has no version {version}{}", nearest(.near))]
    NoVersion {
        name: String,
        version: String,
        near: Vec<String>,
    },
    #[error("`{name}` {version} has no wheel for Python {python} on {platform}: {}", available_wheels(.available))]
    NoWheel {
        name: String,
        version: String,
        python: String,
        platform: String,
        /// Names of the wheels of that version in the index.
        available: Vec<String>,
    },
    #[error("the index gives no sha256 for `{file}`")]
    NoHash { file: String },
    #[error("`{name}` is not in the store, and stackforge is offline")]
    Offline { name: String },
    #[error("{} not in the store, and stackforge is offline: {}", are(.files.len()), listed(.files))]
    OfflineFiles { files: Vec<String> },
    #[error("no index has {}: {}", files_of(.files.len()), listed(.files))]
    Gone { files: Vec<String> },
    #[error("{} cannot be taken as the locked file", path.display())]
    Local { path: PathBuf, source: StoreError },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the settings of uv or pip forbid every index")]
    NoIndex,
    #[error("the index of `{name}` is not usable: {source}")]
    Page {
        name: String,
        #[source]
        source: PageError,
    },
    #[error("the index leads from https to http")]
    Downgrade,
    #[error("ask uv for its default index")]
    Uv(#[from] UvError),
    #[error("uv does not tell its default index")]
    NoDefault,
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

fn are(files: usize) -> String {
    match files {
        1 => "a file is".to_owned(),
        n => format!("{n} files are"),
    }
}

fn files_of(files: usize) -> String {
    match files {
        1 => "a locked file".to_owned(),
        n => format!("{n} locked files"),
    }
}

fn listed(files: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = files[..files.len().min(SHOWN)].join(", ");
    match files.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn indexes(asked: usize) -> String {
    match asked {
        1 => "the index".to_owned(),
        n => format!("any of {n} indexes"),
    }
}

fn nearest(near: &[String]) -> String {
    match near {
        [] => String::new(),
        _ => format!("; the nearest are {}", near.join(", ")),
    }
}

fn available_wheels(available: &[String]) -> String {
    const SHOWN: usize = 12;
    if available.is_empty() {
        return "only its source is published".to_owned();
    }
    let shown = available[..available.len().min(SHOWN)].join(", ");
    match available.len().saturating_sub(SHOWN) {
        0 => format!("there is {shown}"),
        more => format!("there is {shown} and {more} more"),
    }
}

impl Explained for PackageError {
    fn help(&self) -> String {
        let help = match self {
            Self::Malformed(_) => "write it as `torch==2.13.0`",
            Self::NoProject { .. } => {
                "check its name, and the index settings of uv or pip (UV_*, PIP_*, pip.conf, uv.toml)"
            }
            Self::NoVersion { .. } => "ask for a version that is there",
            Self::NoWheel { available, .. } if available.is_empty() => {
                "build it, and audit the wheel that comes out"
            }
            Self::NoWheel { .. } => {
                "ask for a Python and a platform that it has a wheel for, or for another version"
            }
            Self::NoHash { .. } => "use an index that publishes sha256 digests",
            Self::Offline { .. } => "run it without `--offline`",
            Self::OfflineFiles { .. } => {
                "run it once without `--offline`, or bring the files with `stackforge cache import`"
            }
            Self::Gone { .. } => {
                "check the index settings of uv or pip; where the files were withdrawn, lock again"
            }
            Self::Local { .. } => {
                "restore the file, or take its new content with `stackforge lock --upgrade`"
            }
            Self::Store(e) => return e.help(),
            Self::NoIndex => "remove `no-index` from the settings, or give the wheel's file",
            Self::Page { .. } | Self::Downgrade => {
                "check the index settings of uv or pip: the address is that of a Simple API, often `…/simple`"
            }
            Self::Uv(e) => return e.help(),
            Self::NoDefault => "set UV_DEFAULT_INDEX or PIP_INDEX_URL",
            Self::Fetch(e) => return e.help(),
        };
        help.to_owned()
    }

    fn code(&self) -> Code {
        match self {
            Self::Malformed(_) => codes::BAD_VALUE,
            Self::NoProject { .. } | Self::NoVersion { .. } | Self::NoWheel { .. } => {
                codes::NO_MATCHING_FILE
            }
            Self::Gone { .. } => codes::NO_MATCHING_FILE,
            Self::Offline { .. } | Self::OfflineFiles { .. } => codes::OFFLINE,
            Self::Local { .. } => codes::FILE_UNFIT,
            Self::Store(e) => e.code(),
            Self::Uv(e) => e.code(),
            Self::Fetch(e) => e.code(),
            _ => codes::RESOLVER_FAILED,
        }
    }
}
