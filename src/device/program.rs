//! Runs programs of this machine to ask for their versions.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_OUTPUT: u64 = 64 << 10;

/// Returns the executables with this name on PATH, in the shell's order.
pub fn on_path(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .filter(|p| executable(p))
        .collect()
}

pub fn executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Returns the program's output if it succeeds in time.
pub fn output(program: &Path, arguments: &[&str]) -> Option<String> {
    output_within(program, arguments, PATIENCE)
}

fn output_within(program: &Path, arguments: &[&str], patience: Duration) -> Option<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .ok()?;
    let out = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.take(LONGEST_OUTPUT).read_to_end(&mut bytes);
        bytes
    });
    let succeeded = ends_well(&mut child, Instant::now() + patience);
    // A child of the program may still hold the pipe.
    stop(&child);
    let _ = child.wait();
    let bytes = reader.join().ok()?;
    succeeded.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn ends_well(child: &mut Child, deadline: Instant) -> bool {
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => return false,
        }
    }
    false
}

/// Kills the program's process group, which contains only the program and its children.
fn stop(child: &Child) {
    let group = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(dir: &Path, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = dir.join("program");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn output_counts_only_from_a_program_that_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let good = script(dir.path(), "#!/bin/sh\necho \"$1\"\n");
        assert_eq!(output(&good, &["1.2"]).as_deref(), Some("1.2\n"));
        let bad = script(dir.path(), "#!/bin/sh\necho x\nexit 3\n");
        assert_eq!(output(&bad, &[]), None);
        assert_eq!(output(Path::new("/nonexistent"), &[]), None);
    }

    #[test]
    fn a_program_that_hangs_is_stopped_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let hangs = script(dir.path(), "#!/bin/sh\nsleep 1000 &\nsleep 1000\n");
        assert_eq!(output_within(&hangs, &[], Duration::from_millis(200)), None);
    }
}
