//! Results of finished steps: `actions/KEY.json`.
//!
//! A record that cannot be read as an action, or names a missing blob, is ignored: the step then runs again,
//! which is always right.

use super::blob::stamp;
use super::error::StoreError;
use super::files::{entries, write_atomically};
use super::handle::Store;
use serde::{Deserialize, Serialize};
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

/// Most bytes of a record; a validation's report has some kilobytes.
const LARGEST: u64 = 16 << 20;

/// The result of a finished step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// Description of the step, for people.
    pub step: String,
    /// Blobs that the step made, by their role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, Digest>,
    /// The engine's image ID, for steps that make an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How long the step took, in seconds.
    pub seconds: f64,
    /// The validation's report, for image steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<serde_json::Value>,
    /// The audit of the image, or of a compile step's wheel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<serde_json::Value>,
    /// More about the outputs: a layer's media type and diff ID, or an image's layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<serde_json::Value>,
}

impl Store {
    fn action_path(&self, key: &Digest) -> PathBuf {
        let file = format!("{}.json", key.hex());
        self.root().join("actions").join(file)
    }

    /// Returns the action of the step with that key, if all its blobs exist. They are not collected while
    /// this store, or a clone of it, is open.
    pub fn action(&self, key: &Digest) -> Option<Action> {
        let action = self.read_action(key)?;
        let mut outputs = action.outputs.values();
        if !outputs.all(|digest| self.blob(digest).is_some()) {
            return None;
        }
        stamp(&self.action_path(key));
        Some(action)
    }

    /// Returns the action of the step that made an image; if several did, any of them.
    pub fn action_of_image(&self, image: &Digest) -> Option<Action> {
        let image = image.to_string();
        let keys = self.keys().ok()?;
        let mut actions = keys.iter().filter_map(|key| self.read_action(key));
        actions.find(|action| action.image.as_ref() == Some(&image))
    }

    /// Whether [`Store::action`] would return an action; leases nothing.
    pub fn has(&self, key: &Digest) -> bool {
        let outputs = self.read_action(key).map(|action| action.outputs);
        outputs.is_some_and(|o| o.values().all(|digest| self.blob_path(digest).is_file()))
    }

    pub(super) fn read_action(&self, key: &Digest) -> Option<Action> {
        let file = File::open(self.action_path(key)).ok()?;
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Records a finished step; its outputs must exist.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if an output is missing, or if the store cannot be written.
    pub fn record(&self, key: &Digest, action: &Action) -> Result<(), StoreError> {
        self.lease(action.outputs.values())?;
        if let Some(gone) = (action.outputs.values()).find(|d| !self.blob_path(d).is_file()) {
            return Err(StoreError::Missing(gone.clone()));
        }
        self.dir("actions")?;
        let path = self.action_path(key);
        let failed = |e| StoreError::at("write", &path, e);
        let text = serde_json::to_vec_pretty(action).map_err(|e| failed(io::Error::other(e)))?;
        write_atomically(&path, &text).map_err(failed)
    }

    /// Removes the record of a step whose output turned out to be missing.
    pub fn forget(&self, key: &Digest) {
        let _ = std::fs::remove_file(self.action_path(key));
    }

    /// The key of every record, whether or not the record can be read.
    pub(super) fn keys(&self) -> Result<Vec<Digest>, StoreError> {
        let files = entries(&self.root().join("actions"))?;
        let key = |path: PathBuf| {
            let hex = path.file_name()?.to_str()?.strip_suffix(".json")?;
            Digest::from_hex(hex).ok()
        };
        Ok(files.into_iter().filter_map(key).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        (dir, store)
    }

    #[test]
    fn actions_are_remembered_and_forgotten() {
        let (_dir, store) = store();
        let key = Digest::of(b"x");
        assert!(!store.has(&key));
        let wheel = store.put(&b"wheel"[..], None).unwrap();
        let action = Action {
            step: "compile:x".into(),
            outputs: [("wheel".to_owned(), wheel.digest.clone())].into(),
            image: Some("sha256:1".into()),
            seconds: 1.5,
            ..Action::default()
        };
        store.record(&key, &action).unwrap();
        assert_eq!(store.action(&key), Some(action.clone()));
        std::fs::remove_file(&wheel.path).unwrap();
        assert!(!store.has(&key) && store.action(&key).is_none());
        let error = store.record(&key, &action).unwrap_err();
        assert!(matches!(error, StoreError::Missing(_)));
        store.forget(&key);
        assert!(store.keys().unwrap().is_empty());
    }

    #[test]
    fn an_action_of_an_earlier_version_is_read_and_a_torn_one_is_none() {
        let (_dir, store) = store();
        let key = Digest::of(b"x");
        store.dir("actions").unwrap();
        let write = |text: &str| std::fs::write(store.action_path(&key), text).unwrap();
        write(r#"{"step":"base","image":"sha256:1","seconds":1.5}"#);
        assert_eq!(store.action(&key).unwrap().step, "base");
        write("{\"step\":");
        assert!(store.action(&key).is_none());
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_no_action_or_one(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let (_dir, store) = store();
            let key = Digest::of(b"x");
            store.dir("actions").unwrap();
            std::fs::write(store.action_path(&key), &bytes).unwrap();
            let read: Option<Action> = serde_json::from_slice(&bytes).ok();
            prop_assert_eq!(store.action(&key).is_some(), read.is_some());
        }

        #[test]
        fn any_action_is_read_as_it_was_written(
            step in "\\PC{0,40}", image in proptest::option::of("\\PC{0,40}"),
            eighths in any::<u32>(), contents in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let (_dir, store) = store();
            let outputs = contents.iter().map(|byte| {
                let blob = store.put(&[*byte][..], None).unwrap();
                (byte.to_string(), blob.digest)
            });
            let outputs = outputs.collect();
            let seconds = f64::from(eighths) / 8.0;
            let action = Action { step, outputs, image, seconds, ..Action::default() };
            let key = Digest::of(b"x");
            store.record(&key, &action).unwrap();
            prop_assert_eq!(store.action(&key), Some(action));
        }
    }
}
