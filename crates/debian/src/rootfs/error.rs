//! Why packages cannot be laid out.

use std::io;

use super::super::deb::DebError;
use super::super::members::MemberError;
use super::super::relation::InvalidRelation;

/// Why packages cannot be laid out as a root file system.
#[derive(Debug, thiserror::Error)]
pub enum RootfsError {
    /// A package file cannot be used.
    #[error(transparent)]
    Deb(#[from] DebError),
    /// A member of a package's archive is malformed.
    #[error("package `{package}`")]
    Member {
        /// The package.
        package: String,
        /// What is wrong with it.
        #[source]
        source: MemberError,
    },
    /// A package's relations do not parse.
    #[error("package `{package}`")]
    Relation {
        /// The package.
        package: String,
        /// What is wrong with them.
        #[source]
        source: InvalidRelation,
    },
    /// A package is for another architecture.
    #[error("package `{package}` is for {found}, the root file system for {wanted}")]
    Architecture {
        /// The package.
        package: String,
        /// Its architecture.
        found: String,
        /// The root file system's.
        wanted: String,
    },
    /// Two files are of the same package.
    #[error("package `{package}` is given twice")]
    Twice {
        /// The package.
        package: String,
    },
    /// Two packages have the same file.
    #[error(
        "packages `{package}` and `{other}` both ship `/{path}` and neither replaces the other's file"
    )]
    Conflict {
        /// The later one.
        package: String,
        /// The earlier one.
        other: String,
        /// The file, without its first slash.
        path: String,
    },
    /// The parent of a member is a file.
    #[error("package `{package}` ships `/{path}` below `/{parent}`, which is not a directory")]
    Parent {
        /// The package.
        package: String,
        /// The member, without its first slash.
        path: String,
        /// The parent that should be a directory.
        parent: String,
    },
    /// A hard link's target is not in its package.
    #[error(
        "package `{package}`: hard link `/{path}` points at `/{target}`, which is not a file of the same package"
    )]
    Link {
        /// The package.
        package: String,
        /// The link, without its first slash.
        path: String,
        /// The path that the link points to.
        target: String,
    },
    /// A package ships a file of the database that is written here.
    #[error("a package ships `/{path}`, which is dpkg's own")]
    Database {
        /// The file, without its first slash.
        path: String,
    },
    /// The output could not be written.
    #[error("writing the root file system")]
    Write(#[from] io::Error),
}

impl RootfsError {
    /// Returns what to do about it, as a sentence without its full stop.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "leave one of the two packages out",
            Self::Architecture { .. } | Self::Twice { .. } => "lock the packages again",
            Self::Write(_) => "check the space and the permissions where it is written",
            _ => "the package file is broken: remove it from the cache and fetch it again",
        }
    }
}
