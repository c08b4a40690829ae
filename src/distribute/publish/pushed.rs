//! Remembers which image of a stack or variant was pushed last, so that what starts it elsewhere can name it by
//! digest.
//!
//! The record is an action of the store, under the name of the stack or variant. If it cannot be written, the push
//! has succeeded all the same.

use serde::{Deserialize, Serialize};
use stackforge_image::store::{Action, Store};
use stackforge_stack::labels;
use stackforge_stack::spec::Platform;
use stackforge_transfer::registry::Reference;
use stackforge_types::Digest;
use std::collections::BTreeMap;

/// An image in a registry, and what its configuration says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedImage {
    /// Host and repository, `registry.example/team/app`.
    pub repository: String,
    /// Digest of the image's manifest.
    pub digest: Digest,
    pub platform: Platform,
    /// Labels of the configuration, and the facts of its entry in an index.
    pub labels: BTreeMap<String, String>,
    /// The configuration's user, `1000:1000`. `None` is root.
    #[serde(default)]
    pub user: Option<String>,
}

impl PushedImage {
    /// Returns host and repository of a reference, as [`PushedImage::repository`] has them.
    pub fn repository_of(reference: &Reference) -> String {
        format!("{}/{}", reference.host(), reference.repository())
    }

    /// Returns the key of the plan that made the image, if a stack did.
    pub fn key(&self) -> Option<&str> {
        self.labels.get(labels::KEY).map(String::as_str)
    }

    /// Remembers the image. Does nothing with an image that no stack made.
    pub fn record(&self, store: &Store) {
        let label = |name| self.labels.get(name);
        let Some(name) = label(labels::VARIANT).or_else(|| label(labels::STACK)) else {
            return;
        };
        let action = Action {
            step: "pushed image".to_owned(),
            made: serde_json::to_value(self).ok(),
            ..Action::default()
        };
        if let Err(error) = store.record(&key(name), &action) {
            tracing::debug!(%error, "not remembered");
        }
    }

    /// Returns the last image that was pushed of a stack or variant.
    pub fn last(store: &Store, name: &str) -> Option<Self> {
        let made = store.action(&key(name))?.made?;
        serde_json::from_value(made).ok()
    }
}

fn key(name: &str) -> Digest {
    Digest::of(format!("pushed image of {name}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_image_of_a_variant_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let image = |text: &str, name| PushedImage {
            repository: "registry.example/team/app".to_owned(),
            digest: Digest::of(text.as_bytes()),
            platform: "linux/arm64".parse().unwrap(),
            labels: BTreeMap::from(
                [(name, "app".to_owned())].map(|(k, v): (&str, _)| (k.to_owned(), v)),
            ),
            user: Some("7:7".to_owned()),
        };
        assert_eq!(PushedImage::last(&store, "app"), None);
        image("a", labels::STACK).record(&store);
        image("b", labels::VARIANT).record(&store);
        image("c", "other").record(&store);
        assert_eq!(
            PushedImage::last(&store, "app"),
            Some(image("b", labels::VARIANT))
        );
    }
}
