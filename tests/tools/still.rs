//! No command is silent: while it waits, its terminal shows that it works, and since when.

use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::proxy::{Act, Proxy};
use support::server::{Kind, Server, layout};
use support::{self, Sandbox};

/// How long a screen is watched.
const WATCHED: Duration = Duration::from_secs(5);
/// How long it may stand still.
const STILL: Duration = Duration::from_secs(2);

/// A program on a terminal that `script` makes.
struct Terminal {
    script: Child,
    shown: mpsc::Receiver<Vec<u8>>,
    pid: std::path::PathBuf,
}

impl Terminal {
    fn start(sandbox: &Sandbox, args: &[&str], env: &[(&str, &str)], around: [&str; 2]) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let pid = sandbox.path(&format!("pid{number}"));
        let words: Vec<String> = std::iter::once(env!("CARGO_BIN_EXE_stackforge"))
            .chain(args.iter().copied())
            .map(|word| format!("'{word}'"))
            .collect();
        let [before, after] = around;
        let line = format!(
            "stty rows 30 cols 100; echo $$ > {}; {before} {} {after}",
            pid.display(),
            words.join(" ")
        );
        let mut command = sandbox.command_of("script");
        command
            .args(["-q", "-e", "-c", &line, "/dev/null"])
            .env("TERM", "xterm")
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut script = command.spawn().expect("util-linux's script");
        let mut output = script.stdout.take().unwrap();
        let (send, shown) = mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = vec![0; 4096];
            while let Ok(length @ 1..) = output.read(&mut piece) {
                if send.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { script, shown, pid }
    }

    /// Watches until `until`, or until the program ends.
    fn watch(&self, until: Instant) -> Watched {
        let (mut shown, mut longest, mut last) = (Vec::new(), Duration::ZERO, Instant::now());
        let mut ended = false;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match self.shown.recv_timeout(left) {
                Ok(piece) => {
                    shown.extend(piece);
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                }
                Err(mpsc::RecvTimeoutError::Timeout) => break,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    ended = true;
                    break;
                }
            }
        }
        Watched {
            shown: String::from_utf8_lossy(&shown).into_owned(),
            longest: longest.max(last.elapsed()),
            ended,
        }
    }
}

struct Watched {
    shown: String,
    /// The longest time without a change.
    longest: Duration,
    ended: bool,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(&self.pid) {
            let _ = Command::new("kill").args(["-9", pid.trim()]).output();
        }
        self.script.kill().unwrap();
        self.script.wait().unwrap();
    }
}

/// A server that takes every connection and never says a word; its `HOST:PORT`.
fn mute() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for connection in listener.incoming() {
            kept.push(connection);
        }
    });
    host
}

/// A stack of two variants.
const MANY: &str = "\
stack: many
base: debian-bookworm
target: { platform: linux/amd64 }
matrix: { sm: [\"8.0\", \"9.0\"] }
python: \"3.11\"
libraries: { six: \"1.17.0\" }
jit: false
";

/// Arguments, and variables.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);

/// Whatever a command waits for (a registry, an index, a mirror, an engine, a pipe), its line goes on.
#[test]
fn a_command_that_waits_says_so() {
    let host = mute();
    let image = format!("{host}/app:1");
    let in_registry = format!("registry:{image}");
    let engine = format!("tcp://{host}");
    let index = format!("http://{host}/simple");
    let mirror = format!("http://{host}/debian");
    let none = "unix:///nowhere/docker.sock";
    let update = format!("image: {image}\nplace: oci:DIR/service\nstate: DIR/state\n");
    let no_engine: &[(&str, &str)] = &[("DOCKER_HOST", none)];
    let slow_engine: &[(&str, &str)] = &[("DOCKER_HOST", &engine)];
    let slow_network: &[(&str, &str)] = &[
        ("DOCKER_HOST", none),
        ("UV_DEFAULT_INDEX", &index),
        ("STACKFORGE_DEBIAN_MIRROR", &mirror),
    ];
    let cases: &[Case<'_>] = &[
        (
            &["lock", "tiny.yaml", "--upgrade", "--upgrade-os"],
            slow_network,
        ),
        (
            &["build", "tiny.yaml", "--engine", "native", "-o", "oci:out"],
            slow_network,
        ),
        (&["build", "tiny.yaml"], slow_engine),
        (&["doctor"], slow_engine),
        (&["validate", "app:1"], slow_engine),
        (&["run", "app:1"], slow_engine),
        (&["run", &image, "--engine", "native"], no_engine),
        (&["pull", &image, "-o", "oci:out"], no_engine),
        (&["push", "oci:image1", &image], no_engine),
        (&["inspect", &image], no_engine),
        (&["audit", &in_registry], no_engine),
        (&["attach", &image, "--stack", "tiny.yaml"], no_engine),
        (&["verify", &image, "--key", "a.pub"], no_engine),
        (&["sign", &image, "--key", "a.key"], no_engine),
        (&["update", "update.yaml"], no_engine),
        (&["build", "many.yaml", "--all-variants"], slow_network),
        (&["build", "tiny.yaml", "--push", &image], slow_engine),
        (&["cache", "import", "pipe"], no_engine),
        (&["cache", "verify"], no_engine),
        (&["init", "--offline", "--from", "pipe"], no_engine),
        (&["diagnose", "pipe"], no_engine),
    ];
    let watch = |(args, env): &Case<'_>| silence(args, env, &update);
    let silent: Vec<String> = cases
        .chunks(6)
        .flat_map(|some| {
            std::thread::scope(|scope| {
                let watched: Vec<_> = some
                    .iter()
                    .map(|case| scope.spawn(|| watch(case)))
                    .collect();
                let ended = watched.into_iter().map(|w| w.join().unwrap());
                ended.collect::<Vec<_>>()
            })
        })
        .flatten()
        .collect();
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

/// Says where a command's screen stands still.
fn silence(args: &[&str], env: &[(&str, &str)], update: &str) -> Option<String> {
    let sandbox = support::tiny();
    layout(sandbox.path("").as_path(), 1);
    let here = sandbox.path("").display().to_string();
    sandbox.write("update.yaml", &update.replace("DIR/", &here));
    sandbox.write("many.yaml", MANY);
    // A blob of the store that takes a while to read.
    let large = sandbox.path(&format!("store/blobs/sha256/{}", "0".repeat(64)));
    std::fs::create_dir_all(large.parent().unwrap()).unwrap();
    let large = std::fs::File::create(large).unwrap();
    large.set_len(64 << 30).unwrap();
    let made = sandbox.run(&["sign", "--generate-key", "a"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let pipe = Command::new("mkfifo").arg(sandbox.path("pipe")).status();
    assert!(pipe.unwrap().success());
    let terminal = Terminal::start(&sandbox, args, env, ["exec", ""]);
    let Watched {
        shown,
        longest,
        ended,
    } = terminal.watch(Instant::now() + WATCHED);
    let named = shown.contains(&format!("{} 1s", args[0]));
    (longest >= STILL || ended || !named).then(|| {
        format!(
            "{}: still for {longest:?}, ended {ended}: {shown:?}",
            args.join(" ")
        )
    })
}

/// Each step of the work shows that it goes on, and nothing between two steps stands still.
#[test]
fn a_slow_registry_keeps_no_screen_still() {
    let server = Server::start(Kind::Open);
    let slow = Proxy::start(&server.host, |_| {
        std::thread::sleep(Duration::from_millis(1200));
        Act::Pass
    });
    let sandbox = Sandbox::new();
    layout(sandbox.path("").as_path(), 1);
    let fast = format!("{}/app:1", server.host);
    let slow = |tag: &str| format!("{}/app:{tag}", slow.host);
    let image = slow("1");
    let in_registry = format!("registry:{image}");
    for prepared in [
        &["push", "oci:image1", &fast][..],
        &["sign", "--generate-key", "a"],
        &["sign", &fast, "--key", "a.key"],
    ] {
        let run = sandbox.run(prepared);
        assert_eq!(run.code, 0, "{prepared:?}: {}", run.stderr);
    }
    let cases: [&[&str]; 6] = [
        &["pull", &image, "-o", "oci:out", "--store", "pulled"],
        &["push", "oci:image1", &slow("2")],
        &["inspect", &image],
        &["audit", &in_registry],
        &["sign", &image, "--key", "a.key"],
        &["verify", &image, "--key", "a.pub", "--verify-name", &fast],
    ];
    let watch = |args: &&[&str]| {
        let none: &[(&str, &str)] = &[("DOCKER_HOST", "unix:///nowhere/docker.sock")];
        let terminal = Terminal::start(&sandbox, args, none, ["exec", ""]);
        let watched = terminal.watch(Instant::now() + Duration::from_secs(60));
        let Watched {
            shown,
            longest,
            ended,
        } = watched;
        (longest >= STILL || !ended || shown.contains("SF")).then(|| {
            format!(
                "{}: still for {longest:?}, ended {ended}: {shown:?}",
                args.join(" ")
            )
        })
    };
    let silent: Vec<String> = std::thread::scope(|scope| {
        let watched = cases
            .each_ref()
            .map(|case| scope.spawn(move || watch(case)));
        let ended = watched.map(|w| w.join().unwrap());
        ended.into_iter().flatten().collect()
    });
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

/// A terminal that goes away is no reason to end what was to outlive it.
#[test]
fn work_goes_on_without_its_terminal() {
    let server = Server::start(Kind::Open);
    let slow = Proxy::start(&server.host, |_| {
        std::thread::sleep(Duration::from_millis(700));
        Act::Pass
    });
    let sandbox = Sandbox::new();
    layout(sandbox.path("").as_path(), 1);
    let pushed = sandbox.run(&["push", "oci:image1", &format!("{}/app:1", server.host)]);
    assert_eq!(pushed.code, 0, "{}", pushed.stderr);
    let image = format!("{}/app:1", slow.host);
    let ended = sandbox.path("ended");
    let before = format!(
        "trap '' HUP; trap 'echo $? > {}.new; mv {0}.new {0}' EXIT;",
        ended.display()
    );
    let mut terminal = Terminal::start(
        &sandbox,
        &["pull", &image, "-o", "oci:out"],
        &[],
        [&before, "> said"],
    );
    let start = Instant::now();
    let mut shown = String::new();
    while !shown.contains("pull 0s") && !shown.contains("pull 1s") {
        assert!(start.elapsed() < Duration::from_secs(30), "{shown:?}");
        shown += &terminal
            .watch(Instant::now() + Duration::from_millis(100))
            .shown;
    }
    terminal.script.kill().unwrap();
    terminal.script.wait().unwrap();
    while !ended.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "{shown:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(std::fs::read_to_string(&ended).unwrap(), "0\n", "{shown:?}");
    assert!(sandbox.path("out/index.json").exists());
}
