//! What `check` says of a stack, alone or beside a lock that is made for it.
//!
//! Comments at a stack's head say how it is checked: `# args:` further arguments,
//! `# locked:` a wheel of a lock.

use super::Sandbox;
use serde::Deserialize;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::Diagnostic;
use stackforge_stack::lock::{BaseLock, FORMAT, Lock, PlatformLock, PythonFile};
use stackforge_stack::rules::{self, Case, Machine};
use stackforge_stack::target::Target;
use stackforge_types::Digest;
use std::path::Path;

pub struct Verdict {
    pub exit: i32,
    pub findings: Vec<Finding>,
    /// The whole answer, for messages of tests.
    pub shown: String,
}

#[derive(Debug, Deserialize)]
pub struct Finding {
    pub code: String,
    pub severity: String,
    pub message: String,
    #[serde(default)]
    pub help: String,
    pub span: Option<Place>,
}

#[derive(Debug, Deserialize)]
pub struct Place {
    pub line: u32,
}

#[derive(Deserialize)]
struct Answer {
    diagnostics: Vec<Finding>,
}

impl Verdict {
    pub fn find(&self, code: &str) -> Option<&Finding> {
        self.findings.iter().find(|f| f.code == code)
    }

    pub fn is_clean(&self) -> bool {
        self.exit == 0 && self.findings.is_empty()
    }
}

/// Checks the text of a stack; `catalog` extends what is embedded.
pub fn verdict(text: &str, catalog: Option<&Path>) -> Verdict {
    let sandbox = Sandbox::new();
    sandbox.write("case.yaml", text);
    let wheels = head(text, "locked:");
    if !wheels.is_empty() {
        let lock = lock(text, &wheels, catalog);
        sandbox.write("case.lock", &lock.to_toml().unwrap());
    }
    let mut args = vec!["check", "case.yaml", "--json"];
    let catalog = catalog.map(|c| c.display().to_string());
    args.extend(catalog.iter().flat_map(|c| ["--catalog", c]));
    let head = head(text, "args:");
    args.extend(head.iter().flat_map(|a| a.split_whitespace()));
    let run = sandbox.run(&args);
    let answer: Answer = serde_json::from_str(&run.stdout)
        .unwrap_or_else(|e| panic!("{e}\n{text}\n{}{}", run.stdout, run.stderr));
    Verdict {
        exit: run.code,
        findings: answer.diagnostics,
        shown: run.stdout,
    }
}

/// What the rules find in the text of a stack without a lock, without running the program.
pub fn judged(catalog: &Catalog, text: &str) -> Vec<Diagnostic> {
    let stack = stackforge_stack::spec::read("case.yaml", text)
        .unwrap()
        .pattern;
    let case = Case {
        stack: &stack,
        target: Target::of(&stack, catalog).unwrap(),
        catalog,
        lock: None,
        machine: Machine::default(),
        picks: rules::Picks::default(),
    };
    rules::check(case).findings
}

fn head<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    text.lines()
        .filter_map(|l| l.strip_prefix("# ")?.strip_prefix(key))
        .map(str::trim)
        .collect()
}

/// A lock of these wheels that fits the stack.
pub fn locked(text: &str, wheels: &[&str]) -> Lock {
    lock(text, wheels, None)
}

fn lock(text: &str, wheels: &[&str], catalog: Option<&Path>) -> Lock {
    let stack = stackforge_stack::spec::read("case.yaml", text)
        .unwrap()
        .pattern;
    let catalog = stackforge_stack::catalog::load(catalog).unwrap();
    let target = Target::of(&stack, &catalog).unwrap();
    let wheels = wheels.iter().map(|file| {
        let mut parts = file.split('-');
        PythonFile {
            name: parts.next().unwrap().replace('_', "-"),
            version: parts.next().unwrap().to_owned(),
            file: (*file).to_owned(),
            size: 0,
            sha256: Digest::of(file.as_bytes()),
            via: vec![],
        }
    });
    Lock {
        version: FORMAT,
        stack: stack.stack.value.to_string(),
        inputs: stackforge_resolve::inputs(&stack, &catalog, &target),
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
            lacking: vec![],
            app_requires: vec![],
        }],
    }
}
