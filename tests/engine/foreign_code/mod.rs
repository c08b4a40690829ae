//! What a source's own code finds while it is compiled: no password, no cache but its own objects, no network, whichever
//! engine compiles it.
//!
//! Needs the network and Docker.

use std::net::UdpSocket;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use support::{CleanUp, Sandbox, project};

const RECIPE: &str = "\
schema: 1
library: evilbuild
distribution: evilbuild
about: test
imports: [evilbuild]
wheels: index
sources: [test]
build:
  source: SOURCE
  requires: [setuptools, wheel]
  packages: [git]
FETCH  jobs: { variable: MAX_JOBS, memory_gb: 0.1, source: test }
  metadata: { \"*\": { requires_python: \">=3.9\", requires_dist: [] } }
";
const FETCH: &str = "  fetch:
    - name: extra
      git: GIT/extra
      revision: COMMIT
      folder: part
      variable: EVILBUILD_EXTRA
      source: test
";
const NAME: &str = "stackforge-test-foreign";

/// An index behind a password, at an address that containers reach.
struct Index {
    child: Child,
    url: String,
}

impl Index {
    fn start(sandbox: &Sandbox, fetches: bool) -> Self {
        // The address that this machine has for others: nothing is sent.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect("192.0.2.1:9").unwrap();
        let address = socket.local_addr().unwrap().ip().to_string();
        let port = sandbox.path("port");
        let child = Command::new("python3")
            .arg(project("tests/engine/foreign_code/index.py"))
            .arg(sandbox.path(""))
            .arg(&address)
            .arg(&port)
            .arg(if fetches { "fetch" } else { "plain" })
            .spawn()
            .unwrap();
        let port = loop {
            match std::fs::read_to_string(&port) {
                Ok(text) => break text,
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        Self {
            child,
            url: format!("http://ci:hunter2@{address}:{port}/simple"),
        }
    }
}

/// A repository that the source's build wants, at an address that containers reach.
struct Repository {
    daemon: Child,
    url: String,
    commit: String,
}

impl Repository {
    fn start(sandbox: &Sandbox, address: &str) -> Self {
        let dir = sandbox.path("git/extra");
        std::fs::create_dir_all(dir.join("part")).unwrap();
        std::fs::write(dir.join("part/marker"), "here\n").unwrap();
        let commit = committed(&dir);
        // The source of the index as a repository.
        let source = sandbox.path("git/source");
        std::fs::create_dir_all(&source).unwrap();
        let unpacked = Command::new("tar")
            .args(["--strip-components=1", "-xf"])
            .arg(sandbox.path("evilbuild-1.0.tar.gz"))
            .arg("-C")
            .arg(&source)
            .status();
        assert!(unpacked.unwrap().success());
        committed(&source);
        let free = std::net::TcpListener::bind((address, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let daemon = Command::new("git")
            .args(["daemon", "--reuseaddr", "--export-all"])
            .arg(format!("--base-path={}", sandbox.path("git").display()))
            .arg(format!("--listen={address}"))
            .arg(format!("--port={port}"))
            // `git` starts another program, which listens.
            .process_group(0)
            .spawn()
            .unwrap();
        while std::net::TcpStream::connect((address, port)).is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
        Self {
            daemon,
            url: format!("git://{address}:{port}"),
            commit,
        }
    }
}

/// Makes a folder a repository whose one commit has the tag `v1.0`; its name.
fn committed(dir: &Path) -> String {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
        let out = command.current_dir(dir).args(args).output().unwrap();
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "git {args:?}: {error}");
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "all"]);
    git(&["tag", "v1.0"]);
    git(&["rev-parse", "HEAD"])
}

impl Drop for Repository {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_raw(self.daemon.id().cast_signed());
        let kill = rustix::process::Signal::KILL;
        let _ = group.map(|group| rustix::process::kill_process_group(group, kill));
        let _ = self.daemon.wait();
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles a source with an engine: one of the index, whose build wants a repository besides, or one of git.
fn found(engine: &str, git: bool) {
    let name = format!("{NAME}-{engine}{}", if git { "-git" } else { "" });
    let _clean = CleanUp::of(&[&name]);
    let sandbox = Sandbox::new();
    let index = Index::start(&sandbox, !git);
    let address = index.url.rsplit('@').next().unwrap().split(':').next();
    let repository = Repository::start(&sandbox, address.unwrap());
    let (source, fetch) = if git {
        (
            r#"{ git: "GIT/source", ref: "v{version}", submodules: false }"#,
            "",
        )
    } else {
        ("sdist", FETCH)
    };
    let recipe = RECIPE.replace("SOURCE", source).replace("FETCH", fetch);
    let recipe = recipe.replace("GIT", &repository.url);
    let recipe = recipe.replace("COMMIT", &repository.commit);
    sandbox.write(".stackforge/libraries/evilbuild.yaml", &recipe);
    let (base, python) = match engine {
        "native" => ("debian-bookworm", "3.11"),
        _ => ("debian-trixie", "3.13"),
    };
    sandbox.write(
        "s.yaml",
        &format!(
            "stack: {name}\nbase: {base}\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\n\
             python: \"{python}\"\nlibraries:\n  evilbuild: {{ version: \"1.0\", from: source }}\njit: false\nbytecode: false\n"
        ),
    );
    if engine == "native" {
        sandbox.warm("store");
    }
    let env = [
        ("UV_INDEX", index.url.as_str()),
        ("PIP_EXTRA_INDEX_URL", index.url.as_str()),
        ("UV_INDEX_CORP_PASSWORD", "hunter2"),
        ("UV_INSECURE_HOST", "*"),
        ("all_proxy", ""),
    ];
    let locked = sandbox.run_with(&["lock", "s.yaml"], &env);
    assert_eq!(locked.code, 0, "{}", locked.stderr);
    let tag = format!("{name}:1");
    let mut args = vec!["build", "s.yaml", "--json", "--engine", engine, "-t", &tag];
    if engine == "native" {
        args.extend(["-o", "docker"]);
    }
    let built = sandbox.run_with(&args, &env);
    assert_eq!(built.code, 0, "{}\n{}", built.stdout, built.stderr);
    let out = Command::new("docker")
        .args(["run", "--rm", &tag, "python", "-c"])
        .arg("import evilbuild; print(evilbuild.FOUND)")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    // The objects of its own library are the only cache that it reaches.
    let own = "['written: /dev/stackforge/objects']\n";
    assert_eq!(String::from_utf8_lossy(&out.stdout), own, "{errors}");
}

#[test]
fn a_compile_by_docker_finds_no_secret_no_cache_and_no_network() {
    found("docker", false);
}

#[test]
fn a_compile_by_docker_from_git_finds_nothing_either() {
    found("docker", true);
}

#[test]
fn a_compile_by_the_native_engine_finds_no_secret_no_cache_and_no_network() {
    found("native", false);
}
