//! What a stack's `app`, `image` and own checks become in a plan.

use super::op::{Added, App, AppSource, Project, Service};
use stackforge_stack::lock::PlatformLock;
use stackforge_stack::spec::Stack;
use std::collections::BTreeMap;

/// What the user puts into the image, over the Python environment.
#[derive(Debug, Clone)]
pub struct Own {
    pub app: App,
    /// How the app's own project is built. `None` if it is not installed.
    pub project: Option<Project>,
    pub service: Service,
    /// How much the layer holds, for people.
    pub note: Option<String>,
}

impl Own {
    /// Returns `None` if the stack says nothing of it.
    pub fn of(
        stack: &Stack,
        lock: &PlatformLock,
        source: Option<AppSource>,
        added: Vec<Added>,
    ) -> Option<Self> {
        if stack.app.is_none() && stack.image.is_none() && stack.checks.is_empty() {
            return None;
        }
        let mut config = stack.image.clone().unwrap_or_default();
        let to = stack.app.as_ref().map(|app| app.to.clone());
        // An app's programs start in its directory, where Python finds its modules.
        config.workdir = config.workdir.or_else(|| to.clone());
        let files = source.as_ref().map_or(&[][..], |source| &source.files);
        let bytes: u64 = files.iter().map(|file| file.size()).sum();
        let note = to.as_ref().map(|to| {
            let files = match files.len() {
                1 => "1 file".to_owned(),
                n => format!("{n} files"),
            };
            format!("{files}, {bytes} bytes, in {to}")
        });
        let project = stack.app.as_ref().and_then(|app| app.project.as_ref());
        let project = project.map(|project| Project {
            backend: project.backend.clone(),
            backend_path: project.backend_path.clone(),
            requires: lock.app_requires.clone(),
        });
        Some(Self {
            project,
            app: App {
                source: source.unwrap_or_default(),
                added,
                user: config.user.clone(),
                volumes: config.volumes.clone(),
                workdir: config
                    .workdir
                    .clone()
                    .filter(|dir| Some(dir) != to.as_ref()),
                to,
            },
            service: Service {
                config,
                checks: stack.checks.clone(),
            },
            note,
        })
    }
}

impl Service {
    /// Returns everything that decides the image besides its layers, by name.
    pub(super) fn inputs(&self) -> BTreeMap<String, String> {
        let text = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut inputs = BTreeMap::new();
        for (what, value) in [
            ("image", serde_json::to_value(&self.config)),
            ("validate", serde_json::to_value(&self.checks)),
        ] {
            // Cannot fail: maps with string keys always serialize.
            let value = value.unwrap_or_default();
            for (key, value) in value.as_object().into_iter().flatten() {
                inputs.insert(format!("{what}:{key}"), text(value));
            }
        }
        inputs
    }
}
