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

/// Device files of GPUs, each with a number after it.
const NUMBERED: &str = "/dev/nvidia";

impl Access {
    /// Returns the numbers of the GPUs that have a device file of their own, in ascending order.
    pub fn gpus(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.mounts.iter().filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Leaves out the device files of GPUs for whose number `stays` is false.
    pub fn retain_gpus(&mut self, stays: impl Fn(u32) -> bool) {
        self.mounts.retain(|mount| number(mount).is_none_or(&stays));
    }

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

/// Returns the number of the GPU whose device file a mount is.
fn number(mount: &Mount) -> Option<u32> {
    let digits = mount.target().to_str()?.strip_prefix(NUMBERED)?;
    digits.parse().ok()
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
    fn gpus_are_left_out_by_their_number() {
        let device = |name: &str| Mount::read_only("/x", format!("/dev/{name}"));
        let mut access = Access {
            mounts: ["nvidia1", "nvidiactl", "nvidia0", "nvidia-caps"]
                .map(device)
                .into(),
            ..Access::default()
        };
        assert_eq!(access.gpus(), [0, 1]);
        access.retain_gpus(|n| n == 1);
        assert_eq!(
            access.mounts,
            ["nvidia1", "nvidiactl", "nvidia-caps"].map(device)
        );
    }

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
