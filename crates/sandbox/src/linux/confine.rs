//! The last steps of the program's own process: drops its privileges, then calls `exec`.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::fault::{Fault, Stage};
use super::identity::Identity;
use super::request::{Sandbox, User};
use super::{seccomp, system};

/// The capabilities that installing packages and compiling as root need, and no more: no devices,
/// mounts, network settings or tracing of other processes.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SETFCAP);

/// Drops what the program must not have. Nothing is opened after this.
pub(crate) fn confine(identity: Identity, user: Option<&User>) -> io::Result<()> {
    if identity == Identity::Real {
        // The program must not keep the caller's groups. In a user namespace they stay: one of them may
        // grant this user access to a GPU, and the program runs as that user.
        let groups = user.map_or(&[][..], |user| &user.groups);
        let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        rustix::thread::set_thread_groups(&groups)?;
    }
    // Set before the capabilities are dropped: without them the kernel loads a seccomp filter only with
    // `no_new_privs`.
    set_no_new_privs(true)?;
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        // The kernel refuses capability numbers that it does not know.
        let _ = remove_capability_from_bounding_set(capability);
    }
    let _ = clear_ambient_capability_set();
    let now = rustix::thread::capabilities(None)?;
    let mut kept = now.permitted.intersection(KEPT);
    if let Some(user) = user {
        // Where there is one ID only, the program has it already.
        if identity != Identity::Single {
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        }
        if user.uid != 0 {
            kept = CapabilitySet::empty();
        }
    }
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    if identity == Identity::Single {
        seccomp::pretend()?;
    }
    seccomp::refuse()
}

/// Program, arguments and environment in the form that `exec` takes.
pub(crate) struct Command {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    path: Vec<u8>,
}

impl Command {
    pub(crate) fn new(sandbox: &Sandbox) -> io::Result<Self> {
        let string = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
        let arguments: Vec<CString> = sandbox
            .command
            .iter()
            .map(|a| string(a.as_bytes()))
            .collect::<io::Result<_>>()?;
        let environment = sandbox
            .env
            .iter()
            .map(|(name, value)| string(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<io::Result<_>>()?;
        let path = sandbox.env.get(OsStr::new("PATH"));
        Ok(Command {
            program: arguments.first().cloned().unwrap_or_default(),
            arguments,
            environment,
            path: path.map_or_else(Vec::new, |p| p.as_bytes().to_vec()),
        })
    }

    /// Replaces this process with the program; returns only if that failed.
    pub(crate) fn exec(&self) -> Fault {
        let name = self.program.as_bytes();
        let shown = String::from_utf8_lossy(name).into_owned();
        let mut error = io::Error::from_raw_os_error(libc::ENOENT);
        if name.contains(&b'/') {
            error = system::exec(&self.program, &self.arguments, &self.environment);
        } else {
            for directory in self.path.split(|b| *b == b':').filter(|d| !d.is_empty()) {
                let Ok(full) = CString::new([directory, b"/", name].concat()) else {
                    continue;
                };
                let e = system::exec(&full, &self.arguments, &self.environment);
                match e.raw_os_error() {
                    Some(libc::ENOENT | libc::ENOTDIR) => {}
                    // A later directory may have one that this user may run, as in a shell.
                    Some(libc::EACCES) => error = e,
                    // The error of a program that exists but cannot be run says more than that of a
                    // missing one.
                    _ => {
                        error = e;
                        break;
                    }
                }
            }
        }
        let why = match error.raw_os_error() {
            Some(libc::ENOENT) => format!("`{shown}`, or its interpreter, is not in the root"),
            Some(libc::ENOEXEC) => format!("`{shown}` is not a program for this processor"),
            _ => format!("`{shown}` cannot be run"),
        };
        Fault::new(Stage::Program, why, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_capability_that_reaches_the_machine_is_kept() {
        for capability in [
            CapabilitySet::SYS_ADMIN,
            CapabilitySet::MKNOD,
            CapabilitySet::SYS_PTRACE,
            CapabilitySet::NET_ADMIN,
            CapabilitySet::DAC_READ_SEARCH,
            CapabilitySet::SYS_MODULE,
        ] {
            assert!(!KEPT.contains(capability));
        }
    }
}
