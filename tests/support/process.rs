//! Processes that are started in another way: this program again, for one test, or a program on a kernel that lacks
//! system calls.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const AGAIN: &str = "STACKFORGE_TEST_AGAIN";

/// This program, started again for the test `name`. There [`is_again`] holds, and the test does what its caller
/// wants done in another process.
pub fn again(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", name])
        .env(AGAIN, "1");
    command
}

/// Whether this process was started by [`again`].
pub fn is_again() -> bool {
    std::env::var_os(AGAIN).is_some()
}

/// Makes these system calls fail with ENOSYS for the program and its children. An ordinary user's children get no
/// subordinate IDs: the filter needs PR_SET_NO_NEW_PRIVS, which `newuidmap` does not work with.
pub fn without(command: &mut Command, calls: &[libc::c_long]) {
    let op = |code: u32, yes: u8, value: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: yes,
        jf: 0,
        k: value,
    };
    // The number of the call is the first field of what a filter is given.
    let mut program = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (number, call) in calls.iter().enumerate() {
        let to_refusal = u8::try_from(calls.len() - number).unwrap();
        let call = u32::try_from(*call).unwrap();
        program.push(op(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            to_refusal,
            call,
        ));
    }
    let answer = |value| op(libc::BPF_RET | libc::BPF_K, 0, value);
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(answer(
        libc::SECCOMP_RET_ERRNO | u32::try_from(libc::ENOSYS).unwrap(),
    ));
    let install = move || {
        let filter = libc::sock_fprog {
            len: u16::try_from(program.len()).unwrap(),
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: both calls read `filter`, which outlives them, and change nothing but this process.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1_u64, 0_u64, 0_u64, 0_u64) != 0
                || libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const filter,
                ) != 0
        };
        if refused {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
}
