//! The real binary, run in a directory of its own, with what varies between machines
//! replaced in its output.

pub mod daemon;
pub mod deployed;
pub mod exported;
pub mod fetching;
pub mod http;
pub mod image_spec;
pub mod kept;
pub mod kill;
pub mod layers;
pub mod machines;
pub mod made;
pub mod pipelines;
pub mod process;
pub mod proxy;
pub mod published;
pub mod python;
pub mod recipe;
pub mod runnable;
pub mod schemas;
pub mod server;
pub mod shared;
pub mod stored;
pub mod verdict;
pub mod wanted;
pub mod warm;
pub mod wheels;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

pub struct Sandbox {
    dir: tempfile::TempDir,
    /// Temporary files of what runs in it, some of which is killed.
    temporary: tempfile::TempDir,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            temporary: tempfile::tempdir().unwrap(),
        }
    }
}

impl Sandbox {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A shell program in a folder; a PATH that has it first.
    pub fn program(&self, folder: &str, name: &str, script: &str) -> std::ffi::OsString {
        use std::os::unix::fs::PermissionsExt as _;
        self.write(
            &format!("{folder}/{name}"),
            &format!("#!/bin/sh\n{script}\n"),
        );
        let path = self.path(folder).join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut all = vec![self.path(folder)];
        all.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        std::env::join_paths(all).unwrap()
    }

    pub fn command(&self) -> Command {
        self.command_of(program())
    }

    /// Another program that runs the real binary.
    pub fn command_of(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.dir.path())
            .env("STACKFORGE_STORE", self.path("store"))
            .env("TMPDIR", self.temporary.path())
            .env("NO_COLOR", "1")
            .env_remove("STACKFORGE_LOG");
        command
    }

    pub fn run(&self, args: &[&str]) -> Run {
        self.run_with(args, &[])
    }

    pub fn run_with(&self, args: &[&str], env: &[(&str, &str)]) -> Run {
        let mut command = self.command();
        command.args(args).envs(env.iter().copied());
        let start = Instant::now();
        let out = command.output().unwrap();
        eprintln!("{:.1} s: {}", start.elapsed().as_secs_f64(), args.join(" "));
        let text = |b: &[u8]| {
            String::from_utf8_lossy(b).replace(&self.dir.path().display().to_string(), "[DIR]")
        };
        let run = Run {
            code: out.status.code().unwrap_or(-1),
            stdout: text(&out.stdout),
            stderr: text(&out.stderr),
        };
        schemas::check(args, &run.stdout, &run.stderr);
        run
    }
}

/// A test that fails shows how the newest logs of steps end: they are gone with the folder.
impl Drop for Sandbox {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let logs = std::fs::read_dir(self.path("store/logs"));
        let mut logs: Vec<PathBuf> = logs
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .collect();
        logs.sort_by_key(|log| std::fs::metadata(log).and_then(|m| m.modified()).ok());
        for log in logs.iter().rev().take(3) {
            let bytes = std::fs::read(log).unwrap_or_default();
            let end = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(2000)..]);
            eprintln!("end of {}:\n{end}", log.display());
        }
    }
}

/// Says what this machine lets a test leave out. `scripts/test.sh` lists it at the end.
pub fn left_out(what: &str) {
    eprintln!("left out: {what}");
    if let Some(list) = std::env::var_os("STACKFORGE_TEST_LEFT_OUT") {
        let mut list = File::options().append(true).open(list).unwrap();
        writeln!(list, "{what}").unwrap();
    }
}

/// Returns the number of days since 1970, by which slow tests take turns. A program that runs past midnight keeps it.
pub fn today() -> u64 {
    static DAY: LazyLock<u64> = LazyLock::new(|| {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since_1970.as_secs() / 86_400
    });
    *DAY
}

/// Set, and not empty, each test does all that it can.
const ALL: &str = "STACKFORGE_TEST_ALL";

/// Whether tests that take turns all run today.
pub fn all_have_turns() -> bool {
    std::env::var_os(ALL).is_some_and(|value| !value.is_empty())
}

/// Whether it is the turn of what takes much time, on day `turn` of `turns`; else says that it is left out.
pub fn has_turn(what: &str, turn: u64, turns: u64) -> bool {
    assert!(turn < turns);
    let now = all_have_turns() || today() % turns == turn;
    if !now {
        left_out(&format!("{what}: {NOT_TODAY}"));
    }
    now
}

/// Why something is left out that has a turn.
pub const NOT_TODAY: &str = "its turn is another day, or with STACKFORGE_TEST_ALL set";

/// The JSON that a command printed.
pub fn document(run: &Run) -> serde_json::Value {
    serde_json::from_str(&run.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", run.stdout, run.stderr))
}

/// The smallest stack and its lock.
pub fn tiny() -> Sandbox {
    let sandbox = Sandbox::new();
    for name in ["tiny.yaml", "tiny.lock"] {
        let text = std::fs::read_to_string(project(&format!("examples/{name}"))).unwrap();
        sandbox.write(name, &text);
    }
    sandbox
}

/// The SBOM of a stack.
pub fn sbom(sandbox: &Sandbox, stack: &Path, more: &[&str]) -> String {
    let path = stack.display().to_string();
    let run = sandbox.run(&[&["sbom", &path], more].concat());
    assert_eq!(run.code, 0, "{path}: {}", run.stderr);
    run.stdout
}

/// A file of the project.
pub fn project(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.unwrap().join(path)
}

/// The program, which cargo builds before the tests that run it.
pub fn program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| profile_directory().join("stackforge"));
    &PROGRAM
}

/// The directory, below the target directory, of what tests keep from run to run.
pub fn target_tmp() -> &'static Path {
    static KEPT: LazyLock<PathBuf> = LazyLock::new(|| {
        let kept = profile_directory().parent().unwrap().join("tmp");
        std::fs::create_dir_all(&kept).unwrap();
        kept
    });
    &KEPT
}

/// The folder of the profile that this test was built with: the test itself lies in its `deps`.
fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
}

/// Markdown pages below a folder of the project.
pub fn markdown_files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![project(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// YAML files of a folder of the project.
pub fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(project(folder))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    files
}

/// Removes, when dropped, the images of `names`, and every image of a base or a builder that was not in the
/// engine before.
pub struct CleanUp {
    names: Vec<String>,
    /// Held shared while a test builds. Its text is what was there before the first.
    building: File,
}

/// Repositories of the images that builds share.
const SHARED: [&str; 3] = [
    "stackforge/base",
    "stackforge/build",
    "stackforge/environment",
];

impl CleanUp {
    pub fn of(names: &[&str]) -> Self {
        // Between the two locks of one process another may begin or end.
        let _turn = shared::alone("docker-turn");
        let mut building = shared::open("docker-builds");
        if building.try_lock().is_ok() {
            let before: Vec<String> = SHARED.iter().flat_map(|n| images(n)).collect();
            building.set_len(0).unwrap();
            building.write_all(before.join("\n").as_bytes()).unwrap();
            building.unlock().unwrap();
        }
        building.lock_shared().unwrap();
        Self {
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            building,
        }
    }
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        let _turn = shared::alone("docker-turn");
        let mut gone: Vec<String> = self.names.iter().flat_map(|n| images(n)).collect();
        // These are there for all: while another test builds, one may be what that test builds on. An engine that is
        // the tests' own (scripts/test-engine.sh) keeps them until it goes.
        self.building.unlock().unwrap();
        let own = std::env::var_os("STACKFORGE_TEST_ENGINE").is_some();
        if !own && self.building.try_lock().is_ok() {
            let mut before = String::new();
            self.building.rewind().unwrap();
            self.building.read_to_string(&mut before).unwrap();
            let now = SHARED.iter().flat_map(|n| images(n));
            gone.extend(now.filter(|image| !before.lines().any(|line| line == image)));
        }
        for image in gone {
            let _ = Command::new("docker").args(["rmi", "-f", &image]).output();
        }
    }
}

/// Takes a name from an image of the engine.
pub fn remove(image: &str) {
    let _ = Command::new("docker").args(["rmi", "-f", image]).output();
}

/// References of the engine's images with this repository.
fn images(repository: &str) -> Vec<String> {
    let out = Command::new("docker")
        .args(["images", "--format", "{{.Repository}}:{{.Tag}}", repository])
        .output();
    let text = out.map(|o| o.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .map(str::to_owned)
        .collect()
}
