//! Why packages cannot be resolved, and who asked for what.

use super::super::relation::InvalidRelation;
use std::fmt;

/// A name that no package has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPackage {
    /// The name.
    pub name: String,
    /// A package with a similar name.
    pub near: Option<String>,
    /// What is known of the name, in place of what is similar: `write `libgl1``.
    pub known: Option<String>,
}

impl fmt::Display for UnknownPackage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.escape_debug();
        write!(f, "no package `{name}` in the archive's suites")?;
        match (&self.known, &self.near) {
            (Some(known), _) => write!(f, ": {known}"),
            (None, Some(near)) => write!(f, "; did you mean `{near}`?"),
            (None, None) => Ok(()),
        }
    }
}

fn lines(unknown: &[UnknownPackage]) -> String {
    let lines: Vec<String> = unknown.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Why packages cannot be resolved. A `chain` reads `a → b → c`: `a` was wanted, and each asks for the
/// next.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// No package has a wanted name.
    #[error("{}", lines(.0))]
    Unknown(Vec<UnknownPackage>),
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
            Self::Unknown(_) => "check the name, or add the suite or component that has it",
            Self::NoVersion { .. } => {
                "an archive keeps the newest version only: lock again without `=VERSION`"
            }
            _ => "leave out one of the packages that ask for it",
        }
    }
}
