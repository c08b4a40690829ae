//! What is asked of every engine, in order: each column starts from what the one before left.

use crate::engine::Engine;
use crate::stacks::{FIRST, Files, Kit, LOOK, Stack};
use crate::table::Cell;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::exported::{exported_by, unexplained};

/// An engine under test.
pub struct Bench<'a> {
    pub engine: Engine,
    pub kit: &'a Kit,
    /// A registry that the engine's own network reaches, on loopback.
    pub registry: &'a str,
    /// A directory for each stack.
    pub dir: tempfile::TempDir,
    /// A word that no other row has.
    pub row: String,
    /// Whether the changed stacks are built in the other order too.
    pub both_orders: bool,
}

/// What a column saw.
pub enum Outcome {
    Right(String),
    Refused(String),
    NotAsked,
}

/// The code of an engine that is too old to build.
const TOO_OLD: &str = "SF0361";

/// How often Podman's service may die in one column.
const MOST_DEATHS: usize = 3;

type Answer = Result<Outcome, String>;
type Column = fn(&Bench<'_>) -> Answer;

/// Each with whether the engine itself builds in it.
pub const COLUMNS: [(&str, bool, Column); 17] = [
    ("doctor", false, doctor),
    ("build, no compile", true, plain),
    ("build, compile", true, compiled),
    ("no-op", true, nothing_to_do),
    ("changed lock", true, changed_lock),
    ("changed recipe", true, changed_recipe),
    ("changed variable, killed once", true, changed_variable),
    ("changed file", true, changed_file),
    ("the same in the other order", true, other_order),
    ("native `-o docker`", false, native_to_docker),
    ("`validate`", false, validate),
    ("`audit docker:`", false, audit),
    ("`pull -o docker`", false, pull_to_docker),
    ("push by the engine", false, push),
    // Podman's service may end some time after a step that failed (buildah#7091).
    ("failing compile", true, failing_compile),
    ("failing validation", true, failing_validation),
    ("Ctrl-C", true, interrupted),
];

impl Bench<'_> {
    /// Every column's cell. One that panics is wrong and stops no other.
    pub fn cells(&self) -> Vec<Cell> {
        COLUMNS
            .iter()
            .map(|(_, builds, column)| {
                if *builds && !self.builds() {
                    self.cell(refused)
                } else {
                    self.cell(*column)
                }
            })
            .collect()
    }

    /// A column's cell. Where Podman's service died meanwhile of a fault that is known, it is asked again. Any
    /// other fault has to be there twice, since engines and mirrors have faults of an hour; the table names it.
    fn cell(&self, column: Column) -> Cell {
        let mut deaths = self.awake();
        let mut cell = self.run_column(column);
        for _ in 0..MOST_DEATHS {
            if !matches!(cell, Cell::Wrong(_)) || self.engine.deaths() == deaths {
                break;
            }
            deaths = self.awake();
            cell = self.run_column(column);
            if let Cell::Right(_, note) = &mut cell {
                let again = format!("{note} (again: its service had died)");
                *note = again.trim_start().to_owned();
            }
        }
        if let Cell::Wrong(why) = &cell {
            let first = why.lines().next().unwrap_or_default().to_owned();
            self.awake();
            cell = self.run_column(column);
            if let Cell::Right(_, note) = &mut cell {
                *note = format!("{note} (again: {first})").trim_start().to_owned();
            }
        }
        cell
    }

    /// Waits until the engine answers, as it would at once behind a socket of systemd; returns how often its
    /// service had died before.
    fn awake(&self) -> usize {
        let deaths = self.engine.deaths();
        let _ = self.engine.ready();
        deaths
    }

    fn run_column(&self, column: Column) -> Cell {
        let start = Instant::now();
        let answer = catch_unwind(AssertUnwindSafe(|| column(self)));
        match answer {
            Ok(Ok(Outcome::Right(note))) => Cell::Right(start.elapsed(), note),
            Ok(Ok(Outcome::Refused(code))) => Cell::Refused(code),
            Ok(Ok(Outcome::NotAsked)) => Cell::NotAsked,
            Ok(Err(why)) => Cell::Wrong(format!("{why}\n{}", self.engine.log())),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned()));
                Cell::Wrong(text.unwrap_or_else(|| "a panic".to_owned()))
            }
        }
    }

    /// The stack that the others differ from, without a compile.
    fn plain(&self) -> Stack<'_> {
        Stack {
            row: &self.row,
            compiles: false,
            ..FIRST
        }
    }

    /// The same with a compile of this row's own.
    fn first(&self) -> Stack<'_> {
        Stack {
            row: &self.row,
            ..FIRST
        }
    }

    /// Podman before 4.4 loses what a step mounts from another stage.
    fn builds(&self) -> bool {
        !(self.engine.kind.is_podman() && self.engine.version.starts_with("4.3."))
    }

    /// An image that this engine has, its own where it builds.
    fn image(&self) -> &'static str {
        if self.builds() {
            "plain:1"
        } else {
            "by-native:1"
        }
    }

    fn stackforge(&self, dir: &PathBuf, args: &[&str]) -> Command {
        let mut command = self.kit.command_of("timeout");
        command.args(["300", env!("CARGO_BIN_EXE_stackforge")]);
        command.args(args).current_dir(dir);
        command.env("DOCKER_HOST", &self.engine.address);
        command.env_remove("DOCKER_CONTEXT");
        command
    }

    fn ran(&self, dir: &PathBuf, args: &[&str]) -> Ran {
        let out = self.stackforge(dir, args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran {
            what: args.join(" "),
            code: out.status.code(),
            stdout: text(&out.stdout),
            stderr: text(&out.stderr),
        }
    }

    /// A stack's files in a directory of its own.
    fn written(&self, name: &str, stack: Stack<'_>) -> PathBuf {
        let dir = self.dir.path().join(name);
        stack.write(&dir, &self.kit.locks);
        dir
    }

    fn build(&self, name: &str, stack: Stack<'_>) -> Ran {
        let dir = self.written(name, stack);
        let tag = format!("{name}:1");
        let args = ["build", "s.yaml", "--json", "--engine", "docker", "-t"];
        self.ran(&dir, &[&args[..], &[&tag]].concat())
    }

    /// Builds a stack and compares its files with the native engine's, and with what makes it different.
    fn is_its_own(&self, name: &str, stack: Stack<'_>, kind: &str) -> Result<(), String> {
        let built = self.build(name, stack).succeeded()?;
        if built["validation"]["ok"] != true {
            return Err(format!("{name} is not validated: {}", built["validation"]));
        }
        self.looks_like(&format!("{name}:1"), stack, kind)
    }

    /// Compares an image's files with the native engine's, and with what makes it different.
    fn looks_like(&self, image: &str, stack: Stack<'_>, kind: &str) -> Result<(), String> {
        let report = self.docker(&[
            "run",
            "--rm",
            "--network",
            "none",
            image,
            "python",
            "-c",
            LOOK,
        ])?;
        let report: Value = serde_json::from_str(&report).map_err(|e| format!("{e}: {report}"))?;
        let mut expected = serde_json::json!({ "six": stack.six, "mounted": stack.mounted });
        if stack.compiles {
            expected["patch"] = stack.patch.into();
            expected["variable"] = stack.variable.into();
        }
        if report["says"] != expected {
            return Err(format!(
                "{image} is another: {} and not {expected}",
                report["says"]
            ));
        }
        let files: Files = serde_json::from_value(report["files"].clone()).unwrap();
        let differ = differing(&files, self.kit.files(kind));
        if differ.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "{image} and the native engine's differ in {differ:?}"
            ))
        }
    }

    fn docker(&self, args: &[&str]) -> Result<String, String> {
        let out = self.engine.docker(args);
        if out.status.success() {
            Ok(String::from_utf8_lossy(&out.stdout).into_owned())
        } else {
            let errors = String::from_utf8_lossy(&out.stderr);
            Err(format!("docker {args:?}: {errors}"))
        }
    }

    fn has(&self, image: &str) -> bool {
        self.engine
            .docker(&["image", "inspect", image])
            .status
            .success()
    }
}

/// Paths that not both have with the same content.
fn differing<'a>(a: &'a Files, b: &'a Files) -> Vec<&'a String> {
    let mut paths: Vec<&String> = a.keys().chain(b.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    paths.retain(|path| a.get(*path) != b.get(*path));
    paths
}

/// A run of stackforge.
struct Ran {
    what: String,
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn failure(&self, what: &str) -> String {
        let (run, code) = (&self.what, self.code);
        let errors: Vec<&str> = self.stderr.lines().collect();
        let end = errors[errors.len().saturating_sub(30)..].join("\n");
        let stdout: String = self.stdout.chars().take(1500).collect();
        format!("stackforge {run}: {what}, exit {code:?}\n{stdout}\n{end}")
    }

    fn document(&self) -> Result<Value, String> {
        serde_json::from_str(&self.stdout).map_err(|e| self.failure(&e.to_string()))
    }

    fn succeeded(&self) -> Result<Value, String> {
        match self.code {
            Some(0) => self.document(),
            _ => Err(self.failure("failed")),
        }
    }

    /// Its document where it failed with `code`.
    fn failed_with(&self, exit: i32, code: &str) -> Result<Value, String> {
        let document = self.document()?;
        if self.code == Some(exit) && document["diagnostics"][0]["code"] == code {
            Ok(document)
        } else {
            Err(self.failure(&format!("{code} was expected")))
        }
    }
}

fn right(note: &str) -> Answer {
    Ok(Outcome::Right(note.to_owned()))
}

fn doctor(bench: &Bench<'_>) -> Answer {
    let dir = bench.dir.path().to_owned();
    let document = bench.ran(&dir, &["doctor", "--json"]).succeeded()?;
    if document.to_string().contains(&bench.engine.version) {
        right("")
    } else {
        Err(format!(
            "it does not name the engine's version: {document:#}"
        ))
    }
}

fn plain(bench: &Bench<'_>) -> Answer {
    bench.is_its_own("plain", bench.plain(), "plain")?;
    let labels = [
        "image",
        "inspect",
        "--format",
        "{{json .Config.Labels}}",
        "plain:1",
    ];
    let labels = bench.docker(&labels)?;
    for label in ["io.stackforge.key", "io.stackforge.base"] {
        if !labels.contains(label) {
            return Err(format!("no {label} in {labels}"));
        }
    }
    right("")
}

fn compiled(bench: &Bench<'_>) -> Answer {
    bench.is_its_own("first", bench.first(), "first")?;
    right("")
}

/// An engine that cannot build is refused, whatever is built.
fn refused(bench: &Bench<'_>) -> Answer {
    bench
        .build("plain", bench.plain())
        .failed_with(3, TOO_OLD)?;
    Ok(Outcome::Refused(TOO_OLD.to_owned()))
}

fn nothing_to_do(bench: &Bench<'_>) -> Answer {
    let id = || bench.docker(&["image", "inspect", "--format", "{{.Id}}", "plain:1"]);
    let before = id()?;
    let again = bench.build("plain", bench.plain());
    if again.succeeded()?["cached"] == true && before == id()? {
        right("")
    } else {
        Err(again.failure("it was built again"))
    }
}

fn changed_lock(bench: &Bench<'_>) -> Answer {
    changed(bench, bench.plain(), "version")
}

fn changed_file(bench: &Bench<'_>) -> Answer {
    if bench.engine.kind.is_rootless() {
        return Ok(Outcome::NotAsked);
    }
    changed(bench, bench.plain(), "file")
}

fn changed_recipe(bench: &Bench<'_>) -> Answer {
    if bench.engine.kind.is_rootless() {
        return Ok(Outcome::NotAsked);
    }
    changed(bench, bench.first(), "patch")
}

/// The compile is killed, as for lack of memory, and tried again with half the jobs. A machine with one core
/// runs one job from the start.
fn changed_variable(bench: &Bench<'_>) -> Answer {
    if bench.engine.kind.is_rootless() {
        return Ok(Outcome::NotAsked);
    }
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return changed(bench, bench.first(), "variable");
    }
    let others = bench.first().others();
    let (name, variable) = others.iter().find(|(name, _)| *name == "variable").unwrap();
    let stack = Stack {
        before: "[ $MAX_JOBS = 1 ] || kill -9 $$",
        ..*variable
    };
    let ran = bench.build(name, stack);
    ran.succeeded()?;
    if !ran.stderr.contains(r#""retry""#) {
        return Err(ran.failure("it was not tried again"));
    }
    bench.looks_like(&format!("{name}:1"), stack, name)?;
    right("")
}

fn changed(bench: &Bench<'_>, first: Stack<'_>, kind: &str) -> Answer {
    let others = first.others();
    let (name, other) = others.iter().find(|(name, _)| *name == kind).unwrap();
    bench.is_its_own(name, *other, name)?;
    right("")
}

/// Those that were built second first, with inputs that the engine has not seen.
fn other_order(bench: &Bench<'_>) -> Answer {
    if bench.engine.kind.is_rootless() || !bench.both_orders {
        return Ok(Outcome::NotAsked);
    }
    let row = format!("{}-other", bench.row);
    let plain = Stack {
        more: true,
        ..bench.plain()
    };
    let compiled = Stack {
        row: &row,
        ..bench.first()
    };
    let mut all = plain.others();
    all.push(("plain", plain));
    all.extend(compiled.others());
    all.push(("first", compiled));
    for (name, stack) in &all {
        bench.is_its_own(&format!("other-{name}"), *stack, name)?;
    }
    right("")
}

fn failing_compile(bench: &Bench<'_>) -> Answer {
    if bench.engine.kind.is_rootless() {
        return Ok(Outcome::NotAsked);
    }
    let before = "echo about to fail; exit 7";
    let stack = Stack {
        before,
        ..bench.first()
    };
    let ran = bench.build("fails", stack);
    let document = ran.failed_with(1, "SF0401")?;
    let text = document.to_string() + &ran.stderr;
    for part in [
        "compile:markupsafe",
        "exit code 7",
        "about to fail",
        "asked for here",
    ] {
        if !text.contains(part) {
            return Err(ran.failure(&format!("`{part}` is not said")));
        }
    }
    if !bench.has("fails:1") {
        right("")
    } else {
        Err("it is tagged".to_owned())
    }
}

fn failing_validation(bench: &Bench<'_>) -> Answer {
    if bench.engine.kind.is_rootless() {
        return Ok(Outcome::NotAsked);
    }
    let imports = "six, six.absent";
    let ran = bench.build(
        "invalid",
        Stack {
            imports,
            ..bench.plain()
        },
    );
    let document = ran.failed_with(1, "SF0501")?;
    if document["validation"]["ok"] != false || !ran.stderr.contains("six.absent") {
        return Err(ran.failure("there is no table"));
    }
    if !bench.has("invalid:1") {
        right("")
    } else {
        Err("it is tagged".to_owned())
    }
}

fn validate(bench: &Bench<'_>) -> Answer {
    let dir = bench.dir.path().to_owned();
    // Podman 5.4 says `stopped` of a container for as long as it cleans up: not each time.
    for _ in 0..if bench.engine.kind.is_podman() { 4 } else { 1 } {
        let ran = bench.ran(&dir, &["validate", bench.image(), "--json"]);
        if ran.succeeded()?["validation"]["ok"] != true {
            return Err(ran.failure("it is not valid"));
        }
    }
    right("")
}

fn audit(bench: &Bench<'_>) -> Answer {
    let dir = bench.dir.path().to_owned();
    bench
        .ran(
            &dir,
            &["audit", &format!("docker:{}", bench.image()), "--json"],
        )
        .succeeded()?;
    right("")
}

fn native_to_docker(bench: &Bench<'_>) -> Answer {
    let stack = Stack {
        row: FIRST.row,
        ..bench.plain()
    };
    let dir = bench.written("native", stack);
    let args = [
        "build", "s.yaml", "--json", "--engine", "native", "-o", "docker",
    ];
    let names = ["-t", "by-native:1", "-t", "local.example/by-native:2"];
    bench.ran(&dir, &[&args[..], &names].concat()).succeeded()?;
    for name in ["by-native:1", "local.example/by-native:2"] {
        let import = [
            "run",
            "--rm",
            name,
            "python",
            "-c",
            "import six; print(six.__version__)",
        ];
        if bench.docker(&import)?.trim() != stack.six {
            return Err(format!("{name} is another"));
        }
    }
    let target = "docker:by-native:1";
    bench.ran(&dir, &["audit", target, "--json"]).succeeded()?;
    let docker = || {
        let mut docker = Command::new("docker");
        docker.env("DOCKER_HOST", &bench.engine.address);
        docker
    };
    if !bench.builds() {
        return right("");
    }
    let native = exported_by(&docker, "by-native:1");
    let mut differ = unexplained(&exported_by(&docker, "plain:1"), &native);
    // A step of the Docker engine alone writes it.
    differ.retain(|path| !path.starts_with("opt/venv/mounted:"));
    if differ.is_empty() {
        right("")
    } else {
        Err(format!("the engines' images differ: {differ:#?}"))
    }
}

fn pull_to_docker(bench: &Bench<'_>) -> Answer {
    if bench.engine.kind.is_rootless() {
        return Ok(Outcome::NotAsked);
    }
    let dir = bench.dir.path().to_owned();
    let reference = format!("{}/native:1", bench.registry);
    let args = [
        "pull",
        &reference,
        "--platform",
        "linux/amd64",
        "-o",
        "docker",
        "--json",
    ];
    for _ in 0..2 {
        bench.ran(&dir, &args).succeeded()?;
        bench.docker(&["run", "--rm", &reference, "python", "-c", "import six"])?;
    }
    right("")
}

fn push(bench: &Bench<'_>) -> Answer {
    if bench.engine.kind.is_rootless() {
        return Ok(Outcome::NotAsked);
    }
    let dir = bench.dir.path().join("plain");
    let place = format!("{}/{}", bench.registry, bench.row);
    let pushed = format!("{place}:pushed");
    let args = ["push", bench.image(), &pushed, "--json"];
    bench.ran(&dir, &args).succeeded()?;
    let mut tags = vec!["pushed"];
    if bench.builds() {
        let built = format!("registry:{place}:built");
        let args = [
            "build", "s.yaml", "--json", "--engine", "docker", "-o", &built,
        ];
        bench.ran(&dir, &args).succeeded()?;
        tags.push("built");
    }
    for tag in tags {
        let remote = format!("docker://{place}:{tag}");
        let seen = crate::server::skopeo(&["inspect", "--tls-verify=false", &remote]);
        if !seen.contains("io.stackforge.key") {
            return Err(format!("{remote} is another: {seen}"));
        }
    }
    right("")
}

fn interrupted(bench: &Bench<'_>) -> Answer {
    let nap = format!("20.{}{:03}", std::process::id(), bench.row.len());
    let after = format!("echo now interruptible; sleep {nap}{}", bench.row.len());
    let stack = Stack {
        after: &after,
        more: true,
        mounted: "never",
        ..bench.plain()
    };
    let dir = bench.written("interrupted", stack);
    let args = [
        "build",
        "s.yaml",
        "-v",
        "--engine",
        "docker",
        "-t",
        "interrupted:1",
    ];
    let mut child = bench
        .stackforge(&dir, &args)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (signal, lines) = mpsc::channel();
    let stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut lines = BufReader::new(stderr);
        let mut all = String::new();
        while lines.read_line(&mut all).is_ok_and(|read| read > 0) {
            if all.ends_with("| now interruptible\n") {
                let _ = signal.send(());
            }
        }
        let _ = lines.read_to_string(&mut all);
        all
    });
    let reached = lines.recv_timeout(Duration::from_secs(120));
    let pressed = Instant::now();
    // `timeout` passes it on.
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    let code = child.wait().unwrap().code();
    let took = pressed.elapsed().as_millis();
    let output = reader.join().unwrap();
    if reached.is_err() || code != Some(130) {
        return Err(format!("exit {code:?}: {output}"));
    }
    if bench.has("interrupted:1") {
        return Err("it is tagged".to_owned());
    }
    // Of Podman it is known that the step goes on.
    let tenths = if bench.engine.kind.is_podman() {
        30
    } else {
        100
    };
    let stopped = (0..tenths).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        !runs(&after)
    });
    match (stopped, bench.engine.kind.is_podman()) {
        (true, false) => right(&format!("130 after {took} ms, step stopped")),
        (true, true) => right(&format!("130 after {took} ms, step ended")),
        // docs/engines.md says so.
        (false, true) => right(&format!("130 after {took} ms, step goes on")),
        (false, false) => Err(format!("the step goes on: {output}")),
    }
}

/// Whether a process of this machine sleeps as `after` says.
fn runs(after: &str) -> bool {
    let nap = after.rsplit(' ').next().unwrap_or(after).as_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .any(|line| line.split(|byte| *byte == 0).any(|word| word == nap))
}
