//! The real binary, run in a directory of its own, with what varies between machines
//! replaced in its output.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod daemon;
pub mod exported;
pub mod fetching;
pub mod http;
pub mod image_spec;
pub mod kept;
pub mod kill;
pub mod layers;
pub mod machines;
pub mod made;
pub mod objects;
pub mod pipelines;
pub mod process;
pub mod proxy;
pub mod published;
pub mod python;
pub mod recipe;
pub mod server;
pub mod stored;
pub mod verdict;
pub mod wanted;
pub mod wheels;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

pub struct Sandbox {
    dir: tempfile::TempDir,
}

impl Sandbox {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
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
        self.command_of(env!("CARGO_BIN_EXE_stackforge"))
    }

    /// Another program that runs the real binary.
    pub fn command_of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.dir.path())
            .env("STACKFORGE_STORE", self.path("store"))
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
        let out = command.output().unwrap();
        let text = |b: &[u8]| {
            String::from_utf8_lossy(b).replace(&self.dir.path().display().to_string(), "[DIR]")
        };
        Run {
            code: out.status.code().unwrap_or(-1),
            stdout: text(&out.stdout),
            stderr: text(&out.stderr),
        }
    }
}

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
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
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

/// Removes, when dropped, the images of `names` and every base image that was not in the
/// engine before.
pub struct CleanUp {
    names: Vec<String>,
}

/// How many tests of this process build now, and the base images from before the first.
static BUILDING: Mutex<(usize, Vec<String>)> = Mutex::new((0, Vec::new()));

impl CleanUp {
    pub fn of(names: &[&str]) -> Self {
        let mut building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        if building.0 == 0 {
            building.1 = images("stackforge/base");
        }
        building.0 += 1;
        Self {
            names: names.iter().map(|n| (*n).to_owned()).collect(),
        }
    }
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        let mut building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        building.0 -= 1;
        let mut gone: Vec<String> = self.names.iter().flat_map(|n| images(n)).collect();
        // A base is there for all: while another test builds, it may be what that one builds on.
        if building.0 == 0 {
            let bases = images("stackforge/base");
            gone.extend(bases.into_iter().filter(|i| !building.1.contains(i)));
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
