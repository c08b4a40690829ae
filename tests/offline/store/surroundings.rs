//! What surrounds a command: a stdout that is full, files that cannot be written, variables and
//! configurations that say nothing that can be meant.

use rustix::process::Signal;
use std::fs::{File, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use support::{Run, Sandbox, project};

fn tiny() -> Sandbox {
    let sandbox = Sandbox::new();
    for file in ["tiny.yaml", "tiny.lock"] {
        let text = std::fs::read_to_string(project("examples").join(file)).unwrap();
        sandbox.write(file, &text);
    }
    sandbox
}

fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Runs the program without room for a single byte in any file.
fn without_room(sandbox: &Sandbox, args: &[&str]) -> Output {
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$@\"";
    let mut command = sandbox.command_of("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_stackforge")]);
    command.args(args).output().unwrap()
}

/// Ends the program where it waits for what never comes.
fn in_time(sandbox: &Sandbox) -> Command {
    let mut command = sandbox.command_of("timeout");
    command.args(["120", env!("CARGO_BIN_EXE_stackforge")]);
    command
}

#[test]
fn a_full_stdout_is_an_error() {
    let sandbox = tiny();
    for args in [
        &["schema"][..],
        &["man"],
        &["completions", "bash"],
        &["explain", "SF0001"],
        &["explain", "--markdown"],
        &["check", "tiny.yaml"],
        &["check", "tiny.yaml", "--json"],
        &["plan", "tiny.yaml"],
        &["matrix", "tiny.yaml"],
        &["sbom", "tiny.yaml"],
        &["render", "tiny.yaml", "-o", "context"],
        &["init", "--gpu", "h100", "-o", "-"],
        &["cache", "ls"],
        &["cache", "gc"],
        &["--help"],
        &["--version"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let out = sandbox.command().args(args).stdout(full).output().unwrap();
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", stderr(&out));
        assert!(stderr(&out).contains("cannot write to stdout"), "{args:?}");
    }
    // A reader that has read enough is none.
    let mut pipe = sandbox.command_of("sh");
    let script = "{ \"$0\" explain --markdown; echo $? >&2; } | head -c 1";
    let out = pipe.args(["-c", script, env!("CARGO_BIN_EXE_stackforge")]);
    assert_eq!(stderr(&out.output().unwrap()).trim(), "0");
}

#[test]
fn what_could_not_be_written_is_not_in_the_way() {
    let sandbox = tiny();
    std::fs::create_dir(sandbox.path("own")).unwrap();
    let names = || std::fs::read_dir(sandbox.path("own")).unwrap().count();
    for args in [
        &["init", "--gpu", "h100", "-o", "own/s.yaml"][..],
        &["sign", "--generate-key", "own/pair"],
        &[
            "matrix",
            "tiny.yaml",
            "--emit",
            "github",
            "-o",
            "own/ci.yml",
        ],
    ] {
        let out = without_room(&sandbox, args);
        assert_ne!(out.status.code(), Some(0), "{args:?}");
        assert_eq!(names(), 0, "{args:?}: {}", stderr(&out));
        let run = sandbox.run(args);
        assert_eq!(run.code, 0, "{args:?}: {}", run.stderr);
        std::fs::remove_dir_all(sandbox.path("own")).unwrap();
        std::fs::create_dir(sandbox.path("own")).unwrap();
    }
    // A file in the place of the public key: no private key is written either.
    sandbox.write("own/pair.pub", "");
    let run = sandbox.run(&["sign", "--generate-key", "own/pair"]);
    assert_eq!((run.code, names()), (2, 1), "{}", run.stderr);
    std::fs::remove_file(sandbox.path("own/pair.pub")).unwrap();
    let run = sandbox.run(&["sign", "--generate-key", "own/pair"]);
    assert_eq!((run.code, names()), (0, 2), "{}", run.stderr);
}

#[test]
fn a_time_that_is_none_makes_no_image() {
    let sandbox = tiny();
    for wrong in ["soon", "-1", "1.5", "99999999999"] {
        let env = [("SOURCE_DATE_EPOCH", wrong)];
        for args in [
            &["build", "tiny.yaml", "--engine", "native", "-o", "oci:out"][..],
            &["sbom", "tiny.yaml"],
        ] {
            let run = sandbox.run_with(args, &env);
            assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
            assert!(run.stderr.contains("SF0014") && run.stderr.contains(wrong));
        }
        assert!(!sandbox.path("out").exists());
    }
    let sbom = |epoch: &str| {
        let run = sandbox.run_with(&["sbom", "tiny.yaml"], &[("SOURCE_DATE_EPOCH", epoch)]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout
    };
    assert!(sbom("86400").contains("1970-01-02"));
    assert!(sbom("").contains("2024-01-01"));
}

/// What is said of an engine that the environment names.
fn engine(sandbox: &Sandbox, env: &[(&str, &[u8])]) -> String {
    let mut command = sandbox.command();
    command
        .args(["validate", "no-such-image"])
        .env_remove("DOCKER_HOST");
    for (name, value) in env {
        match value {
            [] => command.env_remove(name),
            value => command.env(name, std::ffi::OsStr::from_bytes(value)),
        };
    }
    let out = command.output().unwrap();
    assert_ne!(out.status.code(), Some(0));
    stderr(&out)
}

#[test]
fn the_engine_that_is_named_is_the_one_that_is_meant() {
    let sandbox = Sandbox::new();
    for env in [
        &[
            ("DOCKER_CONTEXT", &b"far"[..]),
            ("HOME", b""),
            ("DOCKER_CONFIG", b""),
        ][..],
        &[("DOCKER_CONTEXT", b"\xff")],
        &[("DOCKER_HOST", b"unix:///\xff")],
    ] {
        let message = engine(&sandbox, env);
        assert!(message.contains("is not valid"), "{message}");
    }
    for host in [&b"tcp://me:s3cret@box:2375"[..], b"ssh://me:s3cret@box"] {
        let message = engine(&sandbox, &[("DOCKER_HOST", host)]);
        assert!(
            message.contains("is not valid") && !message.contains("s3cret"),
            "{message}"
        );
    }
    // Nor is another one taken where stackforge may choose.
    let tiny = tiny();
    let env = [
        ("DOCKER_HOST", "tcp//me:s3cret@box"),
        ("DOCKER_CONTEXT", ""),
    ];
    let run: Run = tiny.run_with(&["build", "tiny.yaml", "--engine", "docker"], &env);
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(!run.stderr.contains("s3cret"), "{}", run.stderr);
}

#[test]
fn a_server_that_is_no_engine_is_told_as_such() {
    let sandbox = Sandbox::new();
    for answer in [
        "HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\n\r\nnot found",
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    ] {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = format!("tcp://{}", server.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in server.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let end = lines.map_while(Result::ok).find(String::is_empty);
                if end.is_some() {
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
        });
        let message = engine(&sandbox, &[("DOCKER_HOST", host.as_bytes())]);
        let is_reported = message.contains("SF0301") && message.contains("what listens there");
        assert!(is_reported, "{answer}: {message}");
    }
}

#[test]
fn passwords_of_a_configuration_are_not_told() {
    let sandbox = tiny();
    for text in [
        "registries: { nvcr.io: 'https://u:s3cret@h' }",
        "registries: { nvcr.io: 'u:s3cret@h' }",
        "registries: 'https://u:s3cret@h'",
        "cache: { registry: 'https://u:s3cret@h/x' }",
        "cache: { max_size: 'u:s3cret@h' }",
        "builders: { linux/amd64: ['tcpx://u:s3cret@h'] }",
    ] {
        sandbox.write("config.yaml", text);
        let env = [("STACKFORGE_CONFIG", "config.yaml")];
        let run = sandbox.run_with(&["plan", "tiny.yaml"], &env);
        assert_eq!(run.code, 2, "{text}: {}", run.stderr);
        assert!(!run.stderr.contains("s3cret"), "{}", run.stderr);
    }
}

#[test]
fn settings_that_are_a_pipe_are_not_waited_for() {
    let sandbox = tiny();
    let made = Command::new("mkfifo").arg(sandbox.path("pipe")).status();
    assert!(made.unwrap().success());
    for pipe in ["pipe", "/dev/zero"] {
        let plan = in_time(&sandbox)
            .args(["plan", "tiny.yaml"])
            .env("STACKFORGE_CONFIG", pipe)
            .output()
            .unwrap();
        let update = in_time(&sandbox).args(["update", pipe]).output().unwrap();
        for out in [plan, update] {
            assert_eq!(out.status.code(), Some(2), "{pipe}: {}", stderr(&out));
        }
    }
    // A key may come through a pipe, and has an end.
    let verify = ["verify", "127.0.0.1:1/x:1", "--key", "/dev/zero"];
    let out = in_time(&sandbox).args(verify).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
}

#[test]
fn a_state_belongs_to_its_update() {
    let sandbox = Sandbox::new();
    let state = sandbox.path("state");
    let settings = |place: &str| {
        let place = sandbox.path(place);
        format!(
            "image: 127.0.0.1:1/x:1\nplace: oci:{}\nstate: {}\nvalidate: {{ gpu: false }}\n",
            place.display(),
            state.display()
        )
    };
    sandbox.write("one.yaml", &settings("one"));
    sandbox.write("two.yaml", &settings("two"));
    let place = sandbox.path("one").display().to_string();
    let text = format!(r#"{{"place":"oci:{place}","step":{{"at":"idle"}}}}"#);
    sandbox.write("state/state.json", &text);
    for more in [&[][..], &["--status"]] {
        let run = sandbox.run(&[&["update", "two.yaml"], more].concat());
        assert_eq!(run.code, 2, "{}", run.stderr);
        assert!(run.stderr.contains("SF1017"), "{}", run.stderr);
    }
    let run = sandbox.run(&["update", "one.yaml", "--status"]);
    assert!(
        run.stderr.contains("no update has run yet"),
        "{}",
        run.stderr
    );
    // Who can write the state decides what the service gets.
    std::fs::set_permissions(&state, Permissions::from_mode(0o777)).unwrap();
    let run = sandbox.run(&["update", "one.yaml"]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("SF1017"), "{}", run.stderr);
    assert_eq!(
        std::fs::read_to_string(state.join("state.json")).unwrap(),
        text
    );
}

#[test]
fn a_relative_cache_directory_is_none() {
    let sandbox = Sandbox::new();
    let home = sandbox.path("home");
    let mut command = sandbox.command();
    command.args(["cache", "ls"]).env_remove("STACKFORGE_STORE");
    command.env("XDG_CACHE_HOME", "caches").env("HOME", &home);
    let out = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
    let expected = home.join(".cache/stackforge");
    assert!(stdout.starts_with(&*expected.to_string_lossy()), "{stdout}");
}

/// A pull that waits for its server, which never answers. It has begun, and listens for signals.
fn waiting(sandbox: &Sandbox, script: &str) -> (std::process::Child, TcpListener) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let reference = format!("{}/x:1", server.local_addr().unwrap());
    let mut command = sandbox.command_of("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_stackforge")]);
    command.args(["pull", &reference]).stderr(Stdio::null());
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    std::mem::forget(server.accept().unwrap());
    (child, server)
}

#[test]
fn the_end_of_a_terminal_ends_in_order() {
    let sandbox = Sandbox::new();
    let send = |child: &std::process::Child, signal| {
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, signal).unwrap();
    };
    let (mut child, _server) = waiting(&sandbox, "exec \"$@\"");
    send(&child, Signal::HUP);
    // Killed by the signal it would have no exit code.
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // As `nohup` starts it.
    let (mut child, _server) = waiting(&sandbox, "trap '' HUP; exec \"$@\"");
    send(&child, Signal::HUP);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    send(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
