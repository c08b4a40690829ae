//! A native `build` over a base that is there, killed at its system calls: the next one gives the same
//! image. Needs the network once, for the packages and wheels of `examples/tiny.lock`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use support::kill::{self, End};
use support::{self, Sandbox, kept};

/// Folders of a store whose entries are blobs, steps, names and trees.
const FOLDERS: [&str; 6] = [
    "actions",
    "blobs/sha256",
    "last",
    "names",
    "unpacked",
    "verified",
];

/// A store with the base, its byte code, packages and wheels. Nothing else of the image is in it.
struct Stage {
    sandbox: Sandbox,
    warm: BTreeSet<PathBuf>,
    digest: String,
}

impl Stage {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        for file in ["tiny.yaml", "tiny.lock"] {
            fs::copy(support::project("examples").join(file), sandbox.path(file)).unwrap();
        }
        let digest = built(&mut build(&sandbox, &[]));
        let stage = Self {
            warm: warm(&sandbox),
            sandbox,
            digest,
        };
        stage.cool();
        stage
    }

    /// Removes what a build made of the packages and wheels.
    fn cool(&self) {
        for path in entries(&self.sandbox) {
            if self.warm.contains(&path) {
                continue;
            }
            let removed = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.unwrap();
        }
        fs::remove_file(self.sandbox.path("store/index.json")).unwrap();
        fs::remove_dir_all(self.sandbox.path("layout")).unwrap();
    }

    fn killed(&self, at: Option<usize>) -> End {
        let mut command = build(&self.sandbox, &["--offline"]);
        kill::run(command.stdout(Stdio::null()).stderr(Stdio::null()), at)
    }

    /// The image is the one of a build that nobody killed, in the store and in the layout.
    fn ended(&self, case: &str) {
        let layout = self.sandbox.path("layout");
        let index = fs::read(layout.join("index.json")).unwrap();
        let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
        assert_eq!(index["manifests"][0]["digest"], *self.digest, "{case}");
        for blob in fs::read_dir(layout.join("blobs/sha256")).unwrap() {
            let blob = blob.unwrap();
            let found = stackforge_types::Digest::of(&fs::read(blob.path()).unwrap());
            assert_eq!(*found.hex(), *blob.file_name(), "{case}");
        }
        assert_eq!(kept::temporary(&layout), Vec::<PathBuf>::new(), "{case}");
        kept::right(&self.sandbox, case);
        kept::swept(&self.sandbox, case);
    }
}

fn build(sandbox: &Sandbox, more: &[&str]) -> Command {
    let mut command = sandbox.command();
    command.args(["build", "tiny.yaml", "--json", "--engine", "native"]);
    command.args(["-o", "oci:layout"]).args(more);
    command
}

/// The digest of the image.
fn built(command: &mut Command) -> String {
    let run = command.output().unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{errors}");
    let document: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    document["image"]["id"].as_str().unwrap().to_owned()
}

fn entries(sandbox: &Sandbox) -> Vec<PathBuf> {
    let list = |folder: &str| {
        let entries = fs::read_dir(sandbox.path("store").join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    FOLDERS.iter().copied().flat_map(list).collect()
}

/// What stays of a store: steps that made the base and its byte code, what they name, and files with names.
fn warm(sandbox: &Sandbox) -> BTreeSet<PathBuf> {
    let store = sandbox.path("store");
    let mut steps = BTreeSet::new();
    let mut output = String::new();
    for entry in fs::read_dir(store.join("actions")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        // Byte code of the base's Python takes longer to make than all else.
        let of_base = ["base", "bytecode:python3.11"];
        if of_base
            .iter()
            .any(|id| text.contains(&format!("\"step\": \"{id}\"")))
        {
            output.push_str(&text);
            steps.insert(path);
        }
    }
    assert!(!steps.is_empty(), "the base is a step");
    let stays = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        steps.contains(path) || output.contains(name) || store.join("names").join(name).exists()
    };
    let mut all = entries(sandbox);
    all.retain(stays);
    all.into_iter().collect()
}

#[test]
fn a_build_comes_to_the_same_image_from_each_call() {
    if !support::has_turn("native builds that are killed at system calls", 1, 2) {
        return;
    }
    let stage = Stage::new();
    let End::Ended(0, calls) = stage.killed(None) else {
        panic!("it builds");
    };
    stage.ended("no kill");
    let places = kill::points(calls.len(), 12);
    let mut half = 0;
    for at in &places {
        stage.cool();
        let end = stage.killed(Some(*at));
        let case = format!("killed at call {at}, {end:?}");
        kept::right(&stage.sandbox, &case);
        half += usize::from(!stage.sandbox.path("layout/index.json").exists());
        let digest = built(&mut build(&stage.sandbox, &["--offline"]));
        assert_eq!(digest, stage.digest, "{case}");
        stage.ended(&case);
    }
    let (calls, places) = (calls.len(), places.len());
    println!("{calls} calls, killed at {places}, {half} of them without an image");
    assert!(half > 0, "no kill before the end");
}
