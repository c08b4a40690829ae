//! The array job of `matrix --emit slurm` in a real Slurm: controller and node of one machine, as this user.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};
use support::Sandbox;
use support::pipelines::{emitted, single, small, with};

/// A cluster; ends when dropped.
struct Cluster {
    dir: Sandbox,
    daemons: Vec<Child>,
}

/// A program of Slurm, which Debian puts where only root looks.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    let found = folders
        .into_iter()
        .map(|f| f.join(name))
        .find(|p| p.is_file());
    found.unwrap_or_else(|| panic!("`{name}` is missing: run `sh scripts/setup.sh tests`"))
}

fn line_of(path: &str) -> String {
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

impl Cluster {
    fn start() -> Self {
        let dir = Sandbox::new();
        let (ports, user) = (
            free_ports(),
            Command::new("id").arg("-un").output().unwrap(),
        );
        let host = line_of("/proc/sys/kernel/hostname");
        let host = host.split('.').next().unwrap();
        let root = dir.path("");
        let root = root.display().to_string();
        let root = root.trim_end_matches('/');
        dir.write(
            "slurm.conf",
            &format!(
                "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\n\
                 SlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/none\nCredType=cred/none\n\
                 SlurmctldPort={}\nSlurmdPort={}\n\
                 SlurmctldPidFile={root}/slurmctld.pid\nSlurmdPidFile={root}/slurmd.pid\n\
                 StateSaveLocation={root}/state\nSlurmdSpoolDir={root}/spool\n\
                 ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
                 SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\n\
                 SlurmdParameters=config_overrides\n\
                 NodeName={host} NodeAddr=127.0.0.1 CPUs=64 RealMemory=1000000\n\
                 PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP\n",
                ports[0],
                ports[1],
                user = String::from_utf8_lossy(&user.stdout).trim(),
            ),
        );
        for folder in ["state", "spool"] {
            std::fs::create_dir(dir.path(folder)).unwrap();
        }
        let daemons = ["slurmctld", "slurmd"].map(|daemon| {
            let log = std::fs::File::create(dir.path(&format!("{daemon}.log"))).unwrap();
            Command::new(program(daemon))
                .args(["-D", "-f"])
                .arg(dir.path("slurm.conf"))
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn()
                .unwrap()
        });
        let cluster = Self {
            dir,
            daemons: daemons.into(),
        };
        cluster.wait_for_node();
        cluster
    }

    fn wait_for_node(&self) {
        let asked = Instant::now();
        loop {
            let out = self
                .command("sinfo")
                .args(["-h", "-o", "%t"])
                .output()
                .unwrap();
            if String::from_utf8_lossy(&out.stdout).trim() == "idle" {
                return;
            }
            let logs = ["slurmctld.log", "slurmd.log"]
                .map(|l| std::fs::read_to_string(self.dir.path(l)).unwrap_or_default());
            assert!(
                asked.elapsed() < Duration::from_secs(60),
                "Slurm does not start: {logs:?}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command.env("SLURM_CONF", self.dir.path("slurm.conf"));
        command
    }

    fn sbatch(&self, arguments: &[&str], job: &Path) -> Output {
        let folder = job.parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        self.command("sbatch")
            .args(arguments)
            .arg(job)
            .current_dir(folder)
            .env("PATH", format!("{}:{path}", folder.join("bin").display()))
            .output()
            .unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Two ports that nobody listens on.
fn free_ports() -> [u16; 2] {
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners = [listen(), listen()];
    listeners.map(|l| l.local_addr().unwrap().port())
}

/// Programs that write down what they are told, each call a line of words in brackets.
fn recorders(sandbox: &Sandbox) {
    for name in ["stackforge", "docker"] {
        let record = format!(
            "printf '[%s]' {name} \"$@\" > call.$$\nprintf '\\n' >> call.$$\ncat call.$$ >> calls\nrm call.$$\n\
             [ \"$1\" != save ] || : > \"$3\"\n\
             [ {name} != stackforge ] || [ -n \"$STACKFORGE_STORE\" ]"
        );
        sandbox.program("bin", name, &record);
    }
}

fn calls(sandbox: &Sandbox) -> Vec<String> {
    let text = std::fs::read_to_string(sandbox.path("calls")).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn slurm_runs_every_variant() {
    let cluster = Cluster::start();

    let sandbox = with("small", &small());
    recorders(&sandbox);
    sandbox.write("job.sh", &emitted("small", &small(), "slurm"));
    let job = sandbox.path("job.sh");
    let out = cluster.sbatch(&["--test-only"], &job);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success() && stderr.contains("using 8 processors"),
        "{stderr}"
    );
    let out = cluster.sbatch(&["--wait"], &job);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let mut expected = Vec::new();
    for isa in ["avx512", "armv9"] {
        for cuda in ["8", "9"] {
            let v = format!("vllm-python312-cuda12_{cuda}-sm90-{isa}");
            let image = format!("ghcr.io/acme/small:{v}");
            expected.push(format!("[docker][push][{image}]"));
            expected.push(format!(
                "[stackforge][build][small.yaml][--locked][--variant][{v}][--tag][{image}][--jobs][8]"
            ));
        }
    }
    expected.sort();
    assert_eq!(calls(&sandbox), expected);

    // Without an engine.
    std::fs::remove_file(sandbox.path("calls")).unwrap();
    let native = "--export=ALL,ENGINE=native";
    let out = cluster.sbatch(&["--wait", "--array=0", native], &job);
    assert!(out.status.success(), "{out:?}");
    let v = "vllm-python312-cuda12_9-sm90-avx512";
    let image = format!("ghcr.io/acme/small:{v}");
    let built = format!(
        "[stackforge][build][small.yaml][--locked][--variant][{v}][--tag][{image}][--jobs][8]\
         [--engine][native][--push][{image}]"
    );
    assert_eq!(calls(&sandbox), [built]);

    // One of the array, of a stack without a matrix, in a directory with a hard name.
    let sandbox = Sandbox::new();
    let folder = "it's $(id) \"q\"";
    sandbox.write(&format!("{folder}/a b.yaml"), &single());
    let stack = format!("{folder}/a b.yaml");
    let run = sandbox.run(&["matrix", &stack, "--emit", "slurm", "-o", "job.sh"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    recorders(&sandbox);
    let out = cluster.sbatch(&["--wait", "--array=0"], &sandbox.path("job.sh"));
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let store = sandbox.path("stackforge");
    let part = store.join("images/tiny.tar.part");
    let built = format!("[stackforge][build][{stack}][--locked][--tag][tiny:latest][--jobs][4]");
    let saved = format!("[docker][save][--output][{}][tiny:latest]", part.display());
    assert_eq!(calls(&sandbox), [saved, built]);
    assert!(store.join("images/tiny.tar").is_file() && !part.exists());

    // A number that no variant has, and a build that fails, fail their task.
    let out = cluster.sbatch(&["--wait", "--array=1"], &sandbox.path("job.sh"));
    assert!(!out.status.success());
    sandbox.program("bin", "stackforge", "exit 1");
    std::fs::remove_file(store.join("images/tiny.tar")).unwrap();
    let out = cluster.sbatch(&["--wait"], &sandbox.path("job.sh"));
    assert!(!out.status.success());
    assert!(
        !store.join("images/tiny.tar").exists(),
        "what failed is not saved"
    );
}
