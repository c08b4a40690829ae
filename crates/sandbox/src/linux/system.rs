//! System calls for which neither std nor rustix has a safe interface. All code here runs in the
//! re-executed process, which has a single thread; that makes `fork` sound.
#![allow(unsafe_code, reason = "each block says why it is sound")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};

use rustix::process::{Pid, Signal};

fn checked(result: libc::c_long) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

pub(crate) enum Fork {
    Child,
    Parent(Pid),
}

pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the process has one thread, so the child's copy of memory, locks of the allocator
    // included, is as consistent as the parent's.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid)
            .map(Fork::Parent)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD)),
    }
}

/// Ends the process at once, without running exit handlers inherited from the process that forked it.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: takes no pointer and does not return.
    unsafe { libc::_exit(code) }
}

/// Calls unshare(2) with `CLONE_NEW…` flags.
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointer; the process has one thread, which CLONE_NEWUSER asks for.
    checked(unsafe { libc::unshare(flags) }.into())
}

/// Closes every descriptor from `first` on, or marks them close-on-exec.
pub(crate) fn close_from(first: RawFd, at_exec: bool) -> io::Result<()> {
    let flags = if at_exec {
        libc::CLOSE_RANGE_CLOEXEC
    } else {
        0
    };
    // SAFETY: takes no pointer. Callers own no descriptor in the range when they close for good.
    match checked(unsafe { libc::syscall(libc::SYS_close_range, first, RawFd::MAX, flags) }) {
        // Before Linux 5.9.
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => close_each(first, at_exec),
        done => done,
    }
}

/// Does what [`close_from`] does, for one descriptor after the other.
fn close_each(first: RawFd, at_exec: bool) -> io::Result<()> {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd >= first)
        .collect();
    for fd in open {
        // SAFETY: take no pointer. Callers own no descriptor in the range when they close for good. That of the
        // directory is closed by now, so both calls refuse it.
        unsafe {
            if at_exec {
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            } else {
                libc::close(fd);
            }
        }
    }
    Ok(())
}

/// Makes `fd` (0, 1 or 2) a duplicate of `from`.
pub(crate) fn become_fd(from: BorrowedFd<'_>, fd: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointer; descriptors 0 to 2 belong to nobody in this process.
    checked(unsafe { libc::dup2(from.as_raw_fd(), fd) }.into())
}

/// Makes a mount and all mounts below it read-only.
pub(crate) fn read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path is a C string, `attributes` lives through the call and its size is given.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
}

/// Resets every signal to the state of a fresh process: Rust's runtime ignores SIGPIPE, and `exec`
/// keeps that.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL is not a handler of ours; an invalid signal number is refused.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: `none` is initialised by sigemptyset before it is read.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Blocks every signal, for this process and those that it forks: they stay pending.
pub(crate) fn block_signals() -> io::Result<()> {
    let all = all_signals();
    // SAFETY: `all` is an initialised set.
    checked(
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()) }.into(),
    )
}

/// Waits for one of the signals that [`block_signals`] blocked; `None` for one without a name.
pub(crate) fn next_signal() -> io::Result<Option<Signal>> {
    let all = all_signals();
    // SAFETY: `all` is an initialised set, and no information about the signal is asked for.
    match unsafe { libc::sigwaitinfo(&raw const all, std::ptr::null_mut()) } {
        -1 => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(None),
            e => Err(e),
        },
        number => Ok(Signal::from_named_raw(number)),
    }
}

fn all_signals() -> libc::sigset_t {
    // SAFETY: sigfillset initialises the set, which is plain data.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        all
    }
}

/// Asks the kernel to kill this process when its parent ends.
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: takes no pointer.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }.into())
}

/// Denies other processes access to this one's memory, descriptors and executable by ptrace or /proc.
pub(crate) fn hide_from_others() -> io::Result<()> {
    // SAFETY: takes no pointer.
    checked(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) }.into())
}

/// Reverses [`hide_from_others`], which a forked process inherits.
pub(crate) fn show_to_others() -> io::Result<()> {
    // SAFETY: takes no pointer.
    checked(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) }.into())
}

/// Starts the loopback interface of a new network namespace.
pub(crate) fn loopback_up(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: an ifreq of zeros is valid: it has no name and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is an ifreq, as SIOCSIFFLAGS wants, and lives through the call.
    checked(
        unsafe {
            libc::ioctl(
                socket.as_fd().as_raw_fd(),
                libc::SIOCSIFFLAGS,
                &raw const request,
            )
        }
        .into(),
    )
}

/// Replaces this process with the program; returns only the error.
pub(crate) fn exec(program: &CString, arguments: &[CString], environment: &[CString]) -> io::Error {
    let list = |all: &[CString]| -> Vec<*const libc::c_char> {
        let ended = all.iter().map(|s| s.as_ptr());
        ended.chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (list(arguments), list(environment));
    // SAFETY: both lists end with a null pointer, and their strings outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}
