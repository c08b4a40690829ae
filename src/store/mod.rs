//! What stackforge keeps between runs: one directory, safe to delete.
//!
//! `actions/KEY.json` remembers what a step with that key gave, `last/` the steps of each
//! stack's latest build (for `plan --why`), `logs/` the whole log of each build, `debs/`,
//! `indices/` and `wheels/` verified downloads, `tools/` programs that stackforge runs. Every file is
//! written under a temporary name and renamed, so a killed run leaves nothing half written.

use crate::plan::{Plan, Step};
use crate::spec::nouns::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("no place for the store: neither STACKFORGE_STORE, XDG_CACHE_HOME nor HOME is set")]
    NoPlace,
}

/// What a finished step left.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Action {
    pub step: String,
    /// The engine's image, for steps that end in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub seconds: f64,
    /// The validation's report, for image steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<serde_json::Value>,
    /// What reading it told: of an image, or of the wheel of a compile step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<serde_json::Value>,
}

/// An input that differs from the last build of the same step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Changed {
    pub input: String,
    pub before: Option<String>,
    pub now: Option<String>,
}

impl Store {
    /// `--store`, else STACKFORGE_STORE, else `stackforge` in the user's cache directory.
    pub fn open(explicit: Option<&Path>) -> Result<Self, StoreError> {
        let env = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let root = explicit
            .map(Path::to_owned)
            .or_else(|| env("STACKFORGE_STORE").map(PathBuf::from))
            .or_else(|| env("XDG_CACHE_HOME").map(|d| Path::new(&d).join("stackforge")))
            .or_else(|| env("HOME").map(|d| Path::new(&d).join(".cache/stackforge")))
            .ok_or(StoreError::NoPlace)?;
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A directory of the store, made if it is not there.
    pub fn dir(&self, name: &str) -> Result<PathBuf, StoreError> {
        let path = self.root.join(name);
        std::fs::create_dir_all(&path).map_err(|source| StoreError::Io {
            doing: "create",
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }

    fn action_path(&self, key: &Digest) -> PathBuf {
        self.root
            .join("actions")
            .join(format!("{}.json", key.hex()))
    }

    pub fn action(&self, key: &Digest) -> Option<Action> {
        let text = std::fs::read(self.action_path(key)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn has(&self, key: &Digest) -> bool {
        self.action_path(key).is_file()
    }

    pub fn record(&self, key: &Digest, action: &Action) -> Result<(), StoreError> {
        self.dir("actions")?;
        self.write_json(&self.action_path(key), action)
    }

    /// Drops what is remembered of a step whose output turned out to be gone.
    pub fn forget(&self, key: &Digest) {
        let _ = std::fs::remove_file(self.action_path(key));
    }

    fn last_path(&self, plan: &Plan) -> PathBuf {
        let name = format!("{}-{}.json", plan.variant, plan.platform.arch());
        self.root.join("last").join(name)
    }

    /// Remembers the plan's inputs as those of the latest build.
    pub fn record_last(&self, plan: &Plan) -> Result<(), StoreError> {
        self.dir("last")?;
        let inputs: BTreeMap<&str, &BTreeMap<String, String>> = plan
            .steps
            .iter()
            .map(|s| (s.id.as_str(), &s.inputs))
            .collect();
        self.write_json(&self.last_path(plan), &inputs)
    }

    /// What changed in each step since the latest build; None without one.
    pub fn why(&self, plan: &Plan) -> Option<BTreeMap<String, Vec<Changed>>> {
        let text = std::fs::read(self.last_path(plan)).ok()?;
        let last: BTreeMap<String, BTreeMap<String, String>> =
            serde_json::from_slice(&text).ok()?;
        let none = BTreeMap::new();
        Some(
            plan.steps
                .iter()
                .map(|step| {
                    (
                        step.id.clone(),
                        changed(step, last.get(&step.id).unwrap_or(&none)),
                    )
                })
                .filter(|(_, changes)| !changes.is_empty())
                .collect(),
        )
    }

    /// Path of a new log; names sort by time.
    pub fn new_log(&self, name: &str) -> Result<PathBuf, StoreError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let file = format!("{name}-{}.{:03}.log", now.as_secs(), now.subsec_millis());
        Ok(self.dir("logs")?.join(file))
    }

    fn write_json(&self, path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
        let text = serde_json::to_vec_pretty(value).map_err(|e| StoreError::Io {
            doing: "serialize",
            path: path.to_owned(),
            source: io::Error::other(e),
        })?;
        write_atomically(path, &text).map_err(|source| StoreError::Io {
            doing: "write",
            path: path.to_owned(),
            source,
        })
    }
}

fn changed(step: &Step, before: &BTreeMap<String, String>) -> Vec<Changed> {
    let names: std::collections::BTreeSet<&String> =
        step.inputs.keys().chain(before.keys()).collect();
    names
        .into_iter()
        .filter(|n| step.inputs.get(*n) != before.get(*n))
        .map(|n| Changed {
            input: n.clone(),
            before: before.get(n).cloned(),
            now: step.inputs.get(n).cloned(),
        })
        .collect()
}

/// Writes a file so that a reader sees the old content or the new, never a part.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".tmp-")
        .tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode)?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_remembered_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let key = Digest::of(b"x");
        assert!(!store.has(&key));
        let action = Action {
            step: "base".into(),
            image: Some("sha256:1".into()),
            seconds: 1.5,
            report: None,
            audit: None,
        };
        store.record(&key, &action).unwrap();
        assert_eq!(store.action(&key).unwrap().image, action.image);
        store.forget(&key);
        assert!(!store.has(&key));
    }

    #[test]
    fn a_torn_action_counts_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let key = Digest::of(b"x");
        store.dir("actions").unwrap();
        std::fs::write(store.action_path(&key), b"{\"step\":").unwrap();
        assert!(store.action(&key).is_none());
    }
}
