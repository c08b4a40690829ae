//! What a source's own code finds while it is compiled: no password, no cache, no network, whichever
//! engine compiles it.
//!
//! Needs the network and Docker.

mod support;

use std::net::UdpSocket;
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
  source: sdist
  requires: [setuptools, wheel]
  jobs: { variable: MAX_JOBS, memory_gb: 0.1, source: test }
  metadata: { \"*\": { requires_python: \">=3.9\", requires_dist: [] } }
";
const NAME: &str = "stackforge-test-foreign";

/// An index behind a password, at an address that containers reach.
struct Index {
    child: Child,
    url: String,
}

impl Index {
    fn start(sandbox: &Sandbox) -> Self {
        // The address that this machine has for others: nothing is sent.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect("192.0.2.1:9").unwrap();
        let address = socket.local_addr().unwrap().ip().to_string();
        let port = sandbox.path("port");
        let child = Command::new("python3")
            .arg(project("tests/foreign_code/index.py"))
            .arg(sandbox.path(""))
            .arg(&address)
            .arg(&port)
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

impl Drop for Index {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn found(engine: &str) {
    let name = format!("{NAME}-{engine}");
    let _clean = CleanUp::of(&[&name]);
    let sandbox = Sandbox::new();
    let index = Index::start(&sandbox);
    sandbox.write(".stackforge/libraries/evilbuild.yaml", RECIPE);
    sandbox.write(
        "s.yaml",
        &format!(
            "stack: {name}\nbase: debian-trixie\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\n\
             python: \"3.13\"\nlibraries:\n  evilbuild: {{ version: \"1.0\", from: source }}\njit: false\n"
        ),
    );
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
    assert_eq!(String::from_utf8_lossy(&out.stdout), "[]\n", "{errors}");
}

#[test]
fn a_compile_by_docker_finds_no_secret_no_cache_and_no_network() {
    found("docker");
}

#[test]
fn a_compile_by_the_native_engine_finds_no_secret_no_cache_and_no_network() {
    found("native");
}
