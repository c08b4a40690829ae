//! Runs a program and kills it at a chosen system call: the n-th of those that change files, counted over
//! all its threads and children. The call at which it is killed is not carried out.
//!
//! Only the program itself is killed, as the OOM killer does. Its children go on until they notice.
//!
//! Linux's ptrace, without a helper program. Calls on sockets, pipes and event descriptors are not counted.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_void, pid_t};

/// Children of a killed program have to end within this time.
const ORPHANED: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// At this call.
    Killed(&'static str),
    /// By itself: its exit code, and the calls that it made.
    Ended(i32, Vec<&'static str>),
}

/// Runs `command`, and kills it at the call `at`, from 1. With none it runs to its end.
pub fn run(command: &mut Command, at: Option<usize>) -> End {
    // Only the thread that started a traced process may speak to it, and it waits for all of its children.
    std::thread::scope(|scope| scope.spawn(|| traced(command, at)).join().unwrap())
}

/// Numbers from 1 to `last`, both among them, evenly spread: as many as STACKFORGE_TEST_KILLS says, else `few`.
pub fn points(last: usize, few: usize) -> Vec<usize> {
    let wanted = std::env::var("STACKFORGE_TEST_KILLS").ok();
    let wanted: usize = wanted.and_then(|n| n.parse().ok()).unwrap_or(few);
    let wanted = wanted.clamp(1, last);
    let gaps = (wanted - 1).max(1);
    (0..wanted).map(|n| 1 + n * (last - 1) / gaps).collect()
}

#[expect(
    clippy::zombie_processes,
    reason = "`wait` reaps it, with its threads and children"
)]
fn traced(command: &mut Command, at: Option<usize>) -> End {
    // SAFETY: ptrace is a system call without a lock or an allocation, so it may run after fork.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let child = command.spawn().unwrap();
    let main = pid_t::try_from(child.id()).unwrap();
    let (stopped, _) = wait(None).unwrap();
    assert_eq!(stopped, main, "it stops at its exec");
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_EXITKILL;
    ask(libc::PTRACE_SETOPTIONS, main, 0, options as usize);
    ask(libc::PTRACE_SYSCALL, main, 0, 0);
    let mut calls = Vec::new();
    let mut code = -1;
    let mut killed = None;
    while let Some((thread, status)) = wait(killed.map(|(_, since)| since)) {
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            if thread == main && libc::WIFEXITED(status) {
                code = libc::WEXITSTATUS(status);
            }
            continue;
        }
        let signal = libc::WSTOPSIG(status);
        let event = status >> 16;
        if killed.is_none()
            && signal == libc::SIGTRAP | 0x80
            && let Some(call) = entered(thread)
        {
            calls.push(call);
            if Some(calls.len()) == at {
                // SAFETY: the process is a child of this thread that was not waited for.
                unsafe { libc::kill(main, libc::SIGKILL) };
                killed = Some((call, Instant::now()));
            }
        }
        // A new thread's first stop, and those of the tracer's own making, are no signals.
        let own = [libc::SIGTRAP, libc::SIGTRAP | 0x80, libc::SIGSTOP];
        let pass = if event != 0 || own.contains(&signal) {
            0
        } else {
            signal
        };
        let on = match killed {
            Some(_) => libc::PTRACE_CONT,
            None => libc::PTRACE_SYSCALL,
        };
        ask(on, thread, 0, pass as usize);
    }
    match killed {
        Some((call, _)) => End::Killed(call),
        None => End::Ended(code, calls),
    }
}

/// The next child that stopped or ended. None when there is none left. If the program was killed at
/// `killed`, the rest may not take long.
fn wait(killed: Option<Instant>) -> Option<(pid_t, c_int)> {
    let mut status = 0;
    let at_once = killed.map_or(0, |_| libc::WNOHANG);
    loop {
        let flags = libc::__WALL | libc::__WNOTHREAD | at_once;
        // SAFETY: `status` lives as long as the call.
        let found = unsafe { libc::waitpid(-1, &raw mut status, flags) };
        match found {
            0 => {
                let since = killed.map(|since| since.elapsed());
                assert!(since < Some(ORPHANED), "a child outlives the program");
                std::thread::sleep(Duration::from_millis(1));
            }
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return None,
            thread => return Some((thread, status)),
        }
    }
}

/// A request about a thread that stopped. It may be gone by now: then the next wait says so.
fn ask(request: libc::c_uint, thread: pid_t, address: usize, data: usize) -> c_long {
    // SAFETY: requests without a buffer, or with one that the caller holds.
    unsafe { libc::ptrace(request, thread, address as *mut c_void, data as *mut c_void) }
}

/// The call that a thread is about to make, if it changes files.
fn entered(thread: pid_t) -> Option<&'static str> {
    // SAFETY: a struct of numbers.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let size = size_of_val(&info);
    let got = ask(
        libc::PTRACE_GET_SYSCALL_INFO,
        thread,
        size,
        (&raw mut info) as usize,
    );
    if got <= 0 || info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: the kernel says that it is the entry to a call.
    let entry = unsafe { info.u.entry };
    let number = c_long::try_from(entry.nr).ok()?;
    let (_, name, kind) = CALLS.iter().find(|(own, _, _)| *own == number)?;
    let changes = match kind {
        Kind::Always => true,
        Kind::Opens(flags) => entry.args[*flags] as c_int & (libc::O_CREAT | libc::O_TRUNC) != 0,
        Kind::Clones => entry.args[1] == u64::from(libc::FICLONE as u32),
        Kind::Writes => {
            let file = std::fs::read_link(format!("/proc/{thread}/fd/{}", entry.args[0]));
            file.is_ok_and(|file| file.starts_with("/") && !file.starts_with("/dev"))
        }
    };
    changes.then_some(*name)
}

enum Kind {
    Always,
    /// If the flags in that argument say so.
    Opens(usize),
    /// If the second argument asks for that.
    Clones,
    /// If the first argument is a file.
    Writes,
}
use Kind::{Always, Clones, Opens, Writes};

const CALLS: &[(c_long, &str, Kind)] = &[
    (libc::SYS_openat, "openat", Opens(2)),
    (libc::SYS_renameat, "renameat", Always),
    (libc::SYS_renameat2, "renameat2", Always),
    (libc::SYS_unlinkat, "unlinkat", Always),
    (libc::SYS_mkdirat, "mkdirat", Always),
    (libc::SYS_mknodat, "mknodat", Always),
    (libc::SYS_linkat, "linkat", Always),
    (libc::SYS_symlinkat, "symlinkat", Always),
    (libc::SYS_fchmodat, "fchmodat", Always),
    (libc::SYS_fchownat, "fchownat", Always),
    (libc::SYS_utimensat, "utimensat", Always),
    (libc::SYS_truncate, "truncate", Always),
    (libc::SYS_write, "write", Writes),
    (libc::SYS_pwrite64, "pwrite64", Writes),
    (libc::SYS_writev, "writev", Writes),
    (libc::SYS_ftruncate, "ftruncate", Writes),
    (libc::SYS_fallocate, "fallocate", Writes),
    (libc::SYS_copy_file_range, "copy_file_range", Always),
    (libc::SYS_ioctl, "ioctl", Clones),
    (libc::SYS_fsync, "fsync", Writes),
    (libc::SYS_fdatasync, "fdatasync", Writes),
    (libc::SYS_syncfs, "syncfs", Writes),
    (libc::SYS_fchmod, "fchmod", Writes),
    (libc::SYS_fchown, "fchown", Writes),
    (libc::SYS_fsetxattr, "fsetxattr", Writes),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open", Opens(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename", Always),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink", Always),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, "rmdir", Always),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, "mkdir", Always),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, "link", Always),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, "symlink", Always),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, "chmod", Always),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chown, "chown", Always),
];
