//! Every compatibility rule finds the stack that was written for it, and lets its fix pass.
//!
//! `tests/rules/CODE-what/` holds `triggers.yaml` and `passes.yaml`. Comments at their heads
//! say how they are checked: `# args:` further arguments, `# locked:` a wheel in a lock,
//! `catalog/` beside them extends the catalog.

mod support;

use serde_json::Value;
use stackforge::catalog::Catalog;
use stackforge::diag::codes::TABLE;
use stackforge::lock::{BaseLock, FORMAT, Lock, PlatformLock, PythonFile};
use stackforge::target::Target;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::{Sandbox, project};

/// Rules that `check` decides by: codes about the target and about compatibility.
fn is_rule(code: &str) -> bool {
    let named = ["SF0205", "SF0208"];
    named.contains(&code)
        || code.starts_with("SF06")
        || (code.starts_with("SF01") && code != "SF0101" && code != "SF0109")
}

fn cases() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = std::fs::read_dir(project("tests/rules"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    dirs.sort();
    dirs
}

fn code_of(case: &Path) -> &str {
    let name = case.file_name().unwrap().to_str().unwrap();
    name.split_once('-').unwrap().0
}

fn head<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    text.lines()
        .filter_map(|l| l.strip_prefix("# ")?.strip_prefix(key))
        .map(str::trim)
        .collect()
}

/// A lock of these wheels that fits the stack.
fn lock(text: &str, wheels: &[&str], catalog: &Path) -> Lock {
    let stack = stackforge::spec::read("case.yaml", text).unwrap();
    let catalog = Catalog::load(Some(catalog)).unwrap();
    let target = Target::of(&stack, &catalog).unwrap();
    let wheels = wheels.iter().map(|file| {
        let mut parts = file.split('-');
        PythonFile {
            name: parts.next().unwrap().replace('_', "-"),
            version: parts.next().unwrap().to_owned(),
            file: (*file).to_owned(),
            size: 0,
            sha256: "0".repeat(64),
            via: vec![],
        }
    });
    Lock {
        version: FORMAT,
        stack: stack.stack.value.to_string(),
        inputs: stackforge::resolve::inputs(&stack, &catalog, &target),
        platforms: vec![PlatformLock {
            platform: stack.platform.value,
            python: stack.python.value,
            cuda: None,
            inputs: Default::default(),
            base: BaseLock {
                name: stack.base.value.clone(),
                runtime: None,
                devel: None,
                packages: vec![],
            },
            wheels: wheels.collect(),
            builds: vec![],
            tools: vec![],
            packages: vec![],
            builder_packages: vec![],
        }],
    }
}

fn check(case: &Path, name: &str) -> (i32, Vec<Value>, String) {
    let sandbox = Sandbox::new();
    let text = std::fs::read_to_string(case.join(name)).unwrap();
    sandbox.write("case.yaml", &text);
    let catalog = case.join("catalog");
    let wheels = head(&text, "locked:");
    if !wheels.is_empty() {
        let lock = lock(&text, &wheels, &catalog);
        sandbox.write("case.lock", &lock.to_toml().unwrap());
    }
    let catalog = catalog.display().to_string();
    let mut args = vec!["check", "case.yaml", "--json", "--catalog", &catalog];
    let head = head(&text, "args:");
    args.extend(head.iter().flat_map(|a| a.split_whitespace()));
    let run = sandbox.run(&args);
    let document: Value = serde_json::from_str(&run.stdout)
        .unwrap_or_else(|e| panic!("{case:?}/{name}: {e}\n{}{}", run.stdout, run.stderr));
    let findings = document["diagnostics"].as_array().unwrap().clone();
    (run.code, findings, run.stdout)
}

#[test]
fn every_rule_triggers_and_passes() {
    let mut wrong = Vec::new();
    for case in cases() {
        let code = code_of(&case);
        let (_, findings, shown) = check(&case, "triggers.yaml");
        let fix = findings
            .iter()
            .find(|d| d["code"] == code)
            .and_then(|d| d["help"].as_str());
        if fix.is_none_or(str::is_empty) {
            wrong.push(format!("{}: no {code} with a fix: {shown}", case.display()));
        }
        let (exit, findings, shown) = check(&case, "passes.yaml");
        if exit != 0 || !findings.is_empty() {
            wrong.push(format!("{}: does not pass: {shown}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_a_case() {
    let covered: BTreeSet<String> = cases().iter().map(|c| code_of(c).to_owned()).collect();
    let rules: BTreeSet<String> = TABLE
        .iter()
        .map(|e| e.code.to_string())
        .filter(|c| is_rule(c))
        .collect();
    assert_eq!(covered, rules);
}

#[test]
fn every_rule_says_where_its_fact_comes_from() {
    for entry in TABLE.iter().filter(|e| is_rule(&e.code.to_string())) {
        assert!(
            entry.source.is_some_and(|s| !s.is_empty()),
            "{} has no source",
            entry.code
        );
    }
}

#[test]
fn the_page_of_rules_is_what_the_table_says() {
    let page = std::fs::read_to_string(project("docs/rules.md")).unwrap_or_default();
    let run = Sandbox::new().run(&["explain", "--markdown"]);
    assert!(
        page == run.stdout,
        "docs/rules.md is old: run `make docs` and commit it"
    );
}
