//! The mounts and variables that give a program the GPUs of a machine.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::request::{Mount, Sandbox};

/// What gives a program the GPUs of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Where this was read: a specification's path, or the driver's directory.
    pub from: PathBuf,
    /// The mounts to add, read-only where the driver allows it.
    pub mounts: Vec<Mount>,
    /// Environment variables that the specification sets.
    pub env: Vec<(OsString, OsString)>,
    /// Directories of the sandbox that the loader must search.
    pub libraries: Vec<PathBuf>,
    /// Directories of the sandbox that hold programs.
    pub programs: Vec<PathBuf>,
}

impl Access {
    /// Adds the mounts and variables to a sandbox.
    pub fn give(&self, sandbox: &mut Sandbox) {
        sandbox.mounts.extend(self.mounts.iter().cloned());
        sandbox.env.extend(self.env.iter().cloned());
        prepend(sandbox, "LD_LIBRARY_PATH", &self.libraries);
        let path = sandbox.env.entry("PATH".into()).or_default();
        for directory in &self.programs {
            if !path.is_empty() {
                path.push(":");
            }
            path.push(directory);
        }
        // Triton asks `ldconfig` for the driver's library, and the loader's cache does not list mounts.
        if let Some(directory) = self.libraries.first() {
            sandbox
                .env
                .entry("TRITON_LIBCUDA_PATH".into())
                .or_insert_with(|| directory.into());
        }
    }
}

fn prepend(sandbox: &mut Sandbox, name: &str, directories: &[PathBuf]) {
    let value = sandbox.env.entry(name.into()).or_default();
    let mut joined = OsString::new();
    for part in directories
        .iter()
        .map(|d| d.as_os_str())
        .chain([value.as_os_str()])
    {
        if !part.is_empty() {
            if !joined.is_empty() {
                joined.push(":");
            }
            joined.push(part);
        }
    }
    if joined.is_empty() {
        drop(sandbox.env.remove(OsStr::new(name)))
    } else {
        *value = joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Root;

    #[test]
    fn directories_of_the_driver_come_first_for_libraries_and_last_for_programs() {
        let access = Access {
            libraries: vec!["/a".into(), "/b".into()],
            programs: vec!["/c".into()],
            ..Access::default()
        };
        let mut sandbox = Sandbox::new(Root::directory("/"), ["true"]);
        sandbox.env.insert("PATH".into(), "/bin".into());
        sandbox.env.insert("LD_LIBRARY_PATH".into(), "/x".into());
        access.give(&mut sandbox);
        let get = |name: &str| sandbox.env[OsStr::new(name)].to_str().unwrap().to_owned();
        assert_eq!(get("LD_LIBRARY_PATH"), "/a:/b:/x");
        assert_eq!(get("PATH"), "/bin:/c");
        assert_eq!(get("TRITON_LIBCUDA_PATH"), "/a");
    }
}
