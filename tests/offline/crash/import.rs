//! `cache import`, killed at its system calls: what came is right, and the next import brings the rest.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use stackforge_image::store::{Action, Store};
use stackforge_types::Digest;

use super::kept;
use super::kill::{self, End};
use super::layers::{Member, image};
use support::Sandbox;

const ONE: &[&[Member]] = &[&[Member::File("version", "one")]];
const TWO: &[&[Member]] = &[
    &[Member::File("version", "one")],
    &[Member::File("more", "two")],
];

fn well(sandbox: &Sandbox, args: &[&str]) {
    let run = sandbox.run(args);
    assert_eq!(run.code, 0, "{args:?}: {}{}", run.stdout, run.stderr);
}

/// A wheel with a name, and a step that gave it.
fn step(store: &Store, name: &str) {
    let wheel = store.put(name.repeat(100_000).as_bytes(), None).unwrap();
    store.named(&wheel.digest, name).unwrap();
    let action = Action {
        step: format!("compile:{name}"),
        outputs: [("wheel".to_owned(), wheel.digest)].into(),
        seconds: 1.0,
        ..Action::default()
    };
    store.record(&Digest::of(name.as_bytes()), &action).unwrap();
}

/// A signed export as a directory and as an archive; and with `part` a store that has some of it.
fn stage(part: bool) -> Sandbox {
    let sandbox = Sandbox::new();
    well(&sandbox, &["sign", "--generate-key", "team"]);
    let fill = |images: &[(&str, &[&[Member]])], wheels: &[&str]| {
        for (name, layers) in images {
            image(&sandbox.path(&format!("images/{name}")), layers);
            // A layout that is imported has its images' names.
            well(&sandbox, &["cache", "import", &format!("images/{name}")]);
        }
        let store = Store::open(Some(&sandbox.path("store"))).unwrap();
        wheels.iter().for_each(|name| step(&store, name));
    };
    fill(&[("one", ONE)], &["a-1-py3-none-any.whl"]);
    let before = sandbox.path("before");
    if part {
        copy(&sandbox.path("store"), &before);
    }
    fill(&[("two", TWO)], &["b-1-py3-none-any.whl"]);
    for to in ["export.tar", "export/"] {
        well(&sandbox, &["cache", "export", to, "--key", "team.key"]);
    }
    std::fs::remove_dir_all(sandbox.path("store")).unwrap();
    if part {
        std::fs::rename(before, sandbox.path("store")).unwrap();
    }
    sandbox
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.unwrap().success());
}

/// An import in a copy of the stage, up to the call `at`.
fn killed(stage: &Sandbox, from: &str, at: Option<usize>) -> (Sandbox, End) {
    let sandbox = Sandbox::new();
    copy(&stage.path("."), &sandbox.path("."));
    let mut command = sandbox.command();
    command.args(["cache", "import", from, "--verify", "team.pub"]);
    let end = kill::run(command.stdout(Stdio::null()).stderr(Stdio::null()), at);
    (sandbox, end)
}

/// What a store holds: blobs, steps, names and images, each with its content. Temporary files wait for
/// `cache gc`.
fn content(sandbox: &Sandbox) -> BTreeSet<String> {
    let store = sandbox.path("store");
    let mut all = BTreeSet::new();
    for path in kept::files(&store) {
        let inside = path.strip_prefix(&store).unwrap().display().to_string();
        let kinds = ["blobs", "actions", "names", "index"];
        let is = kinds.iter().any(|kind| inside.starts_with(kind)) && !inside.contains("/.tmp-");
        if is && path.is_file() {
            let digest = Digest::of(&std::fs::read(&path).unwrap());
            all.insert(format!("{inside} {}", digest.short()));
        }
    }
    all
}

fn kills(stage: &Sandbox, from: &str) {
    let (whole, end) = killed(stage, from, None);
    let End::Ended(0, calls) = end else {
        panic!("{end:?}");
    };
    let expected = content(&whole);
    let same = |sandbox: &Sandbox, case: &str| {
        let found = content(sandbox);
        let differ: Vec<_> = expected.symmetric_difference(&found).collect();
        assert!(differ.is_empty(), "{case}: {differ:#?}");
    };
    let have = |folder: &str| expected.iter().filter(|p| p.starts_with(folder)).count();
    assert_eq!((have("actions"), have("names")), (2, 2), "{expected:#?}");
    let places = kill::points(calls.len(), 12);
    let mut half = 0;
    for at in &places {
        let (sandbox, end) = killed(stage, from, Some(*at));
        let case = format!("{from} killed at call {at}, {end:?}");
        kept::right(&sandbox, &case);
        half += usize::from(content(&sandbox) != expected);
        well(&sandbox, &["cache", "import", from, "--verify", "team.pub"]);
        same(&sandbox, &case);
        kept::right(&sandbox, &case);
        kept::swept(&sandbox, &case);
        same(&sandbox, &case);
    }
    let (calls, places) = (calls.len(), places.len());
    println!("{from}: {calls} calls, killed at {places}, {half} of them half done");
    assert!(half > 0, "no kill before the end");
}

#[test]
fn a_directory_into_an_empty_store() {
    kills(&stage(false), "export");
}

#[test]
fn an_archive_into_a_store_that_has_part_of_it() {
    kills(&stage(true), "export.tar");
}
