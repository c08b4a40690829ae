//! A lock that is not one is shown with the place of its fault; one that is stays as it is written.

use stackforge_stack::lock::Lock;
use std::collections::BTreeSet;
use support::{Sandbox, project, yaml_files};

/// Digest of `libaudit-common` in `examples/tiny.lock`.
const DEB: &str = "17d0341ca6ce604ce59c296780ac2c2a24141a769823c50669af942c025e6591";

fn read(path: &str) -> String {
    std::fs::read_to_string(project(path)).unwrap()
}

/// Checks the example with its lock, in which `from` was replaced.
fn check(from: &str, to: &str) -> String {
    let lock = read("examples/tiny.lock");
    assert!(lock.contains(from), "{from} is not in the lock");
    let sandbox = Sandbox::new();
    sandbox.write("tiny.yaml", &read("examples/tiny.yaml"));
    sandbox.write("tiny.lock", &lock.replacen(from, to, 1));
    let run = sandbox.run(&["check", "tiny.yaml"]);
    format!("exit {}\n{}{}", run.code, run.stdout, run.stderr)
}

#[test]
fn a_digest_in_upper_case() {
    insta::assert_snapshot!(check(DEB, &DEB.to_uppercase()));
}

#[test]
fn a_digest_with_its_algorithm() {
    insta::assert_snapshot!(check(DEB, &format!("sha256:{DEB}")));
}

#[test]
fn a_digest_that_was_cut() {
    insta::assert_snapshot!(check(DEB, &DEB[..63]));
}

#[test]
fn a_key_that_no_lock_has() {
    insta::assert_snapshot!(check("architecture = ", "arch = "));
}

#[test]
fn a_string_without_its_end() {
    insta::assert_snapshot!(check(
        "name = \"libaudit-common\"",
        "name = \"libaudit-common"
    ));
}

/// The tables of a lock that name a file.
const TABLES: [&str; 7] = [
    "[[platform.base.package]]",
    "[[platform.build.requires]]",
    "[[platform.builder-package]]",
    "[[platform.package]]",
    "[[platform.tool]]",
    "[[platform.wheel]]",
    "[platform.build.source.sdist]",
];

#[test]
fn a_bad_digest_is_found_in_every_table() {
    let mut tables = BTreeSet::new();
    for file in yaml_files("stacks") {
        let text = std::fs::read_to_string(file.with_extension("lock")).unwrap();
        for (at, start) in text.match_indices("sha256 = \"") {
            let (_, table) = text[..at].rsplit_once("\n[").unwrap();
            let table = format!("[{}", table.lines().next().unwrap());
            if !tables.insert(table) {
                continue;
            }
            let digest = at + start.len();
            let mut bad = text.clone();
            bad.replace_range(digest..=digest, "X");
            let error = Lock::from_toml(&bad).unwrap_err();
            assert!(error.message().contains("is not a sha256"), "{error}");
            assert_eq!(error.span(), Some(digest - 1..digest + 65), "{error}");
        }
    }
    assert!(tables.iter().eq(&TABLES), "{tables:?}");
}

#[test]
fn locks_are_written_as_they_were_read() {
    for file in ["stacks", "examples"].into_iter().flat_map(yaml_files) {
        let text = std::fs::read_to_string(file.with_extension("lock")).unwrap();
        let written = Lock::from_toml(&text).unwrap().to_toml().unwrap();
        assert!(written == text, "{} changes", file.display());
    }
}
