//! The stacks that every engine builds, their locks, and what the native engine makes of them.
//!
//! Each is two or three small wheels on a bootstrapped Debian, with a library that is compiled in seconds
//! or without. They differ in one thing: a pinned version, the patch of a recipe, a variable of the
//! compile, a file that a step mounts.

use serde_json::Value;
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Sandbox, project};

/// One stack. Those of different `row`s share no step that installs or compiles.
#[derive(Clone, Copy)]
pub struct Stack<'a> {
    pub six: &'a str,
    /// What the recipe's patch says.
    pub patch: &'a str,
    /// What the compile's variable says.
    pub variable: &'a str,
    /// What a step writes that a template of the user's own mounts.
    pub mounted: &'a str,
    /// Whether markupsafe is in it, compiled.
    pub compiles: bool,
    /// One more library, so that no layer of wheels is that of the stack without.
    pub more: bool,
    pub row: &'a str,
    /// Modules that have to import.
    pub imports: &'a str,
    /// A command of markupsafe's compile, before all others.
    pub before: &'a str,
    /// A command that the last step of an installation runs.
    pub after: &'a str,
}

pub const FIRST: Stack<'_> = Stack {
    six: "1.17.0",
    patch: "one",
    variable: "one",
    mounted: "one",
    compiles: true,
    more: false,
    row: "native",
    imports: "six",
    before: ":",
    after: ":",
};

impl<'a> Stack<'a> {
    /// Those that differ from this one in one thing.
    pub fn others(self) -> Vec<(&'static str, Stack<'a>)> {
        if self.compiles {
            vec![
                (
                    "patch",
                    Stack {
                        patch: "two",
                        ..self
                    },
                ),
                (
                    "variable",
                    Stack {
                        variable: "two",
                        ..self
                    },
                ),
            ]
        } else {
            vec![
                (
                    "version",
                    Stack {
                        six: "1.16.0",
                        ..self
                    },
                ),
                (
                    "file",
                    Stack {
                        mounted: "two",
                        ..self
                    },
                ),
            ]
        }
    }
}

impl Stack<'_> {
    /// Of a stack's name and its lock: what the lock depends on.
    fn locked(&self) -> String {
        let compiles = if self.compiles { "compiled" } else { "plain" };
        let more = if self.more { "-more" } else { "" };
        format!("{compiles}{more}-{}", self.six)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "stack: stackforge-test-{}\nbase: debian-bookworm\n\
             target: {{ platform: linux/amd64, gpu: [h100] }}\npython: \"3.11\"\njit: false\n\
             bytecode: {}\nlibraries:\n  six: \"{}\"\n",
            self.locked().replace('.', "-"),
            !self.compiles,
            self.six
        );
        if self.compiles {
            text += &format!(
                "  markupsafe: {{ version: \"3.0.3\", from: source, env: {{ ROW: \"{}\", MARK: {} }} }}\n",
                self.row, self.variable
            );
        }
        if self.more {
            text += "  packaging: \"25.0\"\n";
        }
        text
    }

    fn recipe(&self) -> String {
        format!(
            "schema: 1
library: markupsafe
distribution: markupsafe
about: test
imports: [markupsafe, markupsafe._speedups]
wheels: index
sources: [test]
build:
  source: sdist
  requires: [setuptools, wheel]
  jobs: {{ variable: MAX_JOBS, memory_gb: 0.1, source: test }}
  metadata: {{ \"*\": {{ requires_python: \">=3.9\", requires_dist: [] }} }}
  patches:
    - id: mark
      file: src/markupsafe/__init__.py
      replace: from __future__ import annotations
      with: \"from __future__ import annotations\\n\\nPATCH = '{}'\"
      why: test
      source: test
  commands:
    - '{}'
    - echo \"VARIABLE = '$MARK'\" >> src/markupsafe/__init__.py
    - /opt/venv/bin/python setup.py -q bdist_wheel -d /opt/wheels
",
            self.patch, self.before
        )
    }

    /// Writes `s.yaml`, its lock if `locks` has it, and the recipes and templates over the catalog's own.
    pub fn write(&self, dir: &Path, locks: &Locks) {
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("s.yaml", &self.text());
        if let Some(lock) = locks.0.get(&self.locked()) {
            write("s.lock", lock);
        }
        let six = format!(
            "schema: 1\nlibrary: six\ndistribution: six\nabout: test\nimports: [{}]\nwheels: index\nsources: [test]\n",
            self.imports
        );
        write(".stackforge/libraries/six.yaml", &six);
        write(".stackforge/libraries/markupsafe.yaml", &self.recipe());
        let own = std::fs::read_to_string(project("templates/steps/forget.sh")).unwrap();
        let own = format!(
            "{own}# {}\necho {} > /opt/venv/mounted\n{}\n",
            self.row, self.mounted, self.after
        );
        write(".stackforge/templates/steps/forget.sh", &own);
    }
}

/// Texts of the locks, by what they depend on.
#[derive(Default)]
pub struct Locks(BTreeMap<String, String>);

/// Digests of the files below site-packages, by path.
pub type Files = BTreeMap<String, String>;

/// All that rows share: locks, a store with what was fetched, and what the native engine made.
pub struct Kit {
    sandbox: Sandbox,
    /// A store that stays between runs, where the user has a cache.
    store: PathBuf,
    pub locks: Locks,
    native: BTreeMap<&'static str, Files>,
    /// A layout of the first stack without a compile.
    pub layout: PathBuf,
}

impl Kit {
    pub fn new() -> Self {
        let sandbox = Sandbox::new();
        let plain = Stack {
            compiles: false,
            ..FIRST
        };
        let kept = crate::roots::cache().map(|cache| cache.join("store"));
        let store = kept.unwrap_or_else(|_| sandbox.path("store"));
        let mut locks = Locks::default();
        let (_, newer) = &plain.others()[0];
        for stack in [FIRST, plain, *newer] {
            locks.add(&sandbox, stack);
        }
        for stack in [plain, *newer] {
            locks.add(
                &sandbox,
                Stack {
                    more: true,
                    ..stack
                },
            );
        }
        let mut kit = Self {
            sandbox,
            store,
            locks,
            native: BTreeMap::new(),
            layout: PathBuf::new(),
        };
        for (first, stack) in [("first", FIRST), ("plain", plain)] {
            for (name, stack) in [(first, stack)].into_iter().chain(stack.others()) {
                // What a step of the Docker engine alone mounts changes nothing here.
                if name != "file" {
                    let layout = kit.make(name, stack);
                    kit.native.insert(name, files(&layout));
                    if name == "plain" {
                        kit.layout = layout;
                    }
                }
            }
        }
        kit
    }

    /// What a stack's site-packages have to hold; `name` is that of [`Stack::others`], `first` or `plain`.
    pub fn files(&self, name: &str) -> &Files {
        self.native.get(name).unwrap_or(&self.native["plain"])
    }

    /// A program that runs stackforge with the store of all rows.
    pub fn command_of(&self, program: &str) -> Command {
        let mut command = self.sandbox.command_of(program);
        command.env("STACKFORGE_STORE", &self.store);
        command
    }

    /// Builds a stack by the native engine; its layout.
    fn make(&self, name: &str, stack: Stack<'_>) -> PathBuf {
        let dir = self.sandbox.path(name);
        stack.write(&dir, &self.locks);
        let mut build = self.command_of(env!("CARGO_BIN_EXE_stackforge"));
        build.current_dir(&dir);
        build.args(["build", "s.yaml", "--engine", "native", "-t", "native:1"]);
        build.args(["-o", "oci:layout"]);
        succeeds(&mut build);
        dir.join("layout")
    }
}

impl Locks {
    fn add(&mut self, sandbox: &Sandbox, stack: Stack<'_>) {
        let dir = sandbox.path(&stack.locked());
        stack.write(&dir, &Locks::default());
        let mut lock = sandbox.command();
        succeeds(lock.current_dir(&dir).args(["lock", "s.yaml"]));
        let lock = std::fs::read_to_string(dir.join("s.lock")).unwrap();
        self.0.insert(stack.locked(), lock);
    }
}

fn succeeds(command: &mut Command) {
    let out = command.output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {errors}");
}

/// What the installers write each in their own way, and what is made at run time.
const OWN: [&str; 5] = [
    "INSTALLER",
    "RECORD",
    "REQUESTED",
    "direct_url.json",
    ".pyc",
];

/// Files of site-packages in the layers of a layout's only image.
fn files(layout: &Path) -> Files {
    let read = |digest: &str| {
        let blob = digest.strip_prefix("sha256:").unwrap();
        std::fs::read(layout.join("blobs/sha256").join(blob)).unwrap()
    };
    let parse = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
    let index = parse(&std::fs::read(layout.join("index.json")).unwrap());
    let manifest = parse(&read(index["manifests"][0]["digest"].as_str().unwrap()));
    let mut files = Files::new();
    for layer in manifest["layers"].as_array().unwrap() {
        let bytes = read(layer["digest"].as_str().unwrap());
        let tar = flate2::read::MultiGzDecoder::new(bytes.as_slice());
        for member in tar::Archive::new(tar).entries().unwrap() {
            let mut member = member.unwrap();
            let path = member.path().unwrap().display().to_string();
            let path = path.trim_start_matches("./");
            let name = path.strip_prefix("opt/venv/lib/python3.11/site-packages/");
            let Some(name) = name.filter(|name| !OWN.iter().any(|own| name.ends_with(own))) else {
                continue;
            };
            if member.header().entry_type().is_file() {
                let mut content = Vec::new();
                member.read_to_end(&mut content).unwrap();
                let digest = Digest::of(&content).to_string();
                files.insert(name.to_owned(), digest.replace("sha256:", ""));
            }
        }
    }
    files
}

/// Prints, as JSON, what [`files`] reads, and what the four things that may differ say.
pub const LOOK: &str = "
import hashlib, json, os, sys
root = '/opt/venv/lib/python3.11/site-packages'
own = ('INSTALLER', 'RECORD', 'REQUESTED', 'direct_url.json', '.pyc')
files = {}
for dir, _, names in os.walk(root):
    for name in names:
        path = os.path.join(dir, name)
        short = os.path.relpath(path, root)
        if not short.endswith(own) and not short.startswith('packaging'):
            files[short] = hashlib.sha256(open(path, 'rb').read()).hexdigest()
import six
says = {'six': six.__version__, 'mounted': open('/opt/venv/mounted').read().strip()}
try:
    import markupsafe, markupsafe._speedups
    says |= {'patch': markupsafe.PATCH, 'variable': markupsafe.VARIABLE}
except ImportError:
    pass
print(json.dumps({'files': files, 'says': says}))
";
