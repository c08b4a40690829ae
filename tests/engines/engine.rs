//! One engine in namespaces of its own, gone with all that it started and stored when it is dropped.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::daemon::way_out_mtu;

/// The user of `enter.sh` that rootless engines belong to.
const USER: &str = "41000";

/// What is started, and how.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// Images in the graph driver's store.
    Docker,
    /// Images in containerd.
    DockerContainerd,
    RootlessDocker,
    Podman,
    RootlessPodman,
}

impl Kind {
    pub fn is_podman(self) -> bool {
        matches!(self, Kind::Podman | Kind::RootlessPodman)
    }

    pub fn is_rootless(self) -> bool {
        matches!(self, Kind::RootlessDocker | Kind::RootlessPodman)
    }

    /// Its name with `version`.
    pub fn name(self, version: &str) -> String {
        match self {
            Kind::Docker => format!("Docker {version}"),
            Kind::DockerContainerd => format!("Docker {version}, containerd store"),
            Kind::RootlessDocker => format!("Docker {version}, rootless"),
            Kind::Podman => format!("Podman {version}"),
            Kind::RootlessPodman => format!("Podman {version}, rootless"),
        }
    }
}

pub struct Engine {
    pub kind: Kind,
    /// As `DOCKER_HOST` names it.
    pub address: String,
    pub version: String,
    child: Child,
    dir: tempfile::TempDir,
    group: String,
}

/// Why an engine did not start.
pub enum NoEngine {
    /// This machine lacks something.
    Absent(String),
    Broken(String),
}

/// What this machine lacks for any engine.
pub fn lacks() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("engines in namespaces of their own need root".to_owned());
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--cgroup", "--fork", "true"]);
    match unshare.output() {
        Ok(out) if out.status.success() => None,
        Ok(out) => Some(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
        Err(e) => Some(format!("unshare: {e}")),
    }
}

impl Engine {
    /// Starts the engine of a root file system. `number` tells engines that run at the same time apart.
    pub fn start(kind: Kind, root: &Path, number: u32) -> Result<Self, NoEngine> {
        let bridged = matches!(kind, Kind::Docker | Kind::DockerContainerd);
        if bridged && !Path::new("/sys/class/net/docker0").exists() {
            let why = "no bridge docker0, which the machine's Docker Engine makes";
            return Err(NoEngine::Absent(why.to_owned()));
        }
        if kind == Kind::RootlessDocker && !Path::new("/dev/net/tun").exists() {
            return Err(NoEngine::Absent("no /dev/net/tun".to_owned()));
        }
        let broken =
            |what: &str, e: &dyn std::fmt::Display| NoEngine::Broken(format!("{what}: {e}"));
        let dir = tempfile::tempdir().map_err(|e| broken("a directory", &e))?;
        for part in ["run", "memory", "files"] {
            let part = dir.path().join(part);
            std::fs::create_dir(part).map_err(|e| broken("a directory", &e))?;
        }
        configure(&dir.path().join("files")).map_err(|e| broken("its settings", &e))?;
        let script = dir.path().join("enter.sh");
        let text = include_str!("enter.sh");
        std::fs::write(&script, text).map_err(|e| broken("its script", &e))?;
        let log = std::fs::File::create(dir.path().join("log"));
        let log = log.map_err(|e| broken("its log", &e))?;
        let group = format!("engine-under-test-{}-{number}", std::process::id());
        let child = Command::new("setpriv")
            // It ends with the thread that starts it, and all of its namespace with it.
            .args(["--pdeathsig", "KILL", "unshare"])
            .args(["--mount", "--pid", "--fork", "--kill-child", "sh"])
            .args([&script, root, dir.path()])
            .arg(&group)
            .args(command(kind, number))
            .env_remove("DOCKER_HOST")
            .env_remove("INSIDE")
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|e| broken("its log", &e))?)
            .stderr(log)
            .spawn()
            .map_err(|e| broken("setpriv", &e))?;
        let socket = if kind.is_rootless() {
            format!("run/user/{USER}/docker.sock")
        } else {
            "run/engine.sock".to_owned()
        };
        let mut engine = Self {
            kind,
            address: format!("unix://{}", dir.path().join(socket).display()),
            version: String::new(),
            child,
            dir,
            group,
        };
        engine.version = engine.wait().map_err(NoEngine::Broken)?;
        Ok(engine)
    }

    /// How often Podman's service has died of buildah#7091: a panic after a step that failed or was stopped.
    pub fn deaths(&self) -> usize {
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.matches("panic: semaphore: released more than held")
            .count()
    }

    /// Waits until it says its version.
    fn wait(&mut self) -> Result<String, String> {
        match self.child.try_wait().map_err(|e| e.to_string())? {
            Some(ended) => Err(format!("{ended}: {}", self.log())),
            None => self.ready(),
        }
    }

    /// Waits until it answers; returns its version.
    pub fn ready(&self) -> Result<String, String> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(90) {
            let version = self.docker(&["version", "--format", "{{.Server.Version}}"]);
            if version.status.success() {
                let version = String::from_utf8_lossy(&version.stdout);
                // Debian's own part of it says nothing here.
                let own = version.trim().split(['+', '~']).next();
                return Ok(own.unwrap_or_default().to_owned());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Err(format!("it does not answer: {}", self.log()))
    }

    /// Runs the docker command against it.
    pub fn docker(&self, args: &[&str]) -> Output {
        let mut docker = Command::new("timeout");
        docker.args(["120", "docker"]).args(args);
        docker.env("DOCKER_HOST", &self.address);
        docker.env_remove("DOCKER_CONTEXT");
        docker.output().unwrap()
    }

    /// The end of what it said.
    pub fn log(&self) -> String {
        let log = std::fs::read(self.dir.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Ends it; what it leaves is an error.
    pub fn end(mut self) -> Result<(), String> {
        self.kill()
    }

    fn kill(&mut self) -> Result<(), String> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The first process of the namespace is killed after that, and the others with it.
        let start = Instant::now();
        loop {
            let left: Vec<PathBuf> = groups(&self.group).filter(|g| !removed(g)).collect();
            if left.is_empty() {
                return Ok(());
            }
            if start.elapsed() > Duration::from_secs(30) {
                return Err(format!("processes are left in {left:?}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(left) = self.kill() {
            eprintln!("{left}");
        }
    }
}

/// The control groups of an engine that are there, one in each hierarchy.
fn groups(name: &str) -> impl Iterator<Item = PathBuf> {
    let all = Path::new("/sys/fs/cgroup");
    let below = std::fs::read_dir(all).into_iter().flatten().flatten();
    let places = below.map(|entry| entry.path()).chain([all.to_owned()]);
    let name = name.to_owned();
    places
        .map(move |place| place.join(&name))
        .filter(|g| g.is_dir())
}

/// Whether a control group could be removed, with all below it. It cannot while it has a process.
fn removed(group: &Path) -> bool {
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !removed(&entry.path()) {
            return false;
        }
    }
    std::fs::remove_dir(group).is_ok()
}

/// The command that serves, in the engine's root.
fn command(kind: Kind, number: u32) -> Vec<String> {
    let docker = "dockerd --host unix:///run/engine.sock --bridge docker0 --iptables=false \
                  --ip-masq=false --ip-forward=false";
    // The bridge is the machine's engine's, which leads out; no two engines give the same address.
    let subnet = 64 + (std::process::id() * 16 + number) % 128;
    let mtu = way_out_mtu();
    let docker = format!("{docker} --fixed-cidr 172.17.{subnet}.0/24 --mtu {mtu}");
    let user = format!(
        "setpriv --reuid {USER} --regid {USER} --clear-groups env -i HOME=/home/engine \
         XDG_RUNTIME_DIR=/run/user/{USER} PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    );
    let line = match kind {
        Kind::Docker => docker,
        Kind::DockerContainerd => docker + " --config-file /etc/docker/containerd.json",
        Kind::RootlessDocker => {
            format!("{user} sh /usr/share/docker.io/contrib/dockerd-rootless.sh")
        }
        Kind::Podman => "podman system service --time=0 unix:///run/engine.sock".to_owned(),
        Kind::RootlessPodman => {
            format!("{user} podman system service --time=0 unix:///run/user/{USER}/docker.sock")
        }
    };
    line.split_whitespace().map(str::to_owned).collect()
}

/// A runtime that gives no container a limit: who lacks CAP_SYS_RESOURCE cannot raise any.
const UNLIMITED: &str = r#"#!/bin/sh
bundle=. previous=
for word; do
    case $previous in --bundle | -b) bundle=$word ;; esac
    case $word in --bundle=*) bundle=${word#--bundle=} ;; esac
    previous=$word
done
if [ -f "$bundle/config.json" ]; then
    sed -i 's/"rlimits":\[[^]]*\]/"rlimits":[]/' "$bundle/config.json"
fi
exec /usr/sbin/runc "$@"
"#;

/// Writes the settings of all engines below `files`.
fn configure(files: &Path) -> std::io::Result<()> {
    let write = |name: &str, text: &str| {
        let path = files.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(files))?;
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
    };
    let store = r#"{ "features": { "containerd-snapshotter": true } }"#;
    write("etc/docker/containerd.json", store)?;
    let runtime = if may_raise_limits() {
        "/usr/sbin/runc"
    } else {
        "/usr/local/bin/runc-unlimited"
    };
    write("usr/local/bin/runc-unlimited", UNLIMITED)?;
    write(
        "etc/containers/containers.conf",
        &format!(
            "[containers]\nnetns = \"host\"\n[engine]\ncgroup_manager = \"cgroupfs\"\n\
             events_logger = \"file\"\nruntime = \"chosen\"\n[engine.runtimes]\n\
             chosen = [\"{runtime}\"]\n"
        ),
    )?;
    let policy = r#"{ "default": [{ "type": "insecureAcceptAnything" }] }"#;
    write("etc/containers/policy.json", policy)
}

/// Whether this process has CAP_SYS_RESOURCE.
fn may_raise_limits() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let set = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    set.is_some_and(|set| set >> CAP_SYS_RESOURCE & 1 == 1)
}
