//! The lock: every file, package, source and base that a build uses, by digest.
//!
//! In: TOML beside the stack (`stacks/NAME.lock`). Out: [`Lock`]. It names files by what
//! they are, never by the host they came from, so one lock works behind any mirror. A lock
//! remembers the inputs it was made from: [`Lock::stale`] tells what changed since.

use crate::spec::nouns::{Digest, Platform, PythonVersion};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    pub version: u32,
    pub stack: String,
    /// What the lock was made from, key by key: `base`, `python`, `libraries.torch`, …
    pub inputs: BTreeMap<String, String>,
    #[serde(rename = "platform", default)]
    pub platforms: Vec<PlatformLock>,
}

/// Everything for one platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlatformLock {
    pub platform: Platform,
    pub python: PythonVersion,
    /// CUDA of the torch (or toolkit) in the stack, major and minor; absent without CUDA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    pub base: BaseLock,
    /// Wheels of the image, in name order.
    #[serde(rename = "wheel", default)]
    pub wheels: Vec<PythonFile>,
    /// Libraries compiled from source, in build order.
    #[serde(rename = "build", default)]
    pub builds: Vec<BuildLock>,
    /// Programs that builders use and the image does not keep (uv).
    #[serde(rename = "tool", default)]
    pub tools: Vec<PythonFile>,
    /// OS packages that the image has beyond its base.
    #[serde(rename = "package", default)]
    pub packages: Vec<OsPackageLock>,
    /// OS packages of builder stages, beyond the base.
    #[serde(rename = "builder-package", default)]
    pub builder_packages: Vec<OsPackageLock>,
}

/// A wheel or sdist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PythonFile {
    pub name: String,
    pub version: String,
    pub file: String,
    /// Bytes; zero where the index does not tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
    pub sha256: String,
    /// Names of the distributions that asked for it; empty for those the stack names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaseLock {
    /// Name in images/, or the reference that the stack gave.
    pub name: String,
    /// Image that final stages start from; absent for a bootstrapped base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<PinnedImage>,
    /// Image that builder stages start from, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devel: Option<PinnedImage>,
    /// Packages of a bootstrapped base.
    #[serde(rename = "package", default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<OsPackageLock>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedImage {
    pub reference: String,
    /// Absent while no registry has answered for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// An OS package. `sha256` and `path` are absent where the base's archive was not
/// reachable when the lock was made; such packages are installed by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OsPackageLock {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Which archive: `debian`, `debian-security`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// Path below the archive's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// A library compiled from source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildLock {
    pub name: String,
    pub version: String,
    pub source: SourceLock,
    /// Wheels that its build needs beyond those of the image.
    #[serde(rename = "requires", default)]
    pub requires: Vec<PythonFile>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SourceLock {
    Sdist {
        file: String,
        sha256: String,
        #[serde(default)]
        size: u64,
    },
    Git {
        url: String,
        revision: String,
    },
}

/// One input that differs between a lock and its stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    pub key: String,
    pub locked: Option<String>,
    pub now: Option<String>,
}

impl Lock {
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// The file's text: stable, so that equal locks are equal files.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        Ok(format!(
            "# Written by `stackforge lock`; do not edit.\n{}",
            toml::to_string(self)?
        ))
    }

    pub fn platform(&self, platform: Platform) -> Option<&PlatformLock> {
        self.platforms.iter().find(|p| p.platform == platform)
    }

    /// What is different now; empty when the lock still fits.
    pub fn stale(&self, inputs: &BTreeMap<String, String>) -> Vec<Change> {
        let keys: std::collections::BTreeSet<&String> =
            self.inputs.keys().chain(inputs.keys()).collect();
        keys.into_iter()
            .filter(|k| self.inputs.get(*k) != inputs.get(*k))
            .map(|k| Change {
                key: k.clone(),
                locked: self.inputs.get(k).cloned(),
                now: inputs.get(k).cloned(),
            })
            .collect()
    }
}

impl PlatformLock {
    pub fn wheel(&self, name: &str) -> Option<&PythonFile> {
        self.wheels.iter().find(|w| w.name == name)
    }

    pub fn build(&self, name: &str) -> Option<&BuildLock> {
        self.builds.iter().find(|b| b.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Lock {
        Lock {
            version: FORMAT,
            stack: "demo".into(),
            inputs: BTreeMap::from([("python".into(), "3.11".into())]),
            platforms: vec![PlatformLock {
                platform: Platform::LinuxAmd64,
                python: "3.11".parse().unwrap(),
                cuda: Some("13.0".into()),
                base: BaseLock {
                    name: "debian-bookworm".into(),
                    runtime: None,
                    devel: None,
                    packages: vec![],
                },
                wheels: vec![PythonFile {
                    name: "six".into(),
                    version: "1.17.0".into(),
                    file: "six-1.17.0-py2.py3-none-any.whl".into(),
                    size: 11050,
                    sha256: "00".repeat(32),
                    via: vec![],
                }],
                builds: vec![BuildLock {
                    name: "x".into(),
                    version: "1".into(),
                    source: SourceLock::Sdist {
                        file: "x-1.tar.gz".into(),
                        sha256: "11".repeat(32),
                        size: 3,
                    },
                    requires: vec![],
                    via: vec![],
                }],
                tools: vec![],
                packages: vec![],
                builder_packages: vec![],
            }],
        }
    }

    #[test]
    fn toml_round_trips() {
        let lock = sample();
        let text = lock.to_toml().unwrap();
        assert_eq!(Lock::from_toml(&text).unwrap(), lock, "{text}");
    }

    #[test]
    fn stale_names_each_change() {
        let lock = sample();
        assert!(lock.stale(&lock.inputs).is_empty());
        let now = BTreeMap::from([
            ("python".to_owned(), "3.12".to_owned()),
            ("base".to_owned(), "x".to_owned()),
        ]);
        let changes = lock.stale(&now);
        assert_eq!(changes.len(), 2);
        assert_eq!(changes[1].locked.as_deref(), Some("3.11"));
        assert_eq!(changes[1].now.as_deref(), Some("3.12"));
    }
}
