//! `stackforge diagnose` names the root cause in logs of real failures, whatever their size.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::Stdio;
use support::{Run, Sandbox, project, schemas};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    code: String,
    id: String,
    line: u64,
    /// How the log was made, where the real thing printed it.
    made: Option<String>,
}

fn expected() -> BTreeMap<String, Expected> {
    let text = std::fs::read_to_string(project("tests/fixtures/logs/expected.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn log(name: &str) -> String {
    project(&format!("tests/fixtures/logs/{name}.log"))
        .display()
        .to_string()
}

fn matches(run: &Run) -> Vec<serde_json::Value> {
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["schema"], 1);
    document["matches"].as_array().unwrap().clone()
}

#[test]
fn every_log_has_its_root_cause_named() {
    let expected = expected();
    let sandbox = Sandbox::new();
    let mut wrong = Vec::new();
    for (name, expected) in &expected {
        let run = sandbox.run(&["diagnose", &log(name), "--json"]);
        let found = matches(&run);
        let first = found.first().cloned().unwrap_or_default();
        let (code, id, line) = (&first["code"], &first["id"], &first["line"]);
        let right =
            run.code == 0 && *code == expected.code && *id == expected.id && *line == expected.line;
        if !right {
            wrong.push(format!("{name}: {code} {id} at {line}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn there_are_logs_for_every_code() {
    let expected = expected();
    let logs: BTreeSet<String> = std::fs::read_dir(project("tests/fixtures/logs"))
        .unwrap()
        .filter_map(|e| {
            let name = e.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".log").map(str::to_owned)
        })
        .collect();
    assert_eq!(logs, expected.keys().cloned().collect());
    assert!(logs.len() >= 60 && expected.values().filter(|e| e.made.is_some()).count() >= 40);

    let sandbox = Sandbox::new();
    let run = sandbox.run(&["explain", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let shown: BTreeSet<&str> = expected.values().map(|e| e.code.as_str()).collect();
    for code in document["codes"].as_array().unwrap() {
        let code = code["code"].as_str().unwrap();
        if code.starts_with("SF07") && code != "SF0700" {
            assert!(shown.contains(code), "{code} has no log");
        }
    }
}

macro_rules! shows {
    ($($name:ident: $log:literal;)*) => {
        $(#[test]
        fn $name() {
            let sandbox = Sandbox::new();
            std::fs::copy(log($log), sandbox.path("build.log")).unwrap();
            let run = sandbox.run(&["diagnose", "build.log"]);
            let shown = format!("exit {}\n{}{}", run.code, run.stdout, run.stderr);
            insta::assert_snapshot!(stringify!($name), shown);
        })*
    };
}

shows! {
    a_wrong_abi: "abi-old-extension";
    a_killed_compile: "killed-in-buildkit";
    headers_of_a_newer_standard: "cxx17-torch-2.14";
    a_missing_library: "vllm-libcudart-12";
    colours_in_the_log: "nvcc-gcc13";
    a_line_of_six_kilobytes: "disk-full-pip";
    only_a_wrapper: "ninja-only";
    a_log_that_is_not_utf8: "latin1-paths";
}

fn piped(args: &[&str], input: &[u8]) -> Run {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .command()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let out = child.wait_with_output().unwrap();
    let run = Run {
        code: out.status.code().unwrap_or(-1),
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
    };
    schemas::check(args, &run.stdout, &run.stderr);
    run
}

#[test]
fn a_log_may_be_piped_in() {
    let input = b"building\nninja: build stopped: subcommand failed.\n";
    let shown = piped(&["diagnose"], input);
    assert!(shown.stdout.contains("[stdin:2:1]"), "{}", shown.stdout);
    assert_eq!(piped(&["diagnose", "-"], input).stdout, shown.stdout);
}

#[test]
fn a_log_with_nothing_known_says_what_to_try() {
    let run = piped(&["diagnose", "-"], b"all is well\n");
    insta::assert_snapshot!(format!("exit {}\n{}{}", run.code, run.stdout, run.stderr));
    let run = piped(&["diagnose", "-", "--json"], b"all is well\n");
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &document["ok"]), (1, &false.into()));
    assert_eq!(document["matches"], serde_json::json!([]));
    assert_eq!(document["diagnostics"][0]["code"], "SF0700");
}

#[test]
fn nothing_is_recognised_in_nothing_or_in_noise() {
    let mut state = 42_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(3 << 20)
    .collect();
    for input in [&b""[..], b"\n", b"\x1b", &noise] {
        assert_eq!(piped(&["diagnose"], input).code, 1);
    }
}

#[test]
fn a_log_that_is_not_there() {
    let run = Sandbox::new().run(&["diagnose", "nowhere.log"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("SF0018"), "{}", run.stderr);
}

#[test]
fn json_tells_the_line_the_cause_and_how_often() {
    let input = "x\nlibcudart.so.12: cannot open shared object file\n\
                 libcublas.so.12: cannot open shared object file\n\
                 libcudart.so.12: cannot open shared object file\n";
    let run = piped(&["diagnose", "-", "--json"], input.as_bytes());
    insta::assert_snapshot!(run.stdout);
}

#[test]
fn a_users_own_diagnoses_are_known() {
    let sandbox = Sandbox::new();
    sandbox.write(
        ".stackforge/diagnoses.yaml",
        "schema: 1
diagnoses:
- id: license
  code: SF0742
  patterns: ['license server (?P<host>\\S+) refused']
  cause: '`{host}` has no free license.'
  fix: Wait for one.
  examples: [license server a.example refused]
  source: its manual
",
    );
    sandbox.write("b.log", "E: license server b.example refused\n");
    let run = sandbox.run(&["diagnose", "b.log", "--json"]);
    assert_eq!(
        matches(&run)[0]["cause"],
        "`b.example` has no free license."
    );
    sandbox.write(".stackforge/diagnoses.yaml", "schema: 1\ndiagnoses: [{}]\n");
    assert_eq!(sandbox.run(&["diagnose", "b.log"]).code, 2);
}
