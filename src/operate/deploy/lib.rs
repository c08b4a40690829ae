//! Writes what starts a stack's service elsewhere: a Compose file for one machine, manifests for Kubernetes.
//!
//! In: the stack's `image` keys, and for each variant the image as a push left it in a registry. Out: the text of
//! one YAML file that names the images by digest, and says in comments why it is as it is. Never: names an image
//! by a tag, writes a value that its reader takes for another one, depends on the machine that renders, except for
//! the shared memory of a Compose file.

mod compose;
mod error;
mod kubernetes;
mod locate;
mod names;
mod nodes;
mod probes;
mod yaml;

use stackforge_distribute::publish::PushedImage;
use stackforge_stack::spec::{ImageConfig, Platform};

pub use compose::compose;
pub use error::DeployError;
pub use kubernetes::kubernetes;
pub use locate::{in_engine, in_registry, pushed};

/// Time between the signal that asks the service to end and SIGKILL, in seconds.
const GRACE: u64 = 30;

/// Variable that says which GPUs NVIDIA's container toolkit gives a container.
const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES";

/// A stack's service.
#[derive(Debug)]
pub struct Service {
    /// Name of the stack.
    pub name: String,
    /// The stack, or variants of it.
    pub instances: Vec<Instance>,
    /// `None` if nobody asked: all GPUs of a machine, one of a cluster's node.
    pub gpus: Option<Gpus>,
    /// Size of `/dev/shm` in bytes. `None` if nobody asked.
    pub shared_memory: Option<u64>,
    /// Memory of the machine that a Compose file is for, in bytes.
    pub memory: Option<u64>,
    /// Size of each volume of a cluster, in bytes.
    pub storage: u64,
}

/// What runs one image.
#[derive(Debug)]
pub struct Instance {
    /// Name of the stack or variant.
    pub name: String,
    pub config: ImageConfig,
    pub image: Located,
}

/// Where an image is.
#[derive(Debug)]
pub enum Located {
    Registry(PushedImage),
    /// In this machine's engine alone.
    Engine(EngineImage),
}

/// An image of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineImage {
    pub id: String,
    pub platform: Platform,
    pub labels: std::collections::BTreeMap<String, String>,
    /// `None` is root.
    pub user: Option<String>,
}

/// GPUs that the service asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gpus {
    All,
    Count(u32),
}

/// The numbers of an image's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    Root,
    Ids {
        uid: u32,
        gid: u32,
    },
    /// Who it is stands in the image's files.
    Named,
}

impl Instance {
    fn platform(&self) -> Platform {
        match &self.image {
            Located::Registry(image) => image.platform,
            Located::Engine(image) => image.platform,
        }
    }

    fn labels(&self) -> &std::collections::BTreeMap<String, String> {
        match &self.image {
            Located::Registry(image) => &image.labels,
            Located::Engine(image) => &image.labels,
        }
    }

    /// Returns the user that the image's configuration names.
    fn user(&self) -> User {
        let text = match &self.image {
            Located::Registry(image) => image.user.as_deref(),
            Located::Engine(image) => image.user.as_deref(),
        };
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return User::Root;
        };
        let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
        match (uid, uid.parse(), gid.parse()) {
            ("root", ..) | (_, Ok(0), _) => User::Root,
            (_, Ok(uid), Ok(gid)) => User::Ids { uid, gid },
            // Engines give a number without a group, and without an entry in /etc/passwd, root's.
            _ => User::Named,
        }
    }

    /// Whether the image is for a Jetson, whose GPU comes through the `nvidia` runtime.
    fn is_for_jetson(&self) -> bool {
        let l4t = self.labels().get(stackforge_stack::labels::L4T);
        l4t.is_some_and(|releases| !releases.is_empty())
    }

    /// Whether the image has device code at all.
    fn wants_gpu(&self) -> bool {
        let has = |name| self.labels().get(name).is_some_and(|sms| !sms.is_empty());
        has(stackforge_stack::labels::SM) || has(stackforge_stack::labels::PTX)
    }

    /// Fails if nothing says what is started.
    fn starts(&self) -> Result<(), DeployError> {
        let given = |words: &Option<Vec<String>>| words.as_ref().is_some_and(|w| !w.is_empty());
        if given(&self.config.entrypoint) || given(&self.config.cmd) {
            return Ok(());
        }
        Err(DeployError::NoCommand(self.name.clone()))
    }
}

/// Begins a file: what wrote it, and how it is changed.
fn heading(command: &str, change: &str) -> String {
    format!(
        "# Written by `{command}`.\n\
         # Write it again after each push. Make changes in {change}, which stays.\n"
    )
}

/// Whether a file was written by this crate, and may be overwritten by it.
pub fn is_rendered(text: &str) -> bool {
    text.starts_with("# Written by `stackforge render ")
}
