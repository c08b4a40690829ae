//! An image of busybox in a layout, and who runs it.

use serde_json::json;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
pub use support::runnable::{config, image};
use support::{Run, Sandbox};

/// Any number that nobody has.
const USER: u32 = 54_321;
/// Who runs the image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The user of the tests.
    Here,
    /// An ordinary user without subordinate IDs.
    Ordinary,
}

pub struct World {
    pub sandbox: Sandbox,
    who: Who,
}

/// Runs a check here and, if this is root, as an ordinary user.
pub fn each(check: impl Fn(&World)) {
    check(&World::new(Who::Here));
    if is_root() {
        check(&World::new(Who::Ordinary));
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl World {
    pub fn new(who: Who) -> Self {
        let world = Self {
            sandbox: Sandbox::new(),
            who,
        };
        image(&world.path("image"), config());
        image(&world.path("plain"), json!({ "User": "app" }));
        image(&world.path("own"), json!({}));
        std::fs::create_dir(world.path("store")).unwrap();
        world.open("store");
        world.open("");
        world
    }

    pub fn is_ordinary(&self) -> bool {
        self.who == Who::Ordinary || !is_root()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        self.sandbox.write(name, text);
    }

    /// Lets everybody write a directory.
    pub fn open(&self, name: &str) {
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(self.path(name), mode).unwrap();
        if self.who == Who::Ordinary {
            std::os::unix::fs::chown(self.path(name), Some(USER), Some(USER)).unwrap();
        }
    }

    /// The real binary, as who runs it.
    pub fn program(&self) -> Command {
        let mut command = match self.who {
            Who::Here => self.sandbox.command(),
            Who::Ordinary => {
                let user = USER.to_string();
                let mut command = self.sandbox.command_of("setpriv");
                command
                    .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
                    .arg(env!("CARGO_BIN_EXE_stackforge"));
                command
            }
        };
        command
            .env("HOME", self.path("home"))
            .env("DOCKER_HOST", "unix:///nowhere/docker.sock")
            .env("PASSED", "along")
            .stdin(Stdio::null());
        for name in [
            "HF_HOME",
            "HF_HUB_CACHE",
            "TRANSFORMERS_CACHE",
            "TORCH_HOME",
            "XDG_CACHE_HOME",
        ] {
            command.env_remove(name);
        }
        command
    }

    pub fn command(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = self.program();
        command
            .args(["run", "oci:plain:v1"])
            .args(options)
            .arg("--")
            .args(program);
        command
    }

    pub fn with(&self, options: &[&str], program: &[&str]) -> Run {
        finish(self.command(options, program))
    }

    pub fn run(&self, program: &[&str]) -> Run {
        self.with(&[], program)
    }

    pub fn shell(&self, script: &str) -> Run {
        self.run(&["sh", "-c", script])
    }

    /// Runs the image that has an entry point.
    pub fn image(&self, arguments: &[&str]) -> Run {
        let mut command = self.program();
        command.args(["run", "oci:image:v1"]);
        if !arguments.is_empty() {
            command.arg("--").args(arguments);
        }
        finish(command)
    }

    /// Sends a signal after the script's first line, which is not part of the output.
    pub fn signalled(&self, script: &str, signal: &str) -> Run {
        let mut command = self.command(&[], &["sh", "-c", script]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let kill = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        let mut stdout = String::new();
        out.read_to_string(&mut stdout).unwrap();
        let rest = child.wait_with_output().unwrap();
        Run {
            code: rest.status.code().unwrap_or(-1),
            stdout,
            stderr: String::from_utf8_lossy(&rest.stderr).into_owned(),
        }
    }
}

pub fn finish(mut command: Command) -> Run {
    let out = command.output().unwrap();
    Run {
        code: out.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}

/// Whether a process has `word` as one of its arguments.
pub fn runs(word: &str) -> bool {
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|e| std::fs::read(e.ok()?.path().join("cmdline")).ok())
        .any(|line| line.split(|b| *b == 0).any(|a| a == word.as_bytes()))
}

pub fn within_a_while(mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
