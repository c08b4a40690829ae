//! The system calls that a program in a sandbox may not make, as tables.
//!
//! The reference is Docker's default profile for a container without added capabilities: what it
//! refuses is refused here, with the same error. Calls that are newer than this table fail with ENOSYS,
//! so programs fall back on an older call.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter, sock_filter,
};

type Call = libc::c_long;

/// Calls refused with EPERM, whatever their arguments are.
const REFUSED: &[Call] = &[
    // Kernel modules, other kernels, and programs that run in this kernel.
    libc::SYS_bpf,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    // Keys; no namespace isolates them.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Mounts and namespaces; `clone` is handled below.
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    // Access to files other than by path, and events of all files.
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    // The machine's clock, name, accounting and log.
    libc::SYS_acct,
    libc::SYS_clock_settime,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    // Memory and files of other processes, and the placement of memory.
    libc::SYS_get_mempolicy,
    libc::SYS_kcmp,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    // Interfaces that expose much of the kernel.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_nfsservctl,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
];

/// Old calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const REFUSED_OF_OLD: &[Call] = &[
    libc::SYS__sysctl,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_sysfs,
    libc::SYS_uselib,
    libc::SYS_ustat,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_OF_OLD: &[Call] = &[];

/// Calls refused with ENOSYS: their arguments are in memory, where a filter cannot read them. Programs
/// then use `clone`.
const MISSING: &[Call] = &[libc::SYS_clone3];

/// Namespaces that `clone` may not create. Each has a rule of its own, because a rule matches only if
/// all bits of its mask are set.
const NAMESPACE_BITS: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// Socket families for the virtual machine's host and for the kernel's ciphers.
const FAMILIES: [libc::c_int; 2] = [libc::AF_VSOCK, libc::AF_ALG];
/// The personalities of Linux and of 32-bit Linux, each also with the old release number, and the
/// query.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Calls that change IDs, reported as successful if there is only one ID: package managers would
/// otherwise stop, and no other owner could be recorded anyway.
const PRETENDED: &[Call] = &[
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
#[cfg(target_arch = "x86_64")]
const PRETENDED_OF_OLD: &[Call] = &[libc::SYS_chown, libc::SYS_lchown];
#[cfg(not(target_arch = "x86_64"))]
const PRETENDED_OF_OLD: &[Call] = &[];

/// The newest call in this table: `mseal` of Linux 6.10, which has the same number on every
/// architecture.
const NEWEST: u32 = 462;

/// Installs the filter that refuses these calls, for this process and all that it starts.
pub(crate) fn refuse() -> io::Result<()> {
    for filter in refusals()? {
        apply_filter(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Installs the filter that reports calls that change IDs as successful.
pub(crate) fn pretend() -> io::Result<()> {
    apply_filter(&filter(always(&[PRETENDED, PRETENDED_OF_OLD]), 0)?).map_err(io::Error::other)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn refusals() -> io::Result<[BpfProgram; 3]> {
    let mut rules = always(&[REFUSED, REFUSED_OF_OLD]);
    let mut add = |call: Call, any: Vec<SeccompCondition>| {
        let made: Result<Vec<_>, _> = any.into_iter().map(|c| SeccompRule::new(vec![c])).collect();
        rules.insert(call, made.map_err(io::Error::other)?);
        Ok::<_, io::Error>(())
    };
    let bits = NAMESPACE_BITS.map(|bit| u64::from(bit.unsigned_abs()));
    let set = |bit| condition(SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit);
    add(
        libc::SYS_clone,
        bits.map(set).into_iter().collect::<io::Result<_>>()?,
    )?;
    let families = FAMILIES.map(|family| u64::from(family.unsigned_abs()));
    let is = |family| condition(SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family);
    add(
        libc::SYS_socket,
        families.map(is).into_iter().collect::<io::Result<_>>()?,
    )?;
    // One rule with all conditions: the personality is none of the allowed ones.
    let none = PERSONALITIES
        .map(|p| condition(SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, p))
        .into_iter()
        .collect::<io::Result<Vec<_>>>()?;
    let rule = SeccompRule::new(none).map_err(io::Error::other)?;
    rules.insert(libc::SYS_personality, vec![rule]);
    Ok([
        filter(rules, libc::EPERM.unsigned_abs())?,
        filter(always(&[MISSING]), libc::ENOSYS.unsigned_abs())?,
        newer(),
    ])
}

/// Returns a condition on the first argument.
fn condition(
    length: SeccompCmpArgLen,
    operation: SeccompCmpOp,
    value: u64,
) -> io::Result<SeccompCondition> {
    SeccompCondition::new(0, length, operation, value).map_err(io::Error::other)
}

fn always(calls: &[&[Call]]) -> Rules {
    let calls = calls.iter().flat_map(|some| some.iter());
    calls.map(|call| (*call, Vec::new())).collect()
}

/// Returns a filter that answers calls matching `rules` with `errno`. A call in the convention of
/// another architecture ends the program, because its number means a different call.
fn filter(rules: Rules, errno: u32) -> io::Result<BpfProgram> {
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

/// Returns a filter that answers numbers above `NEWEST` with ENOSYS. That includes x32's, which are the
/// same calls under other numbers.
fn newer() -> BpfProgram {
    let statement = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let (load, above, answer) = (0x20, 0x25, 0x06);
    vec![
        // The call's number is the first field of `seccomp_data`.
        statement(load, 0, 0, 0),
        statement(above, 0, 1, NEWEST),
        statement(
            answer,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs(),
        ),
        statement(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compile_for_this_processor() {
        assert!(
            filter(always(&[PRETENDED, PRETENDED_OF_OLD]), 0)
                .unwrap()
                .len()
                > PRETENDED.len()
        );
        assert!(refusals().unwrap()[0].len() > REFUSED.len());
    }

    #[test]
    fn every_namespace_is_a_bit_of_its_own() {
        let all = NAMESPACE_BITS.into_iter().fold(0, |all, bit| all | bit);
        assert_eq!(all, 0x7e02_0000, "the mask of Docker's profile");
    }
}
