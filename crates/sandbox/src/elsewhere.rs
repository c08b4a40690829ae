//! Systems without namespaces: nothing runs, and every answer says so.

use std::path::Path;
use std::process::ExitCode;

use super::capabilities::{Answer, Capabilities};
use super::error::SandboxError;
use super::outcome::{Identity, Outcome};
use super::request::{Archive, Sandbox};
use stackforge_types::{Cancel, LogStream};

/// Fails where no sandbox can be, whatever the machine's settings are. Of this machine's settings [`probe`] tells.
///
/// # Errors
/// [`SandboxError::NotLinux`].
pub fn supported() -> Result<(), SandboxError> {
    Err(SandboxError::NotLinux)
}

/// No process is started for a sandbox.
pub fn child_main() -> Option<ExitCode> {
    None
}

impl Sandbox {
    /// Runs nothing.
    ///
    /// # Errors
    /// [`SandboxError::NotLinux`].
    pub async fn run(
        &self,
        _: &Cancel,
        _: &mut (dyn FnMut(LogStream, &[u8]) + Send),
    ) -> Result<Outcome, SandboxError> {
        Err(SandboxError::NotLinux)
    }

    /// Runs nothing.
    ///
    /// # Errors
    /// [`SandboxError::NotLinux`].
    pub async fn attach(&self) -> Result<Outcome, SandboxError> {
        Err(SandboxError::NotLinux)
    }
}

/// Says that nothing of a sandbox is here.
///
/// # Errors
/// None.
pub async fn probe(_: Option<&Path>) -> Result<Capabilities, SandboxError> {
    let error = SandboxError::NotLinux;
    let no = Answer::no(error.to_string(), error.help());
    Ok(Capabilities {
        works: false,
        identity: Identity::Single,
        namespaces: no.clone(),
        overlay: no.clone(),
        subordinate_ids: no.clone(),
        seccomp: no.clone(),
        limits: no,
    })
}

/// Removes a directory.
///
/// # Errors
/// If the directory cannot be removed.
pub async fn remove(_: Option<&Path>, dir: &Path) -> Result<(), SandboxError> {
    stackforge_types::remove(dir).map_err(|source| SandboxError::Setup {
        doing: format!("remove {}", dir.display()),
        source,
    })
}

/// Archives nothing: no run left anything.
///
/// # Errors
/// [`SandboxError::NotLinux`].
pub async fn archive(_: Option<&Path>, _: &Archive) -> Result<(), SandboxError> {
    Err(SandboxError::NotLinux)
}
