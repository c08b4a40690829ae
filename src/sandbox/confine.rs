//! The last steps of the program's own process: what it may not do, then `exec`.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::wire::{Fault, Stage};
use super::{Identity, Sandbox, system};

/// What installing packages and compiling as root takes, and no more: no device, no mount, no
/// network setting, no tracing of others.
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

/// Calls that reach what namespaces do not divide, or that only a stolen capability could use.
const REFUSED: [libc::c_long; 26] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
];

/// Calls that change ids, answered with success where there is only one id: package managers stop
/// otherwise, and what they want cannot be kept anyway.
const PRETENDED: [libc::c_long; 12] = [
    libc::SYS_capset,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setuid,
];
/// The calls of old that newer processors do not have.
#[cfg(target_arch = "x86_64")]
const PRETENDED_OF_OLD: [libc::c_long; 2] = [libc::SYS_chown, libc::SYS_lchown];
#[cfg(not(target_arch = "x86_64"))]
const PRETENDED_OF_OLD: [libc::c_long; 0] = [];

/// Gives up what the program may not have. Nothing is opened after this.
pub fn confine(identity: Identity) -> io::Result<()> {
    if identity == Identity::Real {
        // The caller's groups are no business of the program's. In a user namespace they stay:
        // they may be what lets this user at a GPU, and the program is that user.
        rustix::thread::set_thread_groups(&[])?;
    }
    // Before capabilities go: without them the kernel wants the next line's promise.
    set_no_new_privs(true)?;
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        // The kernel refuses numbers that it does not know.
        let _ = remove_capability_from_bounding_set(capability);
    }
    let _ = clear_ambient_capability_set();
    let now = rustix::thread::capabilities(None)?;
    let kept = now.permitted.intersection(KEPT);
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    if identity == Identity::Single {
        let pretended = PRETENDED.into_iter().chain(PRETENDED_OF_OLD);
        install(&filter(pretended, 0)?)?;
    }
    let refused = libc::EPERM.unsigned_abs();
    install(&filter(REFUSED.into_iter(), refused)?)
}

/// A filter that answers `calls` with `errno`. Calls in the convention of another processor end
/// the program: their numbers mean other things.
fn filter(calls: impl Iterator<Item = libc::c_long>, errno: u32) -> io::Result<BpfProgram> {
    let rules: BTreeMap<i64, Vec<_>> = calls.map(|c| (c, Vec::new())).collect();
    let processor = std::env::consts::ARCH
        .try_into()
        .map_err(io::Error::other)?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno),
        processor,
    );
    filter.and_then(TryInto::try_into).map_err(io::Error::other)
}

fn install(filter: &BpfProgram) -> io::Result<()> {
    apply_filter(filter).map_err(io::Error::other)
}

/// Program, arguments and environment as `exec` wants them.
pub struct Command {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    path: Vec<u8>,
}

impl Command {
    pub fn new(sandbox: &Sandbox) -> io::Result<Self> {
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

    /// Becomes the program; returns only why that failed.
    pub fn exec(&self) -> Fault {
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
                // A program that is there and cannot be run says more than one that is not.
                if !matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) {
                    error = e;
                    break;
                }
            }
        }
        let why = match error.raw_os_error() {
            Some(libc::ENOENT) => format!("`{shown}`, or its interpreter, is not in the root"),
            Some(libc::ENOEXEC) => format!("`{shown}` is no program for this processor"),
            _ => format!("`{shown}` cannot be run"),
        };
        Fault::new(Stage::Program, why, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compile_for_this_processor() {
        let pretended = PRETENDED.into_iter().chain(PRETENDED_OF_OLD);
        assert!(filter(pretended, 0).unwrap().len() > PRETENDED.len());
        assert!(filter(REFUSED.into_iter(), 1).unwrap().len() > REFUSED.len());
    }

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
