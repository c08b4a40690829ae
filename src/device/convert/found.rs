//! What a stack takes of a foreign file.

use super::asked::Asked;
use super::item::{Item, Note, Os, Why};
use super::known::Known;
use pep440_rs::VersionSpecifiers;
use stackforge_stack::spec::Platform;
use std::collections::BTreeMap;

/// What was found in a file, in its order.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The file's name, for messages.
    pub shown: String,
    /// Name of the project or environment, if the file says one.
    pub name: Option<String>,
    /// What is asked of Python's version.
    pub python: Option<Why<VersionSpecifiers>>,
    /// CUDA's version, major and minor.
    pub cuda: Option<Why<String>>,
    pub os: Option<Os>,
    /// L4T release of a Jetson's base image.
    pub l4t: Option<Why<String>>,
    pub platform: Option<Platform>,
    /// SMs or GPUs that the file compiles for.
    pub gpus: Vec<String>,
    /// The image that a Dockerfile starts from.
    pub from: Option<Why<String>>,
    pub libraries: Vec<Item<Asked>>,
    pub overrides: Vec<Item<Asked>>,
    pub constraints: Vec<Item<Asked>>,
    pub indexes: Vec<Item<Why<String>>>,
    /// Whether `indexes` has the one that stands in place of PyPI.
    pub own_default_index: bool,
    pub packages: Vec<Item<Why<String>>>,
    pub image: ImageKeys,
    pub app: Option<App>,
    /// What has no place among the above.
    pub rest: Vec<Note>,
}

/// What a Dockerfile says of the running container: the stack's `image`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageKeys {
    pub entrypoint: Option<Vec<String>>,
    pub cmd: Option<Vec<String>>,
    pub env: BTreeMap<String, String>,
    pub user: Option<User>,
    pub workdir: Option<String>,
    pub ports: Vec<String>,
    pub volumes: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub stop_signal: Option<String>,
    pub health: Option<Health>,
    pub files: BTreeMap<String, String>,
    /// What none of the keys can say.
    pub notes: Vec<Note>,
}

impl ImageKeys {
    /// Takes a variable, unless a stack sets it itself. `shown` is its text in the file.
    pub(super) fn variable(
        &mut self,
        known: &Known,
        at: &str,
        name: &str,
        value: String,
        shown: String,
    ) {
        match known.variable(name) {
            Some(rule) if rule.silent => {}
            Some(rule) => self.notes.push(Note::new(at, shown, rule.why.clone())),
            None => {
                self.env.insert(name.to_owned(), value);
            }
        }
    }
}

/// A user that is not root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// `None` if the file says only a number.
    pub name: Option<String>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    pub cmd: Vec<String>,
    pub interval: Option<String>,
    pub timeout: Option<String>,
    pub start_period: Option<String>,
    pub retries: Option<u32>,
}

/// The project's own files: the stack's `app`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    pub source: String,
    pub to: String,
}
