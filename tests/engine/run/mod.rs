//! `run` with the Docker Engine: its command takes over, with the streams, signals and exit status.

mod api;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use support::published::answer;
use support::server::{Kind, Server};
use support::{CleanUp, Run, Sandbox, remove, runnable, tiny};

const PASSWD: &str = "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/srv:/bin/sh\n";
const TOOLS: [&str; 10] = [
    "sh", "cat", "id", "sleep", "kill", "df", "tail", "env", "stty", "seq",
];

/// An image of busybox in the engine.
fn imported(sandbox: &Sandbox, name: &str) {
    for folder in ["bin", "etc", "srv"] {
        std::fs::create_dir_all(sandbox.path("root").join(folder)).unwrap();
    }
    std::fs::copy("/bin/busybox", sandbox.path("root/bin/busybox")).expect("busybox-static");
    for tool in TOOLS {
        std::os::unix::fs::symlink("busybox", sandbox.path("root/bin").join(tool)).unwrap();
    }
    sandbox.write("root/etc/passwd", PASSWD);
    sandbox.write("root/etc/plain", "");
    let changes = [
        "ENV SAID=hello",
        "WORKDIR /made/for/it",
        "USER app",
        "CMD [\"sh\", \"-c\", \"echo $SAID; pwd; id -u\"]",
    ];
    let mut tar = Command::new("tar")
        .args(["-c", "-C"])
        .arg(sandbox.path("root"))
        .arg(".")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut docker = Command::new("docker");
    docker.arg("import");
    for change in changes {
        docker.args(["-c", change]);
    }
    let done = docker
        .args(["-", name])
        .stdin(tar.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(
        tar.wait().unwrap().success() && done.status.success(),
        "{done:?}"
    );
}

fn run(sandbox: &Sandbox, args: &[&str]) -> Run {
    sandbox.run(&[&["run", "--gpus", "none", "--no-model-cache"], args].concat())
}

#[test]
fn the_containers_exit_status_is_ours() {
    let name = "stackforge-run-status:1";
    let _clean = CleanUp::of(&["stackforge-run-status"]);
    let sandbox = Sandbox::new();
    imported(&sandbox, name);
    let ran = run(&sandbox, &[name]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "hello\n/made/for/it\n1000\n"),
        "{}",
        ran.stderr
    );
    for (program, code) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["no-such-program"], 127),
        (&["/etc/plain"], 126),
    ] {
        let ran = run(&sandbox, &[&[name, "--"], program].concat());
        assert_eq!(ran.code, code, "{program:?}: {}", ran.stderr);
    }
    let left = Command::new("docker")
        .args(["ps", "-aq", "--filter", &format!("ancestor={name}")])
        .output();
    assert!(left.unwrap().stdout.is_empty(), "a container is left");
}

#[test]
fn streams_signals_and_memory_reach_the_container() {
    let name = "stackforge-run-streams:1";
    let _clean = CleanUp::of(&["stackforge-run-streams"]);
    let sandbox = Sandbox::new();
    imported(&sandbox, name);
    let command = |args: &[&str]| {
        let mut command = sandbox.command();
        command
            .args(["run", "--gpus", "none", "--no-model-cache"])
            .args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    };
    let script = "cat; df /dev/shm | tail -n 1 | { read a b c; echo $b; }; echo $A";
    let args = [
        "--shm-size",
        "96MiB",
        "-e",
        "A=x y",
        name,
        "--",
        "sh",
        "-c",
        script,
    ];
    let mut child = command(&args).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "typed\n98304\nx y\n");

    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let mut child = command(&[name, "--", "sh", "-c", "echo ready; exec sleep 600"])
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        let id = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", signal, &id])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
    }
}

#[test]
fn a_detached_container_goes_on_under_its_name() {
    let name = "stackforge-run-detached:1";
    let container = format!("stackforge-run-detached-{}", std::process::id());
    let _clean = CleanUp::of(&["stackforge-run-detached"]);
    let sandbox = Sandbox::new();
    imported(&sandbox, name);
    let ran = run(
        &sandbox,
        &[
            "-d",
            "--name",
            &container,
            name,
            "--",
            "sh",
            "-c",
            "echo said; exit 3",
        ],
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let docker = |args: &[&str]| {
        let out = Command::new("docker").args(args).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    assert_eq!(docker(&["wait", &container]), "3\n");
    assert_eq!(docker(&["logs", &container]), "said\n");
    docker(&["rm", "-f", &container]);
}

#[test]
fn what_cannot_start_is_told_before_docker_is_asked() {
    let name = "stackforge-run-refused:1";
    let _clean = CleanUp::of(&["stackforge-run-refused"]);
    let sandbox = Sandbox::new();
    imported(&sandbox, name);
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let taken = run(&sandbox, &["-p", &port, name]);
    assert_eq!(taken.code, 3);
    assert!(taken.stderr.contains("SF0744"), "{}", taken.stderr);
    let missing = run(&sandbox, &["stackforge-run-nowhere:1"]);
    assert_eq!(missing.code, 2);
    assert!(
        missing.stderr.contains("SF0921") && missing.stderr.contains("neither Docker"),
        "{}",
        missing.stderr
    );
    let volume = run(&sandbox, &["--volume", "./gone:/x", name]);
    assert!(volume.stderr.contains("SF1205"), "{}", volume.stderr);
}

#[test]
fn a_printed_line_does_in_a_shell_what_run_does() {
    let name = "stackforge-run-line:1";
    let _clean = CleanUp::of(&["stackforge-run-line"]);
    let sandbox = Sandbox::new();
    imported(&sandbox, name);
    let program = [
        name,
        "-e",
        "A=it's \"x\"",
        "--",
        "sh",
        "-c",
        "echo \"$A\"; echo 'a  b'\nexit 4",
    ];
    let ran = run(&sandbox, &program);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (4, "it's \"x\"\na  b\n"),
        "{}",
        ran.stderr
    );
    let printed = run(&sandbox, &[&["--print"][..], &program].concat());
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let out = Command::new("bash")
        .args(["-c", &printed.stdout])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(4));
    assert_eq!(String::from_utf8_lossy(&out.stdout), ran.stdout);
}

#[test]
fn a_reference_is_pulled_and_brought_into_the_engine() {
    let server = Server::start(Kind::Open);
    let place = format!("{}/team/run:1", server.host);
    let publisher = Sandbox::new();
    runnable::image(&publisher.path("image"), runnable::config());
    let source = format!("oci:{}:v1", publisher.path("image").display());
    answer(&publisher, &["push", &source, &place]);
    let sandbox = Sandbox::new();
    let first = run(&sandbox, &[&place, "--", "asked"]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(
        first
            .stdout
            .starts_with("entry\nasked\n/made/for/it\n1000 1001\n"),
        "{}",
        first.stdout
    );
    assert!(first.stderr.contains("bringing"), "{}", first.stderr);
    drop(server);
    let again = run(&sandbox, &[&place, "--offline"]);
    assert_eq!(
        (again.code, again.stderr.as_str()),
        (0, ""),
        "{}",
        again.stdout
    );
    // The store has it too, so it comes back without the registry.
    remove(&place);
    let back = run(&sandbox, &[&place, "--offline"]);
    assert_eq!(back.code, 0, "{}", back.stderr);
    remove(&place);
    // And it runs without the engine.
    let native = run(&sandbox, &[&place, "--offline", "--engine", "native"]);
    assert!(
        native.stdout.starts_with("entry\nof the image\n"),
        "{}",
        native.stderr
    );
}

#[test]
fn a_stacks_image_is_found_and_one_of_another_plan_is_told() {
    let sandbox = tiny();
    let text = std::fs::read_to_string(sandbox.path("tiny.yaml")).unwrap();
    let stack = format!("stackforge-run-stack-{}", std::process::id());
    sandbox.write(
        "own.yaml",
        &text.replacen("stack: tiny", &format!("stack: {stack}"), 1),
    );
    std::fs::copy(sandbox.path("tiny.lock"), sandbox.path("own.lock")).unwrap();
    let missing = run(&sandbox, &["own.yaml"]);
    assert_eq!(missing.code, 2, "{}", missing.stderr);
    assert!(
        missing.stderr.contains("run `stackforge build own.yaml`"),
        "{}",
        missing.stderr
    );
    let name = format!("{stack}:latest");
    imported(&sandbox, &name);
    let ran = run(&sandbox, &["own.yaml"]);
    remove(&name);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "hello\n/made/for/it\n1000\n"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("SF1202"), "{}", ran.stderr);
}
