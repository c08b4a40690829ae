//! The normal form of byte code, judged by a Python of this machine, another each day: its standard library (a quarter
//! of the tests in it each day), compiled by two processes, becomes the same bytes, and these load to the same code.
//! With STACKFORGE_TEST_ALL set all of them judge.

use stackforge_binary::pyc::normalized;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::has_turn;

fn python(program: &Path, args: &[&str]) -> Option<String> {
    let script = support::project("tests/tools/bytecode.py");
    let mut command = Command::new(program);
    let ran = command.args(["-S", "-B"]).arg(script).args(args);
    let out = ran.output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    out.status.success().then_some(text)
}

/// The Pythons of PATH and of pyenv, by their versions.
fn pythons() -> BTreeMap<String, PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let home = std::env::var_os("HOME").unwrap_or_default();
    let versions = std::fs::read_dir(Path::new(&home).join(".pyenv/versions"));
    folders.extend(
        versions
            .into_iter()
            .flatten()
            .flatten()
            .map(|v| v.path().join("bin")),
    );
    let names = [
        "python3",
        "python3.9",
        "python3.10",
        "python3.11",
        "python3.12",
        "python3.13",
        "python3.14",
    ];
    let all = folders
        .iter()
        .flat_map(|folder| names.map(|name| folder.join(name)));
    let all = all.filter(|program| program.is_file());
    let known = all.filter_map(|program| Some((python(&program, &["tag"])?, program)));
    known.filter(|(version, _)| !version.is_empty()).collect()
}

/// Replaces each file of a folder by its normal form.
fn normalize(from: &Path, to: &Path) -> usize {
    std::fs::create_dir(to).unwrap();
    let mut all = 0;
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let normal = normalized(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        std::fs::write(to.join(path.file_name().unwrap()), normal).unwrap();
        all += 1;
    }
    all
}

#[test]
fn a_python_loads_the_same_code_from_what_two_processes_compiled() {
    let pythons = pythons();
    assert!(!pythons.is_empty(), "a Python is on PATH");
    let day = support::today().to_string();
    let turns = pythons.len() as u64;
    for (turn, (version, program)) in (0..).zip(&pythons) {
        if !has_turn(&format!("the byte code of Python {version}"), turn, turns) {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| dir.path().join(name);
        let text = |name: &str| folder(name).display().to_string();
        for seed in ["1", "2"] {
            std::fs::create_dir(folder(seed)).unwrap();
            let made = python(program, &["compile", &text(seed), seed, &day]).unwrap();
            assert!(made.parse::<usize>().unwrap() > 300, "{version}: {made}");
            let all = normalize(&folder(seed), &folder(&format!("normal-{seed}")));
            assert_eq!(made, all.to_string(), "{version}");
        }
        let different = python(program, &["compare", &text("1"), &text("normal-1")]);
        assert_eq!(different.unwrap(), "", "{version}");
        for entry in std::fs::read_dir(folder("normal-1")).unwrap() {
            let name = entry.unwrap().file_name();
            let read = |of: &str| std::fs::read(folder(of).join(&name)).unwrap();
            assert!(read("normal-1") == read("normal-2"), "{version}: {name:?}");
        }
    }
    for version in ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"] {
        if !pythons.contains_key(version) {
            support::left_out(&format!(
                "the byte code of Python {version}, which is not here"
            ));
        }
    }
}
