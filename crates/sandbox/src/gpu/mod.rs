//! NVIDIA GPUs in a sandbox: the mounts and variables that give them to a program.
//!
//! A CDI specification of the host is used as it is. Without one, the driver's devices, libraries and
//! `nvidia-smi` are found on the host and mounted below `/dev/stackforge`, a path that no image uses.
//! Nothing is run, and no library is loaded.

mod access;
mod cdi;
mod driver;

use std::path::{Path, PathBuf};

pub use access::Access;

impl Access {
    /// Finds the GPUs of the machine whose file system is at `host`, `/` for this machine; `None` if it
    /// has no NVIDIA driver. `searched` are directories that the loader searches besides the system's
    /// own, as in LD_LIBRARY_PATH.
    pub fn find(host: &Path, searched: &[PathBuf]) -> Option<Self> {
        cdi::find(host).or_else(|| driver::find(host, searched))
    }
}
