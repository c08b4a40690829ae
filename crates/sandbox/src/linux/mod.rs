//! Sandboxes of Linux: namespaces, overlayfs, seccomp, control groups.

mod archive;
mod attach;
mod cgroup;
mod changes;
mod child;
mod confine;
mod descriptors;
mod fault;
mod identity;
mod init;
mod lines;
mod outputs;
mod place;
mod probe;
mod refusal;
mod rootfs;
mod run;
mod seccomp;
mod streams;
mod stubs;
mod system;
mod terminal;
mod wire;

use super::{capabilities, error, mountinfo, outcome, request, text};

pub use changes::{Change, ChangeKind, changes};
pub use child::child_main;
pub use probe::probe;
pub use run::{archive, remove};

/// Fails where no sandbox can be, whatever the machine's settings are. Of this machine's settings [`probe`] tells.
///
/// # Errors
/// [`SandboxError::NotLinux`](error::SandboxError::NotLinux).
pub fn supported() -> Result<(), error::SandboxError> {
    Ok(())
}
