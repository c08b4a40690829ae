//! Finds out what this machine allows this user, by trying it.
//!
//! A re-executed process creates namespaces and an overlay of its own and reports how far it got. The
//! reasons for a failure are read from files with the kernel's settings.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, mkdirat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{WaitOptions, waitpid};

use super::capabilities::{Answer, Capabilities};
use super::cgroup::Cgroup;
use super::error::{NEWER, SandboxError};
use super::fault::{Fault, Stage};
use super::identity::{self, Identity};
use super::refusal::why_not_allowed;
use super::request::Limits;
use super::rootfs;
use super::run::talk;
use super::system::{self, Fork};
use super::wire::{Message, Task, Tried};
use stackforge_types::Cancel;

/// Probes the machine. `launcher` is as in [`Sandbox`](crate::Sandbox).
///
/// # Errors
/// If the launcher cannot be started or ends without an answer. A feature that the machine does not
/// allow is part of the result, not an error.
pub async fn probe(launcher: Option<&Path>) -> Result<Capabilities, SandboxError> {
    match talk(launcher, &Task::Probe, &[], &Cancel::new(), &mut |_, _| ()).await? {
        Message::Tried(tried) => Ok(judge(tried)),
        Message::Failed(fault) => Err(SandboxError::from_fault(fault)),
        Message::Ended(_) | Message::Removed | Message::Archived => Err(SandboxError::Lost),
    }
}

fn judge(tried: Tried) -> Capabilities {
    let reason = |fault: &Fault| {
        let error = io::Error::from_raw_os_error(fault.errno);
        format!("{}: {error}", fault.doing)
    };
    let namespaces = match &tried.namespaces {
        Some(fault) if fault.errno == libc::ENOSYS => Answer::no(reason(fault), NEWER),
        Some(fault) => Answer::no(reason(fault), why_not_allowed()),
        None => Answer::yes(),
    };
    let overlay = match (&tried.overlay, namespaces.yes) {
        (Some(fault), _) => Answer::no(
            reason(fault),
            "an ordinary user needs Linux 5.11 or newer; run as root otherwise",
        ),
        (None, false) => Answer::no("no namespace to try it in", ""),
        (None, true) => Answer::yes(),
    };
    let subordinate_ids = match tried.identity {
        Identity::Real | Identity::Subordinate => Answer::yes(),
        Identity::Single => Answer::no(
            "this user has none, or newuidmap and newgidmap (package uidmap) are missing",
            "not needed; with `sudo usermod --add-subuids 100000-165535 --add-subgids \
             100000-165535 USER` what programs install keeps its owners",
        ),
    };
    let seccomp = if Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        Answer::yes()
    } else {
        Answer::no(
            "the kernel has no seccomp filters",
            "use a kernel that is built with CONFIG_SECCOMP_FILTER",
        )
    };
    let limits = match &tried.limits.reason {
        None => Answer::yes(),
        Some(reason) => Answer::no(
            reason.clone(),
            "programs run without limits; run as root, or in a delegated group: `systemd-run \
             --user --scope -p Delegate=yes stackforge …`",
        ),
    };
    Capabilities {
        works: namespaces.yes && overlay.yes && seccomp.yes,
        identity: tried.identity,
        namespaces,
        overlay,
        subordinate_ids,
        seccomp,
        limits,
    }
}

/// In the re-executed process: performs the steps of a run until one fails.
pub(crate) fn try_all() -> Tried {
    let limits = Limits {
        memory: Some(1 << 30),
        pids: Some(1000),
        cpus: Some(1.0),
    };
    let (group, applied) = Cgroup::new(&limits);
    group.remove();
    let (identity, mapper) = identity::choose();
    let mut tried = Tried {
        identity,
        namespaces: None,
        overlay: None,
        limits: applied,
    };
    let entered = match identity {
        Identity::Real => system::unshare(libc::CLONE_NEWPID)
            .map(|()| identity)
            .map_err(Fault::at(Stage::Namespaces, "make namespaces")),
        _ => identity::become_root(mapper.as_ref(), libc::CLONE_NEWPID),
    };
    match entered.and_then(|identity| within(identity).map(|()| identity)) {
        Ok(identity) => tried.identity = identity,
        Err(fault) if fault.stage == Stage::Overlay => tried.overlay = Some(fault),
        Err(fault) => tried.namespaces = Some(fault),
    }
    tried
}

/// As process 1 of its namespaces, because only there can a /proc be mounted.
fn within(identity: Identity) -> Result<(), Fault> {
    let (reader, mut writer) = io::pipe().map_err(Fault::setup("make a pipe"))?;
    match system::fork().map_err(Fault::at(Stage::Namespaces, "start process 1"))? {
        Fork::Child => {
            drop(reader);
            if let Err(fault) = mounts(identity) {
                let line = serde_json::to_vec(&fault).unwrap_or_default();
                // If the report cannot be sent, the process counts as successful: nothing better is
                // known.
                let _ = writer.write_all(&line);
            }
            system::exit(0)
        }
        Fork::Parent(pid) => {
            drop(writer);
            let line = BufReader::new(reader).split(b'\n').next();
            let _ = waitpid(Some(pid), WaitOptions::empty());
            match line {
                Some(Ok(line)) => Err(serde_json::from_slice(&line)
                    .unwrap_or_else(|_| Fault::setup("ask the machine")(rustix::io::Errno::IO))),
                _ => Ok(()),
            }
        }
    }
}

fn mounts(identity: Identity) -> Result<(), Fault> {
    let namespaces = || Fault::at::<rustix::io::Errno>(Stage::Namespaces, "mount /proc");
    let flags = libc::CLONE_NEWNS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWNET;
    system::unshare(flags).map_err(Fault::at(Stage::Namespaces, "make namespaces"))?;
    rootfs::private()?;
    let proc = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).map_err(namespaces())?;
    fsconfig_create(&proc).map_err(namespaces())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID;
    let proc = fsmount(&proc, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(namespaces())?;
    system::read_only(proc.as_fd())
        .map_err(Fault::at(Stage::Namespaces, "make a mount read-only"))?;
    rootfs::cover()?;
    let overlay = || Fault::at::<rustix::io::Errno>(Stage::Overlay, "mount an overlay");
    for name in ["0", "u", "w", "root"] {
        mkdirat(CWD, name, Mode::from_raw_mode(0o755)).map_err(overlay())?;
    }
    rootfs::mount_overlay("0", identity).map_err(overlay())
}
