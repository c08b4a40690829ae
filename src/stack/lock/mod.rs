//! The lock file: every file, package, source and base that a build uses, by digest.
//!
//! In: TOML beside the stack (`stacks/NAME.lock`). Out: [`Lock`]. Files are named by their digest, never by
//! the host that they came from, so a lock works behind any mirror. A lock records the inputs that it was
//! made from: [`Lock::stale`] returns those that changed since. It has a section for each platform, base and
//! Python of the stack's matrix, or one section without a matrix.

use crate::catalog::Catalog;
use crate::spec::Stack;
use serde::{Deserialize, Serialize};
use stackforge_types::wheel::WheelTarget;
use stackforge_types::{Digest, Platform, PythonVersion};
use std::collections::{BTreeMap, BTreeSet};

pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    pub version: u32,
    pub stack: String,
    /// The inputs of the lock, by key: `base`, `python`, `libraries.torch`, …
    pub inputs: BTreeMap<String, String>,
    #[serde(rename = "platform", default)]
    pub platforms: Vec<PlatformLock>,
}

/// The section of one platform, base and Python.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlatformLock {
    pub platform: Platform,
    pub python: PythonVersion,
    /// CUDA version (major and minor) of the stack's torch or toolkit; absent without CUDA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Inputs of this section that the lock's other sections do not share.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, String>,
    pub base: BaseLock,
    /// Wheels of the image, in name order.
    #[serde(rename = "wheel", default)]
    pub wheels: Vec<PythonFile>,
    /// Libraries compiled from source, in build order.
    #[serde(rename = "build", default)]
    pub builds: Vec<BuildLock>,
    /// Programs that builders use and the image does not hold (uv).
    #[serde(rename = "tool", default)]
    pub tools: Vec<PythonFile>,
    /// OS packages that the image adds to its base.
    #[serde(rename = "package", default)]
    pub packages: Vec<OsPackageLock>,
    /// OS packages that builder stages add to the base.
    #[serde(rename = "builder-package", default)]
    pub builder_packages: Vec<OsPackageLock>,
    /// Distributions that lack libraries which extras of theirs bring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<LackingLock>,
    /// Wheels that the build of the app's own project needs beyond those of the image.
    #[serde(
        rename = "app-requires",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub app_requires: Vec<PythonFile>,
}

/// A distribution whose objects need libraries that nothing in the image has, and the extras that bring them. Without
/// an extra these are libraries of some release of CUDA, or of no OS package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LackingLock {
    pub name: String,
    /// SONAMEs.
    pub needs: Vec<String>,
    pub extras: Vec<String>,
}

/// A wheel or sdist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PythonFile {
    pub name: String,
    pub version: String,
    pub file: String,
    /// Size in bytes; zero if the index does not state it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
    #[serde(with = "stackforge_types::digest::hex")]
    pub sha256: Digest,
    /// Names of the distributions that require it; empty for those that the stack names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
}

impl PythonFile {
    /// Returns the wheel of a program that the catalog pins. `None` if none fits the target.
    pub fn of_tool(catalog: &Catalog, name: &str, target: &WheelTarget) -> Option<Self> {
        let tool = catalog.tool(name)?;
        let file = tool.wheel(target)?;
        Some(Self {
            name: tool.name.clone(),
            version: tool.version.clone(),
            file: file.file.clone(),
            size: file.size,
            sha256: file.sha256.clone(),
            via: Vec::new(),
        })
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaseLock {
    /// Name in images/, or the reference that the stack gave.
    pub name: String,
    /// Image that the final stage starts from; absent for a bootstrapped base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<PinnedImage>,
    /// Image that builder stages start from, if it differs from `runtime`.
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
    /// Absent until a registry has answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// An OS package. `sha256` and `path` are absent if the base's archive could not be reached when the lock
/// was made; such a package is installed by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OsPackageLock {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The archive of the package: `debian`, `debian-security`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// Path below the archive's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "stackforge_types::digest::hex::option"
    )]
    pub sha256: Option<Digest>,
    /// What it was added for, if the stack does not name it: `lightgbm needs libgomp.so.1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// A library compiled from source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildLock {
    pub name: String,
    pub version: String,
    pub source: SourceLock,
    /// Wheels that the build needs beyond those of the image.
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
        #[serde(with = "stackforge_types::digest::hex")]
        sha256: Digest,
        #[serde(default)]
        size: u64,
    },
    Git {
        url: String,
        revision: String,
    },
}

/// An input that differs between a lock and its stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    pub key: String,
    pub locked: Option<String>,
    pub now: Option<String>,
}

/// Returns `root` and its direct and indirect dependencies among distributions, each of which comes with the names of
/// those that require it; empty if `root` is not there. It says what is below builders, when locking and in a plan.
pub fn with_requirements<'a>(
    root: &'a str,
    all: impl Iterator<Item = (&'a str, &'a Vec<String>)> + Clone,
) -> BTreeSet<&'a str> {
    let mut set = BTreeSet::new();
    if !all.clone().any(|(name, _)| name == root) {
        return set;
    }
    set.insert(root);
    loop {
        let before = set.len();
        for (name, via) in all.clone() {
            if via.iter().any(|v| set.contains(v.as_str())) {
                set.insert(name);
            }
        }
        if set.len() == before {
            return set;
        }
    }
}

impl Lock {
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Returns the text of the lock file. Equal locks have equal text.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        Ok(format!(
            "# Written by `stackforge lock`; do not edit.\n{}",
            toml::to_string(self)?
        ))
    }

    /// Returns the section for the platform, base and Python of a stack without a matrix, or of a variant.
    pub fn section(&self, stack: &Stack) -> Option<&PlatformLock> {
        self.platforms.iter().find(|p| {
            p.platform == stack.platform.value
                && p.base.name == stack.base.value
                && p.python == stack.python.value
        })
    }

    /// Returns the inputs of a stack that changed since its section was made; empty if none did. A lock's only
    /// section counts as the stack's.
    pub fn stale(&self, stack: &Stack, inputs: &BTreeMap<String, String>) -> Vec<Change> {
        let only = self.platforms.first().filter(|_| self.platforms.len() == 1);
        let own = self.section(stack).or(only).map(|s| &s.inputs);
        let mut locked = self.inputs.clone();
        locked.extend(own.cloned().unwrap_or_default());
        let keys: BTreeSet<&String> = locked.keys().chain(inputs.keys()).collect();
        keys.into_iter()
            .filter(|k| locked.get(*k) != inputs.get(*k))
            .map(|k| Change {
                key: k.clone(),
                locked: locked.get(k).cloned(),
                now: inputs.get(k).cloned(),
            })
            .collect()
    }

    /// Joins the locks of all sections into one. Inputs that all share are stored once.
    pub fn join(locks: Vec<Self>) -> Option<Self> {
        let mut locks = locks.into_iter();
        let mut joined = locks.next()?;
        let mut own = vec![joined.inputs.clone()];
        for lock in locks {
            own.push(lock.inputs);
            joined.platforms.extend(lock.platforms);
        }
        joined
            .inputs
            .retain(|key, value| own.iter().all(|o| o.get(key) == Some(&*value)));
        for (section, mut own) in joined.platforms.iter_mut().zip(own) {
            own.retain(|key, _| !joined.inputs.contains_key(key));
            section.inputs = own;
        }
        Some(joined)
    }
}

impl OsPackageLock {
    /// Returns a package that is locked by its name alone.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: None,
            architecture: None,
            archive: None,
            path: None,
            size: 0,
            sha256: None,
            reasons: Vec::new(),
        }
    }

    /// Returns its reasons in one text: `a needs libx.so.1, liby.so.2; b runs x`. `None` if the stack names it.
    pub fn why(&self) -> Option<String> {
        let mut out = String::new();
        let mut last = "";
        for reason in &self.reasons {
            let (who, what) = reason.rsplit_once(' ').unwrap_or((reason, ""));
            if !last.is_empty() && who == last {
                out.push_str(", ");
                out.push_str(what);
            } else {
                if !out.is_empty() {
                    out.push_str("; ");
                }
                out.push_str(reason);
            }
            last = who;
        }
        (!out.is_empty()).then_some(out)
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
                inputs: BTreeMap::new(),
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
                    sha256: Digest::of(b"six"),
                    via: vec![],
                }],
                builds: vec![BuildLock {
                    name: "x".into(),
                    version: "1".into(),
                    source: SourceLock::Sdist {
                        file: "x-1.tar.gz".into(),
                        sha256: Digest::of(b"x"),
                        size: 3,
                    },
                    requires: vec![],
                    via: vec![],
                }],
                tools: vec![],
                packages: vec![],
                builder_packages: vec![],
                lacking: vec![],
                app_requires: vec![],
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
    fn reasons_are_told_by_who_has_them() {
        let mut package = OsPackageLock::named("libglib2.0-0");
        assert_eq!(package.why(), None);
        package.reasons = ["a needs x.so.1", "a needs y.so.2", "b runs z"]
            .map(str::to_owned)
            .to_vec();
        let why = package.why();
        assert_eq!(why.as_deref(), Some("a needs x.so.1, y.so.2; b runs z"));
    }

    fn stack(base: &str) -> Stack {
        let text = format!(
            "stack: demo\nbase: {base}\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\npython: \"3.11\"\nlibraries: {{ six: auto }}\n"
        );
        crate::spec::read("s.yaml", &text).unwrap().pattern
    }

    fn inputs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        owned.collect()
    }

    #[test]
    fn stale_names_each_change() {
        let lock = sample();
        let stack = stack("debian-bookworm");
        assert!(lock.stale(&stack, &lock.inputs).is_empty());
        let now = inputs(&[("python", "3.12"), ("base", "x")]);
        let changes = lock.stale(&stack, &now);
        assert_eq!(changes.len(), 2);
        assert_eq!(changes[1].locked.as_deref(), Some("3.11"));
        assert_eq!(changes[1].now.as_deref(), Some("3.12"));
    }

    #[test]
    fn joined_locks_say_what_they_share_once_and_are_stale_each_for_itself() {
        let of = |base: &str, gpu: &str| {
            let mut lock = sample();
            lock.platforms[0].base.name = base.into();
            lock.inputs.extend(inputs(&[("base", base), ("gpu", gpu)]));
            lock
        };
        let (a, b) = (of("a", "sm_90"), of("b", "sm_90"));
        let joined = Lock::join(vec![a.clone(), b.clone()]).unwrap();
        assert_eq!(
            joined.inputs,
            inputs(&[("python", "3.11"), ("gpu", "sm_90")])
        );
        assert_eq!(joined.platforms[1].inputs, inputs(&[("base", "b")]));
        let text = joined.to_toml().unwrap();
        assert_eq!(Lock::from_toml(&text).unwrap(), joined, "{text}");
        assert!(joined.stale(&stack("a"), &a.inputs).is_empty());
        assert!(joined.stale(&stack("b"), &b.inputs).is_empty());
        let changed = of("b", "sm_100").inputs;
        assert_eq!(joined.stale(&stack("b"), &changed).len(), 1);
        let new = joined.stale(&stack("c"), &of("c", "sm_90").inputs);
        assert_eq!(new.len(), 1, "a base that no section was made for");
        assert_eq!(
            Lock::join(vec![a.clone()]),
            Some(a),
            "one section is the lock"
        );
    }
}
