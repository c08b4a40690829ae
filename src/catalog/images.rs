//! Base images: `images/*.yaml`.

use serde::{Deserialize, Serialize};
use stackforge_types::{Platform, PythonVersion};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    pub schema: u32,
    pub image: String,
    pub about: String,
    pub os: Os,
    /// glibc's version.
    pub libc: String,
    /// Major version of the distribution's default GCC.
    pub gcc: u32,
    /// Versions that its OS packages provide.
    pub python: Vec<PythonVersion>,
    pub platforms: Vec<Platform>,
    #[serde(default)]
    pub cuda: Option<String>,
    #[serde(default)]
    pub jetpack: Option<String>,
    #[serde(default)]
    pub l4t: Option<String>,
    #[serde(default)]
    pub driver: Option<MinDriver>,
    /// Layers that it has, where that is known.
    #[serde(default)]
    pub layers: Option<u32>,
    #[serde(default)]
    pub reference: Option<Reference>,
    #[serde(default)]
    pub bootstrap: Option<Bootstrap>,
    pub packages: OsRoles,
    /// Lines of `libraries` in a first stack on this base, where the newest torch is not for it.
    #[serde(default)]
    pub starter: Vec<String>,
    pub sources: Vec<String>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Os {
    pub id: String,
    pub version: String,
    pub codename: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MinDriver {
    pub min: String,
}

/// A base that a registry has.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    pub runtime: String,
    pub devel: String,
    #[serde(default)]
    pub digests: BTreeMap<String, String>,
}

/// A base made from Debian packages.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Bootstrap {
    pub suites: Vec<String>,
    pub components: Vec<String>,
    /// Stem of a keyring in images/keyrings/.
    pub keyring: String,
    /// Packages beyond the essential and required ones.
    pub include: Vec<String>,
    /// Whether Debian's essential and required packages and apt are there. A base without them has
    /// no shell, so nothing but stackforge's own engine builds on it.
    #[serde(default = "yes")]
    pub essential: bool,
    /// What dependencies ask for and the base goes without, of a base that is not essential: what only
    /// maintainer scripts run.
    #[serde(default)]
    pub exclude: Vec<String>,
}

fn yes() -> bool {
    true
}

impl Image {
    /// Whether steps of a Dockerfile run on it.
    pub fn has_shell(&self) -> bool {
        self.bootstrap.as_ref().is_none_or(|b| b.essential)
    }
}

/// Names that the distribution gives to what recipes ask for by role.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OsRoles {
    pub python: BTreeMap<PythonVersion, Vec<String>>,
    pub python_dev: BTreeMap<PythonVersion, Vec<String>>,
    pub c_compiler: Vec<String>,
    pub cxx_compiler: Vec<String>,
    pub git: Vec<String>,
}

impl OsRoles {
    /// OS packages behind a role of this Python; a name that is no role is a package itself.
    pub fn resolve(&self, role: &str, python: PythonVersion) -> Vec<String> {
        let versioned = |map: &BTreeMap<PythonVersion, Vec<String>>| {
            map.get(&python).cloned().unwrap_or_default()
        };
        match role {
            "python" => versioned(&self.python),
            "python_dev" => versioned(&self.python_dev),
            "c_compiler" => self.c_compiler.clone(),
            "cxx_compiler" => self.cxx_compiler.clone(),
            "git" => self.git.clone(),
            package => vec![package.to_owned()],
        }
    }
}
