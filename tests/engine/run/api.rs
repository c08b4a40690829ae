//! Where Docker's command is not there, its API starts the same containers.

use super::{imported, run};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use support::{CleanUp, Sandbox};

/// Starts `run` where nobody finds Docker's command, nor any other.
fn without_commands(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.command();
    command
        .args(["run", "--gpus", "none", "--no-model-cache"])
        .args(args)
        .env("PATH", sandbox.path("nothing"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn docker(args: &[&str]) -> String {
    let out = Command::new("docker").args(args).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn containers_of(image: &str) -> String {
    docker(&["ps", "-aq", "--filter", &format!("ancestor={image}")])
}

#[test]
fn without_dockers_command_its_api_passes_streams_signals_and_status_on() {
    let name = "stackforge-run-api:1";
    let _clean = CleanUp::of(&["stackforge-run-api"]);
    let sandbox = Sandbox::new();
    imported(&sandbox, name);
    let ran = |args: &[&str], typed: &str| {
        let mut child = without_commands(&sandbox, args).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that reads nothing leaves the rest unread.
        let _ = stdin.write_all(typed.as_bytes());
        drop(stdin);
        let out = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            out.status.code().unwrap(),
            text(&out.stdout),
            text(&out.stderr),
        )
    };
    let own = ran(&[name], "");
    assert_eq!(
        own,
        (0, "hello\n/made/for/it\n1000\n".to_owned(), String::new())
    );
    let streams = ran(
        &[
            name,
            "-e",
            "A=x y",
            "--",
            "sh",
            "-c",
            "cat; echo \"$A\"; echo err >&2; exit 9",
        ],
        "typed\n",
    );
    assert_eq!(streams, (9, "typed\nx y\n".to_owned(), "err\n".to_owned()));
    // Much is written while much is not read.
    let (code, written, _) = ran(
        &[
            name,
            "--",
            "sh",
            "-c",
            "seq 1 200000; cat >/dev/null; echo end",
        ],
        &"line\n".repeat(200_000),
    );
    assert_eq!((code, written.len()), (0, 1_288_895 + 4));
    for (program, code) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["no-such-program"], 127),
        (&["/etc/plain"], 126),
    ] {
        let (status, _, stderr) = ran(&[&[name, "--"], program].concat(), "");
        assert_eq!(status, code, "{program:?}: {stderr}");
        // Process 1 is the engine's own small program, which names what it cannot start.
        let told = !(126..=127).contains(&code) || stderr.contains(program[0]);
        assert!(told, "{program:?}: {stderr}");
    }
    for (signal, code) in [("TERM", 143), ("INT", 130), ("USR1", 138)] {
        let sleeping = &[name, "--", "sh", "-c", "echo ready; exec sleep 600"];
        let mut child = without_commands(&sandbox, sleeping).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        let sent = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        // With its standard input still open.
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
    }
    let taken = docker(&["create", "--name", "stackforge-run-api-taken", name]);
    let (code, _, stderr) = ran(&["--name", "stackforge-run-api-taken", name], "");
    docker(&["rm", taken.trim()]);
    assert!(
        code == 3 && stderr.contains("already in use"),
        "{code}: {stderr}"
    );
    assert_eq!(containers_of(name), "", "a container is left");
}

/// What is typed goes to the container as it is typed, and its terminal has the size of this one.
#[test]
fn without_dockers_command_the_terminal_is_the_containers() {
    let name = "stackforge-run-terminal:1";
    let _clean = CleanUp::of(&["stackforge-run-terminal"]);
    let sandbox = Sandbox::new();
    imported(&sandbox, name);
    let run = without_commands(&sandbox, &[name, "--", "sh", "-c"]);
    let words = [run.get_program()].into_iter().chain(run.get_args());
    let words: Vec<String> = words
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    // The line of a container's terminal ends where ours is told of it; a size may come a moment after the start.
    let inside = "until stty size | { read r c; [ \"$r $c\" = \"30 100\" ]; }; do sleep 0.1; done; \
                  echo sized; read line; echo \"got $line\"; exit 5";
    let line = format!(
        "stty rows 30 cols 100; before=$(stty -g); PATH={} {} '{inside}'; code=$?; \
         [ \"$before\" = \"$(stty -g)\" ] && echo restored; exit $code",
        sandbox.path("nothing").display(),
        words.join(" "),
    );
    let mut script = sandbox.command_of("script");
    let mut child = script
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("util-linux's script");
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut shown = String::new();
    while !shown.contains("sized") {
        assert!(reader.read_line(&mut shown).unwrap() > 0, "{shown}");
    }
    child.stdin.as_mut().unwrap().write_all(b"typed\r").unwrap();
    std::io::Read::read_to_string(&mut reader, &mut shown).unwrap();
    assert!(
        shown.contains("got typed") && shown.contains("restored"),
        "{shown}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(5), "{shown}");
    assert_eq!(containers_of(name), "", "a container is left");
}

/// The engine is told the same by its command and by its API.
#[test]
fn without_dockers_command_the_container_is_the_same() {
    let name = "stackforge-run-same:1";
    let _clean = CleanUp::of(&["stackforge-run-same"]);
    let sandbox = Sandbox::new();
    imported(&sandbox, name);
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let container = format!("stackforge-run-same-{}", std::process::id());
    let ports = [format!("127.0.0.1:{port}:80"), format!("{port}:53/udp")];
    let args = [
        "-d",
        "--name",
        &container,
        "-p",
        &ports[0],
        "-p",
        &ports[1],
        "-e",
        "A=x y",
        "-e",
        "NOBODY_HAS_THIS",
        "--volume",
        "./root:/mnt:ro",
        "--volume",
        "stackforge-run-same:/kept",
        "--shm-size",
        "96MiB",
        "--entrypoint",
        "sh",
        name,
        "--",
        "-c",
        "sleep 600",
    ];
    let described = || {
        let described: serde_json::Value =
            serde_json::from_str(&docker(&["inspect", &container])).unwrap();
        docker(&["rm", "-f", &container]);
        let all = &described[0];
        let mut told = serde_json::json!({ "config": all["Config"], "host": all["HostConfig"] });
        told["config"]["Hostname"] = serde_json::Value::Null;
        // The command sends these in no order.
        for list in ["/host/Binds", "/config/Env"] {
            let list = told.pointer_mut(list).unwrap().as_array_mut().unwrap();
            list.sort_by_key(|item| item.as_str().map(str::to_owned));
        }
        told
    };
    let by_command = run(&sandbox, &args);
    assert_eq!(by_command.code, 0, "{}", by_command.stderr);
    let by_command = described();
    let by_api = without_commands(&sandbox, &args).output().unwrap();
    assert!(by_api.status.success(), "{by_api:?}");
    let id = String::from_utf8_lossy(&by_api.stdout).into_owned();
    assert_eq!(docker(&["inspect", "-f", "{{.Id}}", &container]), id);
    let by_api = described();
    docker(&["volume", "rm", "stackforge-run-same"]);
    assert_eq!(
        differences(&by_command, &by_api, String::new()),
        [] as [String; 0]
    );
}

/// Lists where two documents differ. Nothing and an empty list are the same to the engine.
fn differences(one: &serde_json::Value, other: &serde_json::Value, at: String) -> Vec<String> {
    use serde_json::Value;
    let is_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            keys.into_iter()
                .flat_map(|key| differences(&one[key], &other[key], format!("{at}/{key}")))
                .collect()
        }
        _ if one == other || is_nothing(one) && is_nothing(other) => Vec::new(),
        _ => vec![format!("{at}: {one} and {other}")],
    }
}

/// Where the engine's socket was mounted into a container, the engine has other files than its user.
#[test]
fn in_a_container_of_the_engine_nothing_of_the_container_is_mounted() {
    let name = "stackforge-run-inside:1";
    let _clean = CleanUp::of(&["stackforge-run-inside"]);
    let sandbox = Sandbox::new();
    imported(&sandbox, name);
    let socket = std::env::var("DOCKER_HOST").unwrap_or_default();
    let socket = socket
        .strip_prefix("unix://")
        .unwrap_or("/var/run/docker.sock");
    let mounts = [
        "/lib:/lib:ro".to_owned(),
        "/lib64:/lib64:ro".to_owned(),
        "/usr/lib:/usr/lib:ro".to_owned(),
        format!("{}:/bin/stackforge:ro", env!("CARGO_BIN_EXE_stackforge")),
        format!("{socket}:/var/run/docker.sock"),
    ];
    let inside = |args: &[&str]| {
        let mut command = Command::new("docker");
        command.args([
            "run",
            "--rm",
            "-i",
            "-u",
            "0",
            "-e",
            "HF_HOME=/models",
            "-e",
            "HOME=/srv",
        ]);
        for mount in &mounts {
            command.args(["--volume", mount]);
        }
        command.args([name, "stackforge", "run"]).args(args);
        let out = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let printed = inside(&["--print", name]);
    assert!(!printed.1.contains("HF_HOME"), "{printed:?}");
    assert!(
        printed.2.contains("outside of this container"),
        "{printed:?}"
    );
    let ran = inside(&[name, "--", "sh", "-c", "echo out; exit 4"]);
    assert_eq!(ran, (Some(4), "out\n".to_owned(), String::new()));
}
