//! Base images: `images/*.yaml`.

use serde::{Deserialize, Serialize};
use stackforge_types::{Digest, Platform, PythonVersion};
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
    /// Number of the image's layers, if it is known.
    #[serde(default)]
    pub layers: Option<u32>,
    #[serde(default)]
    pub reference: Option<Reference>,
    #[serde(default)]
    pub bootstrap: Option<Bootstrap>,
    pub packages: OsRoles,
    /// Lines of `libraries` in a starter stack on this base, if the newest torch does not fit it.
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

/// A base in a registry.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    pub runtime: String,
    pub devel: String,
    /// Known digests, by the image's name or its role: `runtime` or `devel`.
    #[serde(default)]
    pub digests: BTreeMap<String, Digest>,
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
    /// Whether the base has Debian's essential and required packages and apt. Without them it has no shell, so
    /// only the native engine builds on it.
    #[serde(default = "yes")]
    pub essential: bool,
    /// Dependencies that a base without essential packages leaves out: only maintainer scripts run them.
    #[serde(default)]
    pub exclude: Vec<String>,
}

fn yes() -> bool {
    true
}

impl Image {
    /// Returns the minor version of its glibc 2.
    pub fn glibc(&self) -> Option<u16> {
        self.libc.strip_prefix("2.")?.parse().ok()
    }

    /// Whether the base has a shell for a Dockerfile's steps.
    pub fn has_shell(&self) -> bool {
        self.bootstrap.as_ref().is_none_or(|b| b.essential)
    }
}

/// The distribution's package names for the roles that recipes require.
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
    /// Returns the OS packages of a role for this Python. A name that is not a role is a package itself.
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
