//! Every compatibility rule finds the stack that was written for it, and lets its fix pass.
//!
//! `tests/rules/CODE-what/` holds `triggers.yaml` and `passes.yaml`, with heads as
//! `support/verdict.rs` reads them; `catalog/` beside them extends the catalog.

use stackforge_stack::diag::codes::TABLE;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::verdict::{Verdict, verdict};
use support::{Sandbox, project};

/// Rules that `check` decides by: codes about the target and about compatibility.
fn is_rule(code: &str) -> bool {
    let named = ["SF0025", "SF0205", "SF0208"];
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

fn check(case: &Path, name: &str) -> Verdict {
    let text = std::fs::read_to_string(case.join(name)).unwrap();
    verdict(&text, Some(&case.join("catalog")))
}

#[test]
fn every_rule_triggers_and_passes() {
    let mut wrong = Vec::new();
    for case in cases() {
        let code = code_of(&case);
        let triggered = check(&case, "triggers.yaml");
        let fix = triggered.find(code).map(|f| f.help.as_str());
        if fix.is_none_or(str::is_empty) {
            let shown = &triggered.shown;
            wrong.push(format!("{}: no {code} with a fix: {shown}", case.display()));
        }
        let passed = check(&case, "passes.yaml");
        if !passed.is_clean() {
            let shown = &passed.shown;
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
fn generated_pages_are_what_the_program_prints() {
    for (page, command) in [
        ("docs/rules.md", "explain"),
        ("docs/commands.md", "man"),
        ("docs/keys.md", "schema"),
    ] {
        let text = std::fs::read_to_string(project(page)).unwrap_or_default();
        let run = Sandbox::new().run(&[command, "--markdown"]);
        assert!(
            !text.is_empty() && text == run.stdout,
            "{page} is old: run `make docs` and commit it"
        );
    }
}
