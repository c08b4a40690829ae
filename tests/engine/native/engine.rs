//! What a Docker engine has after builds: no names and containers of builds that were killed, and the
//! names that a build gave are no other image's.

use super::{ok, out, tiny};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use support::{CleanUp, Sandbox};

const NAME: &str = "stackforge-test-killed";

fn stack() -> Sandbox {
    let sandbox = tiny();
    for file in ["tiny.yaml", "tiny.lock"] {
        let text = std::fs::read_to_string(sandbox.path(file)).unwrap();
        let text = text.replace("stack: tiny", &format!("stack: {NAME}"));
        let text = text.replace("stack = \"tiny\"", &format!("stack = \"{NAME}\""));
        sandbox.write(file, &text);
    }
    sandbox
}

/// Lines of the engine's answer that speak of builds of this plan.
fn temporary(args: &[&str], start: &str) -> Vec<String> {
    let output = String::from_utf8(out("docker", args)).unwrap();
    let of = output.lines().filter(|line| line.contains(start));
    of.map(str::to_owned).collect()
}

#[test]
fn a_build_that_was_killed_leaves_nothing_to_the_next() {
    let _clean = CleanUp::of(&[NAME]);
    let sandbox = stack();
    let plan = ok(&sandbox.run(&["plan", "tiny.yaml", "--json"]));
    let key = plan["variants"][0]["key"].as_str().unwrap();
    let start = format!("stackforge/build:{}", &key["sha256:".len()..][..12]);
    let images = || temporary(&["images", "--format", "{{.Repository}}:{{.Tag}}"], &start);
    let containers = || temporary(&["ps", "--all", "--format", "{{.Image}}"], &start);
    let image = format!("{NAME}:1");
    let args = ["build", "tiny.yaml", "--engine", "docker", "-t", &image];
    // Twice: what the first left is not what the second trips over.
    for _ in 0..2 {
        let mut child = (sandbox.command().args(args))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let audits = lines.any(|line| line.unwrap().contains("== audit"));
        assert!(audits, "the build got as far as its audit");
        let begun = std::time::Instant::now();
        while containers().is_empty() {
            let waited = begun.elapsed().as_secs();
            assert!(waited < 60, "no container of {start} was seen");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(images().len(), 1);
    }
    let built = ok(&sandbox.run(&[&args[..], &["--json"]].concat()));
    assert_eq!((images(), containers()), (vec![], vec![]));
    let left = std::fs::read_dir(sandbox.path("store/begun")).unwrap();
    assert_eq!(left.count(), 0);

    // What another engine calls by that name is pushed no more.
    let native = sandbox.run(&[
        "build",
        "tiny.yaml",
        "--json",
        "--engine",
        "native",
        "-o",
        "oci:out",
        "-t",
        &image,
    ]);
    assert_ne!(ok(&native)["image"]["id"], built["image"]["id"]);
    let names = || sandbox.run(&["cache", "ls"]).stdout;
    assert!(names().contains(&image));
    ok(&sandbox.run(&[&args[..], &["--json"]].concat()));
    assert!(!names().contains(&image), "{}", names());
}
