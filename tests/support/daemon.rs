//! A Docker Engine of a test's own, on loopback, with its own data; gone with all it started when it is
//! dropped. It shares the bridge of the machine's engine, which leads out.

use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
    /// As `DOCKER_HOST` names it.
    pub address: String,
    _subnet: UnixListener,
}

/// A part of the bridge's network that no other engine of a test has, so that no address is given twice.
fn subnet() -> (u8, UnixListener) {
    let free = (200..=255u8).find_map(|number| {
        // The name is free again when its process ends, however that is.
        let name = SocketAddr::from_abstract_name(format!("stackforge-test-subnet-{number}"));
        let held = UnixListener::bind_addr(&name.unwrap()).ok()?;
        Some((number, held))
    });
    free.expect("one of 56 subnets is free")
}

/// The largest packet, in bytes, that the interface of the default route takes. An engine's own idea of it, 1500,
/// may be more: then answers that fill a packet get lost, and downloads in containers hang.
pub fn way_out_mtu() -> u32 {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let mut routes = routes.lines().map(|line| line.split_whitespace());
    let interface = routes.find_map(|mut fields| {
        let interface = fields.next()?;
        (fields.next()? == "00000000").then_some(interface)
    });
    let mtu = interface
        .and_then(|name| std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok());
    mtu.and_then(|mtu| mtu.trim().parse().ok()).unwrap_or(1500)
}

impl Daemon {
    pub fn start() -> Self {
        for _ in 0..3 {
            if let Some(daemon) = Self::try_start() {
                return daemon;
            }
        }
        panic!("no second Docker Engine starts");
    }

    fn try_start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        drop(listener);
        let place = |name: &str| dir.path().join(name).display().to_string();
        let (subnet, held) = subnet();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        // What the machine's engine is told is not for this one.
        std::fs::write(dir.path().join("daemon.json"), "{}").unwrap();
        // Processes and mounts of its own, which end with its first process.
        let mut child = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["dockerd", "--host", &format!("tcp://{host}")])
            .args(["--data-root", &place("data"), "--exec-root", &place("run")])
            .args(["--config-file", &place("daemon.json")])
            .args(["--pidfile", &place("pid"), "--bridge", "docker0"])
            .args(["--fixed-cidr", &format!("172.17.{subnet}.0/24")])
            .args(["--mtu", &way_out_mtu().to_string()])
            .args(["--iptables=false", "--ip-masq=false", "--ip-forward=false"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let start = Instant::now();
        let address = format!("tcp://{host}");
        while start.elapsed() < Duration::from_secs(90) {
            if child.try_wait().unwrap().is_some() {
                break;
            }
            if TcpStream::connect(&host).is_ok() && answers(&address) {
                return Some(Self {
                    child,
                    dir,
                    address,
                    _subnet: held,
                });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = child.kill();
        let _ = child.wait();
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
        eprintln!("dockerd did not start: {log}");
        None
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Runs `docker` against it.
    pub fn docker(&self, args: &[&str]) -> String {
        let out = Command::new("docker")
            .args(["--host", &self.address])
            .args(args)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "docker {args:?}: {errors}");
        String::from_utf8(out.stdout).unwrap()
    }
}

fn answers(address: &str) -> bool {
    let version = Command::new("docker")
        .args(["--host", address, "version"])
        .output();
    version.is_ok_and(|v| v.status.success())
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.dir.path().join("log");
        if std::thread::panicking() {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let end = log.len().saturating_sub(4000);
            eprintln!("{}: {}", self.address, log.get(end..).unwrap_or_default());
        }
    }
}
