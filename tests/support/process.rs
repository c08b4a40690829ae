//! A test that runs in a process of its own: this program, started again for that one test.

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
