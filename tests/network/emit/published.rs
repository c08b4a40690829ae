//! Pipelines that are kept by hand: the schemas take them, a shell reads their scripts, and they call
//! no flag that stackforge does not have.

use super::documents::{GITHUB, GITLAB};
use super::{below, python, yaml};
use std::io::Write as _;
use std::process::{Command, Stdio};
use support::{Sandbox, project};

const EXAMPLES: [(&str, &[&str], &[&str]); 2] = [
    ("publish-github.yml", GITHUB, &["run"]),
    ("publish-gitlab.yml", GITLAB, &["script", "before_script"]),
];

fn text(name: &str) -> String {
    std::fs::read_to_string(project(&format!("examples/ci/{name}"))).unwrap()
}

#[test]
fn the_services_take_them() {
    for (name, judge, _) in EXAMPLES {
        let path = project(&format!("examples/ci/{name}"));
        let path = path.display().to_string();
        python::run(&[judge, &[&path]].concat()).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn every_script_is_one_for_the_shell() {
    for (name, _, keys) in EXAMPLES {
        let documents = yaml(&text(name));
        let mut scripts = Vec::new();
        for key in keys {
            documents.iter().for_each(|d| below(key, d, &mut scripts));
        }
        assert!(scripts.len() >= 5, "{name}: {scripts:?}");
        for script in scripts {
            let mut bash = Command::new("bash");
            let mut bash = bash.arg("-n").stdin(Stdio::piped()).spawn().unwrap();
            let mut input = bash.stdin.take().unwrap();
            input.write_all(script.as_bytes()).unwrap();
            drop(input);
            assert!(bash.wait().unwrap().success(), "{name}: {script}");
        }
    }
}

#[test]
fn every_flag_is_one_that_stackforge_has() {
    let sandbox = Sandbox::new();
    for (name, _, _) in EXAMPLES {
        let mut called = Vec::new();
        for line in text(name).replace("\\\n", " ").lines() {
            let Some((_, call)) = line.split_once("bin/stackforge ") else {
                continue;
            };
            let mut words = call.split_whitespace();
            let Some(command) = words
                .next()
                .filter(|w| w.bytes().all(|b| b.is_ascii_lowercase()))
            else {
                continue;
            };
            // `cache gc` has flags of its own.
            let help = match command {
                "cache" => sandbox.run(&["cache", "gc", "--help"]),
                _ => sandbox.run(&[command, "--help"]),
            };
            assert_eq!(help.code, 0, "{name}: {line}");
            for flag in words.filter(|w| w.starts_with("--")) {
                assert!(help.stdout.contains(&format!(" {flag}")), "{name}: {line}");
            }
            called.push(command.to_owned());
        }
        for command in ["build", "attach", "sign", "sbom", "inspect"] {
            assert!(called.iter().any(|c| c == command), "{name}: {called:?}");
        }
    }
}
