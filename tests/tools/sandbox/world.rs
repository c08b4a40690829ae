//! A directory with a root of busybox, and a user who runs things in it.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use stackforge_sandbox::{
    Capabilities, Change, ChangeKind, Outcome, Root, Sandbox, SandboxError, changes, probe, remove,
};
use stackforge_types::{Cancel, LogStream};

use super::machine;

/// Set for a check that runs as an ordinary user; any number that nobody has.
const USER: u32 = 54_321;
/// Which identity a sandbox should have there.
pub const IDENTITY: &str = "STACKFORGE_TEST_IDENTITY";
const BINARY: &str = env!("CARGO_BIN_EXE_stackforge");
/// Where an ordinary user finds the program.
const LAUNCHER: &str = "STACKFORGE_TEST_LAUNCHER";
const TOOLS: &str = "sh cat echo env id hostname ls ps wc tr touch mount mknod grep tail head cut ping \
    ifconfig chmod chown chgrp rm mkdir ln mkfifo sleep setsid kill true stat pwd printf";

/// Runs a check here and, if this is root, as an ordinary user without subordinate ids.
pub fn both(name: &str, check: impl Fn(&World)) {
    check(&World::new());
    if machine::is_root() {
        World::new().as_user(name, "single", Command::new("env"));
    }
}

pub struct World {
    dir: tempfile::TempDir,
}

pub struct Ran {
    pub outcome: Outcome,
    pub stdout: Vec<Vec<u8>>,
    pub stderr: Vec<Vec<u8>>,
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout.join(&b'\n')).into_owned()
    }

    pub fn all(&self) -> String {
        format!(
            "{}\n{}",
            self.text(),
            String::from_utf8_lossy(&self.stderr.join(&b'\n'))
        )
    }
}

impl World {
    pub fn new() -> Self {
        let world = World {
            dir: tempfile::tempdir().unwrap(),
        };
        world.copy_root("busybox");
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The smallest root that has a shell.
    pub fn copy_root(&self, name: &str) {
        let root = self.path(name);
        for directory in ["bin", "dev", "etc", "proc", "srv", "sys"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        let busybox = root.join("bin/busybox");
        if !busybox.exists() {
            std::fs::copy("/bin/busybox", busybox).expect("Debian's busybox-static");
        }
        for tool in TOOLS.split_whitespace() {
            let _ = std::os::unix::fs::symlink("busybox", root.join("bin").join(tool));
        }
    }

    pub fn layer(&self, name: &str, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = self.path(name).join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    pub fn executable(&self, name: &str) {
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn sandbox(&self, script: &str) -> Sandbox {
        let root = Root::layers(vec![self.path("busybox")], self.path("upper"));
        Sandbox {
            launcher: Some(launcher()),
            ..Sandbox::new(root, ["sh", "-c", script])
        }
    }

    pub fn shell(&self, script: &str) -> Ran {
        self.run(&self.sandbox(script))
    }

    pub fn run(&self, sandbox: &Sandbox) -> Ran {
        self.try_run(sandbox)
            .unwrap_or_else(|e| panic!("{e}: {e:?}"))
    }

    pub fn fails(&self, sandbox: &Sandbox) -> SandboxError {
        self.try_run(sandbox).map(|r| r.outcome).unwrap_err()
    }

    pub fn try_run(&self, sandbox: &Sandbox) -> Result<Ran, SandboxError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut line = |stream: LogStream, text: &[u8]| match stream {
            LogStream::Stdout => stdout.push(text.to_vec()),
            LogStream::Stderr => stderr.push(text.to_vec()),
        };
        let outcome = runtime().block_on(sandbox.run(&Cancel::new(), &mut line))?;
        Ok(Ran {
            outcome,
            stdout,
            stderr,
        })
    }

    /// Cancels after the program's first line; how long it took from there.
    pub fn cancel_when_ready(
        &self,
        sandbox: &Sandbox,
    ) -> (Result<Outcome, SandboxError>, Duration) {
        let cancel = Cancel::new();
        let mut at = None;
        let mut line = |_: LogStream, _: &[u8]| {
            at = Some(Instant::now());
            cancel.cancel();
        };
        let result = runtime().block_on(sandbox.run(&cancel, &mut line));
        (result, at.expect("it said a line").elapsed())
    }

    /// Drops the future after the program's first line.
    pub fn drop_when_ready(&self, sandbox: &Sandbox) {
        runtime().block_on(async {
            let ready = Cancel::new();
            let stop = ready.clone();
            let cancel = Cancel::new();
            let mut line = move |_: LogStream, _: &[u8]| stop.cancel();
            tokio::select! {
                r = sandbox.run(&cancel, &mut line) => panic!("{r:?}"),
                () = ready.cancelled() => {}
            }
        });
    }

    pub fn probe(&self) -> Capabilities {
        runtime().block_on(probe(Some(&launcher()))).unwrap()
    }

    pub fn remove(&self, name: &str) {
        let path = self.path(name);
        if path.exists() {
            runtime()
                .block_on(remove(Some(&launcher()), &path))
                .unwrap();
        }
    }

    /// Paths of the upper directory, directories with a slash.
    pub fn changed(&self) -> Vec<String> {
        let name = |c: &Change| match c.kind {
            ChangeKind::Directory { .. } => format!("{}/", c.path.display()),
            _ => c.path.display().to_string(),
        };
        changes(&self.path("upper"))
            .unwrap()
            .iter()
            .map(name)
            .collect()
    }

    /// Runs a test of `sandbox` as an ordinary user.
    pub fn as_user(&self, test: &str, identity: &str, mut around: Command) {
        let home = self.path("home");
        std::fs::create_dir(&home).ok();
        std::os::unix::fs::chown(&home, Some(USER), Some(USER)).unwrap();
        for path in [self.dir.path(), &home] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        // The build may lie where that user cannot go.
        let launcher = self.path("stackforge");
        std::fs::copy(BINARY, &launcher).unwrap();
        let user = USER.to_string();
        around
            .args([
                "setpriv",
                "--reuid",
                &user,
                "--regid",
                &user,
                "--clear-groups",
            ])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &format!("sandbox::{test}"), "--nocapture"])
            .env("TMPDIR", &home)
            .env(IDENTITY, identity)
            .env(LAUNCHER, launcher)
            .current_dir("/");
        let out = around.output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            out.status.success() && text.contains("1 passed"),
            "as an ordinary user ({identity}): {text}{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }

    /// The same with subordinate ids: in a mount namespace whose /etc names them.
    pub fn as_user_with_ids(&self, test: &str, identity: &str) {
        let script = format!(
            "d=$(mktemp -d -p {0}) && mount -t tmpfs t $d && mkdir $d/u $d/w && \
             mount -t overlay -o lowerdir=/etc,upperdir=$d/u,workdir=$d/w o /etc && \
             echo {USER}:100000:65536 | tee /etc/subuid > /etc/subgid && exec \"$@\"",
            self.dir.path().display()
        );
        let mut around = Command::new("unshare");
        around
            .args(["-m", "sh", "-c", &script, "sh"])
            .arg0("unshare");
        self.as_user(test, identity, around);
    }
}

fn launcher() -> PathBuf {
    std::env::var_os(LAUNCHER).map_or_else(|| BINARY.into(), PathBuf::from)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
