//! Why there is no such set of packages, and who asked for what.

use super::super::relation::InvalidRelation;

#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("no package `{name}` in the archive's suites{similar}")]
    Unknown { name: String, similar: String },
    #[error("package `{name}` is not there in version {wanted}; the archive has {have}")]
    NoVersion {
        name: String,
        wanted: String,
        have: String,
    },
    #[error("nothing satisfies `{relation}`, asked for by {chain}")]
    Unsatisfiable { relation: String, chain: String },
    #[error(
        "`{relation}`, asked for by {chain}, does not accept `{name}` {version}, asked for by {other}"
    )]
    Clash {
        relation: String,
        chain: String,
        name: String,
        version: String,
        other: String,
    },
    #[error(
        "`{name}`, asked for by {chain}, excludes `{relation}` and so `{other}`, asked for by {other_chain}"
    )]
    Conflict {
        name: String,
        chain: String,
        relation: String,
        other: String,
        other_chain: String,
    },
    #[error("package `{package}`")]
    Relation {
        package: String,
        #[source]
        source: InvalidRelation,
    },
}

impl ResolveError {
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
