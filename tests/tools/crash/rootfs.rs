//! `pull -o rootfs:DIR` of an image over another one, killed at its system calls.

use super::kill::{self, End};
use super::layers::Member::{self, File, Folder, Link};
use super::layers::{MARKER, image, tree};
use super::server::{Kind, Server};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use support::Sandbox;

/// A layer of all images, whose files an update takes from the trees before.
const SHARED: &[Member] = &[Folder("bin"), File("bin/one", "1"), File("bin/two", "2")];
const OLDEST: &[&[Member]] = &[SHARED, &[File("version", "oldest")]];
const BEFORE: &[&[Member]] = &[
    SHARED,
    &[Folder("etc"), File("etc/of", "before"), Link("lib", "etc")],
    &[File("version", "before")],
];
const AFTER: &[&[Member]] = &[
    SHARED,
    &[Folder("usr"), File("usr/of", "after")],
    &[
        Folder("etc"),
        File("version", "after"),
        File("etc/more", "after"),
    ],
];

/// Images in a registry, and a directory with a store and `root`.
struct Stage {
    server: Server,
    base: Sandbox,
    /// Images that each copy of the base pulls, in this order: a copied file is another one than was recorded.
    pulled: &'static [&'static str],
}

impl Stage {
    fn new() -> Self {
        let stage = Self {
            server: Server::start(Kind::Open),
            base: Sandbox::new(),
            pulled: &[],
        };
        for (name, layers) in [("oldest", OLDEST), ("before", BEFORE), ("after", AFTER)] {
            image(&stage.base.path(&format!("images/{name}")), layers);
            let source = format!("oci:images/{name}:v1");
            stage.well(&stage.base, &["push", &source, &stage.place(name)]);
        }
        stage
    }

    fn place(&self, name: &str) -> String {
        format!("{}/app:{name}", self.server.host)
    }

    fn well(&self, sandbox: &Sandbox, args: &[&str]) {
        let run = sandbox.run(args);
        assert_eq!(run.code, 0, "{args:?}: {}{}", run.stdout, run.stderr);
    }

    fn pull(&self, sandbox: &Sandbox, name: &str) {
        let place = self.place(name);
        let args = ["pull", &place, "--platform", "linux/amd64"];
        self.well(sandbox, &[&args[..], &["-o", "rootfs:root"]].concat());
    }

    /// Pulls the image `after` in a copy of the base, up to the call `at`.
    fn killed(&self, at: Option<usize>) -> (Sandbox, End) {
        let copy = Sandbox::new();
        let copied = Command::new("cp")
            .arg("-a")
            .arg(self.base.path("."))
            .arg(copy.path("."))
            .status();
        assert!(copied.unwrap().success());
        // The file of an earlier version was written after the directories were made, of the copy as well.
        let earlier = copy.path(".root.stackforge.json");
        if let Ok(file) = std::fs::File::options().append(true).open(earlier) {
            file.set_modified(std::time::SystemTime::now()).unwrap();
        }
        for image in self.pulled {
            self.pull(&copy, image);
        }
        let mut command = copy.command();
        command.args(["pull", &self.place("after"), "--platform", "linux/amd64"]);
        command.args(["-o", "rootfs:root"]);
        let end = kill::run(command.stdout(Stdio::null()).stderr(Stdio::null()), at);
        (copy, end)
    }

    /// Kills a pull over `before` at some calls. Whatever it had done: the directory is one of the two images,
    /// the next pull ends what was begun, and the one after that goes back.
    /// Returns the calls of a pull that is not killed.
    fn kills(
        &self,
        few: usize,
        before: Option<&[&[Member]]>,
        slot: Option<&[&[Member]]>,
    ) -> Vec<&'static str> {
        let (whole, end) = self.killed(None);
        let End::Ended(0, calls) = end else {
            panic!("{end:?}");
        };
        self.ended(&whole, "no kill", slot);
        // All is on disk before the new image gets its name. Beside that sync only the record is written, which gets
        // its own name once it is synced.
        let synced = calls.iter().rposition(|call| *call == "syncfs");
        let mut after = calls[synced.expect("the new files are synced")..].iter();
        if after.any(|call| *call == "write") {
            let saved = after.find(|call| ["renameat", "write"].contains(call));
            assert_eq!(saved, Some(&"renameat"), "{calls:?}");
            assert!(!after.any(|call| *call == "write"), "{calls:?}");
        }
        let places = kill::points(calls.len(), few);
        let (mut old, mut new) = (0, 0);
        for at in &places {
            let (copy, end) = self.killed(Some(*at));
            let case = format!("killed at call {at}, {end:?}");
            let current = copy.path("root").exists().then(|| tree(&copy.path("root")));
            if current.as_deref() == before.map(listed).as_deref() {
                old += 1;
            } else {
                assert_eq!(current, Some(listed(AFTER)), "{case}");
                new += 1;
            }
            for (name, path) in entries(&copy) {
                let mode = path.symlink_metadata().unwrap().permissions().mode();
                assert!(
                    !name.contains(".new-") || mode & 0o7777 == 0o700,
                    "{case}: {name} {mode:o}"
                );
            }
            self.pull(&copy, "after");
            self.ended(&copy, &case, slot);
            self.well(&copy, &["cache", "verify"]);
            self.pull(&copy, "before");
            assert_eq!(tree(&copy.path("root")), listed(BEFORE), "{case}");
            assert_eq!(tree(&copy.path("root~1")), listed(AFTER), "{case}");
        }
        println!(
            "{} calls, killed at {}: {old} old, {new} new",
            calls.len(),
            places.len()
        );
        assert!(old > 0, "no kill before the exchange");
        calls
    }

    /// The image is there, those before have their names, and nothing else is beside it.
    fn ended(&self, sandbox: &Sandbox, case: &str, slot: Option<&[&[Member]]>) {
        assert_eq!(tree(&sandbox.path("root")), listed(AFTER), "{case}");
        let mut expected = vec![".root.lock", "images", "root", "store"];
        if let Some(slot) = slot {
            assert_eq!(tree(&sandbox.path("root~1")), listed(slot), "{case}");
            expected.insert(3, "root~1");
        }
        let names: Vec<String> = entries(sandbox).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected, "{case}");
    }
}

fn entries(sandbox: &Sandbox) -> Vec<(String, std::path::PathBuf)> {
    let entries = std::fs::read_dir(sandbox.path(".")).unwrap();
    let entry = |e: std::io::Result<std::fs::DirEntry>| {
        let e = e.unwrap();
        (e.file_name().into_string().unwrap(), e.path())
    };
    let mut all: Vec<_> = entries.map(entry).collect();
    all.sort();
    all
}

/// What `tree` shows of layers that hide nothing of each other.
fn listed(layers: &[&[Member]]) -> Vec<String> {
    let mut all = Vec::new();
    for member in layers.iter().copied().flatten() {
        all.push(match member {
            File(path, text) => format!("{path} = {text}"),
            Folder(path) => format!("{path}/"),
            Link(path, to) => format!("{path} -> {to}"),
            Member::Gone(path) | Member::Program(path, _) | Member::SetUid(path, _) => {
                panic!("{path} is not listed")
            }
        });
        if let File(path, _) = member
            && let Some((folder, _)) = path.rsplit_once('/')
        {
            all.push(format!("{folder}/"));
        }
    }
    all.sort();
    all.dedup();
    all
}

#[test]
fn an_image_over_another_is_one_of_both_at_each_call() {
    let mut stage = Stage::new();
    stage.pulled = &["oldest", "before"];
    let calls = stage.kills(40, Some(BEFORE), Some(BEFORE));
    // The oldest image goes, so its files move; a file system that shares blocks clones the others.
    let moved = calls.iter().filter(|call| **call == "renameat").count();
    assert!(moved >= 2, "{calls:?}");
}

#[test]
fn a_first_image_is_whole_or_not_there_at_each_call() {
    let stage = Stage::new();
    stage.kills(12, None, None);
}

#[test]
fn what_an_earlier_version_wrote_is_taken_over_at_each_call() {
    let stage = Stage::new();
    stage.pull(&stage.base, "oldest");
    stage.pull(&stage.base, "before");
    // Its marker lay beside the directory.
    let marker = stage.base.path(&format!("root/{MARKER}"));
    std::fs::copy(&marker, stage.base.path(".root.stackforge.json")).unwrap();
    for root in ["root", "root~1"] {
        std::fs::remove_file(stage.base.path(root).join(MARKER)).unwrap();
    }
    std::fs::remove_file(stage.base.path(".root.lock")).unwrap();
    stage.kills(12, Some(BEFORE), Some(BEFORE));
}
