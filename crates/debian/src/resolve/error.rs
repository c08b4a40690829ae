//! Why packages cannot be resolved, and who asked for what.

use super::super::relation::InvalidRelation;

/// Why packages cannot be resolved. A `chain` reads `a → b → c`: `a` was wanted, and each asks for the
/// next.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// No package has the name.
    #[error("no package `{name}` in the archive's suites{similar}")]
    Unknown {
        /// The unknown name.
        name: String,
        /// Similar names, as a part of the message.
        similar: String,
    },
    /// The archive does not have the wanted version.
    #[error("package `{name}` is not there in version {wanted}; the archive has {have}")]
    NoVersion {
        /// The package.
        name: String,
        /// The requested version.
        wanted: String,
        /// The versions that the archive has.
        have: String,
    },
    /// No package that can be installed satisfies a relation.
    #[error("nothing satisfies `{relation}`, asked for by {chain}")]
    Unsatisfiable {
        /// The relation as the package writes it.
        relation: String,
        /// Chain of the packages that ask for it.
        chain: String,
    },
    /// Two packages ask for different versions of a third.
    #[error(
        "`{relation}`, asked for by {chain}, does not accept `{name}` {version}, asked for by {other}"
    )]
    Clash {
        /// The relation that is not satisfied.
        relation: String,
        /// Chain of the packages that ask for it.
        chain: String,
        /// The chosen package.
        name: String,
        /// Version of the chosen package.
        version: String,
        /// Chain of the packages that ask for the chosen one.
        other: String,
    },
    /// Two packages of the set exclude each other.
    #[error(
        "`{name}`, asked for by {chain}, excludes `{relation}` and so `{other}`, asked for by {other_chain}"
    )]
    Conflict {
        /// The package that excludes the other.
        name: String,
        /// Chain of the packages that ask for it.
        chain: String,
        /// The relation as the package writes it.
        relation: String,
        /// The excluded package.
        other: String,
        /// Chain of the packages that ask for the excluded one.
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
    /// Returns what to do about it, as a sentence without its full stop.
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
