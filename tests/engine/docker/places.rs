//! Where the real binary finds an engine: contexts that the real docker command made, and sockets that are
//! there, stale, or not for us.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::connections::{fake_ssh, make_certificates, tls_relay};
use super::workshop::socket;
use support::schemas;

const BINARY: &str = env!("CARGO_BIN_EXE_stackforge");

/// A home for the docker command and for stackforge, which nothing of the machine's names an engine to.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for name in ["HOST", "CONTEXT", "CONFIG", "TLS_VERIFY", "CERT_PATH"] {
            command.env_remove(format!("DOCKER_{name}"));
        }
        command
            .env("HOME", self.path())
            .env("XDG_RUNTIME_DIR", self.path().join("run"))
            .env("STACKFORGE_STORE", self.path().join("store"))
            .env("TMPDIR", self.path());
        command
    }

    /// Runs the docker command.
    fn docker(&self, args: &[&str]) {
        let out = self.command("docker").args(args).output().unwrap();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "docker {args:?}: {errors}");
    }

    fn create(&self, name: &str, endpoint: &str) {
        self.docker(&["context", "create", name, "--docker", endpoint]);
    }

    /// The engine that `doctor` found, and its findings.
    fn doctor(&self, env: &[(&str, &OsStr)]) -> (Value, Vec<Value>) {
        let mut command = self.command(BINARY);
        command.args(["doctor", "--offline", "--json"]);
        doctor(command.envs(env.iter().copied()))
    }
}

fn doctor(command: &mut Command) -> (Value, Vec<Value>) {
    let out = command.output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&out.stdout);
    schemas::check(&DOCTOR[1..], &text, &errors);
    let mut report: Value = serde_json::from_str(&text).unwrap();
    let findings = report["findings"].take();
    let engine = report["live"]["engine"].take();
    (engine, findings.as_array().unwrap().clone())
}

/// Address, and what named it.
fn place(engine: &Value) -> (&str, &str) {
    let text = |key: &str| engine[key].as_str().unwrap_or_default();
    (text("address"), text("found_by"))
}

#[test]
fn the_context_that_docker_made_is_the_engine() {
    let home = Home::new();
    let real = format!("unix://{}", socket().display());
    home.create("near", &format!("host={real}"));
    home.create("gone", "host=unix:///nonexistent.sock");
    home.docker(&["context", "use", "near"]);

    let (engine, _) = home.doctor(&[]);
    assert_eq!(place(&engine), (real.as_str(), "docker context `near`"));
    // DOCKER_HOST goes over DOCKER_CONTEXT, which goes over the context in use.
    let host = ("DOCKER_HOST", OsStr::new(&real));
    let context = ("DOCKER_CONTEXT", OsStr::new("gone"));
    let (engine, _) = home.doctor(&[host, context]);
    assert_eq!(place(&engine), (real.as_str(), "DOCKER_HOST"));
    let (engine, findings) = home.doctor(&[context]);
    assert_eq!(engine["server"], Value::Null);
    let silent = findings.iter().find(|f| f["code"] == "SF0301").unwrap();
    let text = silent.to_string();
    assert!(text.contains("unix:///nonexistent.sock"), "{text}");
    assert!(text.contains("docker context `gone` names it"), "{text}");
    // `default` is none of them.
    let (engine, _) = home.doctor(&[("DOCKER_CONTEXT", OsStr::new("default"))]);
    assert_ne!(place(&engine).1, "docker context `near`");

    // One that was in use and is removed is no reason to take another engine.
    home.docker(&["context", "rm", "--force", "near"]);
    let config = home.path().join(".docker/config.json");
    std::fs::write(config, r#"{"currentContext":"near"}"#).unwrap();
    let (engine, findings) = home.doctor(&[]);
    assert_eq!(engine["server"], Value::Null);
    let text = findings
        .iter()
        .find(|f| f["code"] == "SF0301")
        .unwrap()
        .to_string();
    assert!(
        text.contains("near") && text.contains("docker context ls"),
        "{text}"
    );
}

#[test]
fn a_context_over_ssh_reaches_its_engine() {
    let home = Home::new();
    let path = fake_ssh(home.path());
    let far = format!("ssh://me@far.example{}", socket().display());
    home.create("far", &format!("host={far}"));
    let env = [("DOCKER_CONTEXT", OsStr::new("far")), ("PATH", &path)];
    let (engine, _) = home.doctor(&env);
    assert_eq!(place(&engine), (far.as_str(), "docker context `far`"));
    assert_eq!(engine["local"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_with_certificates_speaks_tls() {
    let home = Home::new();
    let made = make_certificates();
    let file = |name: &str| made.path().join(name).display().to_string();
    let port = tls_relay(made.path()).await;
    let host = format!("host=tcp://localhost:{port}");
    let (ca, cert, key) = (file("ca.pem"), file("cert.pem"), file("key.pem"));
    home.create("whole", &format!("{host},ca={ca},cert={cert},key={key}"));
    // Whose CA is among the system's.
    home.create("system", &format!("{host},cert={cert},key={key}"));
    home.create("skips", &format!("{host},skip-tls-verify=true"));
    home.create("plain", &host);
    let doctor = |context: &str, more: &[(&str, &OsStr)]| {
        let context = [("DOCKER_CONTEXT", OsStr::new(context))];
        home.doctor(&[&context, more].concat())
    };
    let (engine, findings) = doctor("whole", &[]);
    assert_eq!(place(&engine).1, "docker context `whole`", "{findings:?}");
    let (engine, findings) = doctor("system", &[("SSL_CERT_FILE", OsStr::new(&ca))]);
    assert_eq!(place(&engine).1, "docker context `system`", "{findings:?}");
    // The engine is reached only with that CA, with verification and with TLS.
    for (context, expected) in [
        ("system", "certificate"),
        ("skips", "skips the verification"),
        ("plain", "cannot reach"),
    ] {
        let (engine, findings) = doctor(context, &[]);
        assert_eq!(engine["server"], Value::Null, "{context}");
        let text = findings
            .iter()
            .find(|f| f["code"] == "SF0301")
            .unwrap()
            .to_string();
        assert!(text.contains(expected), "{context}: {text}");
    }
}

/// A command that runs the binary with `run` in the place of `/run`.
fn in_place_of_run(home: &Home, run: &Path) -> Command {
    let mut command = home.command("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount --bind \"$0\" /run && exec \"$@\"",
    ]);
    command.arg(run);
    command.env("XDG_RUNTIME_DIR", "/run/user/7");
    command
}

fn listen(path: PathBuf) -> UnixListener {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    UnixListener::bind(path).unwrap()
}

const DOCTOR: [&str; 4] = [BINARY, "doctor", "--offline", "--json"];

#[test]
fn a_socket_that_nobody_listens_on_is_passed_over() {
    let home = Home::new();
    let run = tempfile::tempdir().unwrap();
    drop(listen(run.path().join("docker.sock")));
    let (engine, findings) = doctor(in_place_of_run(&home, run.path()).args(DOCTOR));
    assert_eq!(engine["server"], Value::Null);
    let text = findings
        .iter()
        .find(|f| f["code"] == "SF0301")
        .unwrap()
        .to_string();
    assert!(text.contains("/var/run/docker.sock"), "{text}");
    assert!(
        text.contains("nobody listens on it: start the engine"),
        "{text}"
    );

    // Where the usual one is not there at all, one that is there and stale is what is told.
    std::fs::remove_file(run.path().join("docker.sock")).unwrap();
    drop(listen(run.path().join("podman/podman.sock")));
    let (_, findings) = doctor(in_place_of_run(&home, run.path()).args(DOCTOR));
    let text = findings
        .iter()
        .find(|f| f["code"] == "SF0301")
        .unwrap()
        .to_string();
    assert!(text.contains("/run/podman/podman.sock"), "{text}");
}

#[test]
fn every_usual_socket_is_found_and_the_first_that_answers_is_taken() {
    let home = Home::new();
    let run = tempfile::tempdir().unwrap();
    drop(listen(run.path().join("docker.sock")));
    let real = std::fs::canonicalize(socket()).unwrap();
    let at_home = |path: &str| home.path().join(path);
    let places = [
        (
            run.path().join("podman/podman.sock"),
            "/run/podman/podman.sock".into(),
            "Podman's",
        ),
        (
            run.path().join("user/7/podman/podman.sock"),
            "/run/user/7/podman/podman.sock".into(),
            "rootless Podman's",
        ),
        (
            at_home(".rd/docker.sock"),
            at_home(".rd/docker.sock"),
            "Rancher Desktop's",
        ),
        (
            at_home(".colima/default/docker.sock"),
            at_home(".colima/default/docker.sock"),
            "Colima's",
        ),
        (
            at_home(".docker/desktop/docker.sock"),
            at_home(".docker/desktop/docker.sock"),
            "Docker Desktop's",
        ),
        (
            at_home(".docker/run/docker.sock"),
            at_home(".docker/run/docker.sock"),
            "Docker Desktop's",
        ),
        (
            run.path().join("user/7/docker.sock"),
            "/run/user/7/docker.sock".into(),
            "rootless Docker's",
        ),
    ];
    // From the last to the first, each goes over those before it.
    let mut listening = Vec::new();
    for (path, named, whose) in places {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // What is below /run is hidden there: the socket itself is mounted on a file.
        std::fs::write(&path, "").unwrap();
        listening.push(path.display().to_string());
        let mut command = home.command("unshare");
        let script = "for p in $PLACES; do mount --bind \"$REAL\" \"$p\"; done; \
                      mount --rbind \"$0\" /run && exec \"$@\"";
        command
            .args(["--mount", "sh", "-c", script])
            .arg(run.path());
        command
            .env("XDG_RUNTIME_DIR", "/run/user/7")
            .env("REAL", &real)
            .env("PLACES", listening.join(" "));
        let (engine, findings) = doctor(command.args(DOCTOR));
        let address = format!("unix://{}", named.display());
        let by = format!("{whose} socket");
        assert_eq!(
            place(&engine),
            (address.as_str(), by.as_str()),
            "{findings:?}"
        );
    }
}

#[test]
fn a_socket_that_is_not_for_us_says_what_to_do() {
    const NOBODY: u32 = 65534;
    let home = Home::new();
    let run = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(run.path(), open.clone()).unwrap();
    std::fs::set_permissions(home.path(), open).unwrap();
    let store = home.path().join("store");
    std::fs::create_dir(&store).unwrap();
    std::os::unix::fs::chown(&store, Some(NOBODY), Some(NOBODY)).unwrap();
    let socket = run.path().join("docker.sock");
    let _listens = listen(socket.clone());
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).unwrap();
    // The binary may lie where that user cannot go.
    let binary = home.path().join("stackforge");
    std::fs::copy(BINARY, &binary).unwrap();
    let mut command = in_place_of_run(&home, run.path());
    // Podman, asked as that user, leaves files there.
    command.env("TMPDIR", &store).args([
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ]);
    command.arg(&binary).args(&DOCTOR[1..]);
    let (engine, findings) = doctor(command.process_group(0));
    assert_eq!(engine["server"], Value::Null);
    let text = findings
        .iter()
        .find(|f| f["code"] == "SF0301")
        .unwrap()
        .to_string();
    assert!(text.contains("/var/run/docker.sock"), "{text}");
    assert!(text.contains("add your user to the group"), "{text}");
}
