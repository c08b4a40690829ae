//! Why there is no such set of packages, and who asked for what.

use super::super::relation::InvalidRelation;

/// Why there is no such set of packages. A `chain` reads `a, for b, for c`.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// No package has the name.
    #[error("no package `{name}` in the archive's suites{similar}")]
    Unknown {
        /// The name.
        name: String,
        /// Names like it, as a part of the message.
        similar: String,
    },
    /// The wanted version is not there.
    #[error("package `{name}` is not there in version {wanted}; the archive has {have}")]
    NoVersion {
        /// The package.
        name: String,
        /// The version that was asked for.
        wanted: String,
        /// Versions that the archive has.
        have: String,
    },
    /// No package that could be installed satisfies it.
    #[error("nothing satisfies `{relation}`, asked for by {chain}")]
    Unsatisfiable {
        /// As the package writes it.
        relation: String,
        /// Who asked for it.
        chain: String,
    },
    /// Two packages ask for different versions of a third.
    #[error(
        "`{relation}`, asked for by {chain}, does not accept `{name}` {version}, asked for by {other}"
    )]
    Clash {
        /// What is not satisfied.
        relation: String,
        /// Who asked for it.
        chain: String,
        /// The package that is chosen.
        name: String,
        /// Its version.
        version: String,
        /// Who asked for the one that is chosen.
        other: String,
    },
    /// Two packages of the set exclude each other.
    #[error(
        "`{name}`, asked for by {chain}, excludes `{relation}` and so `{other}`, asked for by {other_chain}"
    )]
    Conflict {
        /// The package that excludes.
        name: String,
        /// Who asked for it.
        chain: String,
        /// As the package writes it.
        relation: String,
        /// The package that is excluded.
        other: String,
        /// Who asked for that one.
        other_chain: String,
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
}

impl ResolveError {
    /// What to do about it, as a sentence without its full stop.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "check the name, or add the suite or component that has it",
            Self::NoVersion { .. } => {
                "an archive keeps the newest version only: lock again without `=VERSION`"
            }
            _ => "leave out one of the packages that ask for it",
        }
    }
}
