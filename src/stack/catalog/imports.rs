//! Modules that a recipe names.

use pep440_rs::{Version, VersionSpecifiers};
use serde::{Deserialize, Serialize};

/// A module that must import: of every release, or of those that have it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "expected the name of a module, or `{ module: NAME, version: RANGE }`"
)]
pub enum Import {
    Always(String),
    Of(ImportOf),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ImportOf {
    pub module: String,
    /// Releases that have it.
    pub version: VersionSpecifiers,
}

impl Import {
    pub fn module(&self) -> &str {
        match self {
            Self::Always(module) => module,
            Self::Of(of) => &of.module,
        }
    }

    /// Whether a release has the module. Of an unknown one only what all have.
    pub fn is_of(&self, release: Option<&Version>) -> bool {
        match self {
            Self::Always(_) => true,
            Self::Of(of) => release.is_some_and(|release| of.version.contains(release)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Import>, String> {
        serde_saphyr::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_module_is_of_every_release_or_of_a_range() {
        let imports = read("[torch, { module: torch._dynamo, version: '>=2.0' }]").unwrap();
        let of = |release: Option<&str>| {
            let release = release.map(|text| text.parse().unwrap());
            let had = imports.iter().filter(|i| i.is_of(release.as_ref()));
            had.map(Import::module).collect::<Vec<_>>()
        };
        assert_eq!(of(Some("1.13.1+cu117")), ["torch"]);
        assert_eq!(of(Some("2.0")), ["torch", "torch._dynamo"]);
        assert_eq!(of(Some("2.15.0+cu130")), ["torch", "torch._dynamo"]);
        assert_eq!(of(None), ["torch"]);
    }

    #[test]
    fn another_form_is_refused_with_the_two_that_are_read() {
        for text in [
            "[{ module: a }]",
            "[{ module: a, versions: '>=2' }]",
            "[{ module: a, version: newer }]",
            "[[a]]",
        ] {
            let error = read(text).unwrap_err();
            assert!(
                error.contains("{ module: NAME, version: RANGE }"),
                "{error}"
            );
        }
    }
}
