//! What a help proposes is true: done, its finding is gone.

use serde_json::{Value, json};
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::Diagnostic;
use std::path::Path;
use support::project;
use support::verdict::{judged, verdict};

/// A stack with what the help proposes; none where it proposes nothing definite.
fn follow(help: &str, stack: &Value) -> Option<Value> {
    let mut stack = stack.clone();
    let words: Vec<&str> = help.split([' ', '`', ';', ':', ',']).collect();
    let after = |text: &str| {
        let rest = &help[help.find(text)? + text.len()..];
        rest.split(['`', ' ', ';', ',']).next()
    };
    let before = |text: &str| {
        let end = help.find(text)?;
        let mut words = help[..end].rsplit([' ', '`']);
        let version = words.next().filter(|v| v.starts_with(char::is_numeric))?;
        Some((words.next()?.to_owned(), version.to_owned()))
    };
    if let Some((name, version)) = before(" has a wheel that runs there")
        .or_else(|| before(" is for CUDA"))
        .or_else(|| before(" knows it"))
    {
        set(&mut stack, &name, "version", &version);
        if let Some(torch) = after("which torch ") {
            set(&mut stack, "torch", "version", torch);
        }
    } else if let Some(rest) = help.strip_prefix("set `").filter(|r| r.contains(": \"")) {
        let (name, rest) = rest.split_once(": \"")?;
        set(&mut stack, name, "version", rest.split('"').next()?);
    } else if let Some(line) = after("let `overrides` say `").or(after("`overrides: [")) {
        let line = line.trim_end_matches(']');
        let name = line.split(['=', '<', '>']).next()?;
        let lines = stack["overrides"].as_array().cloned().unwrap_or_default();
        let others = lines
            .into_iter()
            .filter(|l| !l.as_str().is_some_and(|l| l.starts_with(name)));
        stack["overrides"] = others.chain([json!(line)]).collect();
    } else if help.contains("{ from: source }") {
        let at = words.iter().position(|w| *w == "{")?;
        let name = words[..at].iter().rev().find(|w| !w.is_empty())?;
        set(&mut stack, name, "from", "source");
    } else if let Some(base) = after("base `") {
        stack["base"] = json!(base);
    } else if let Some(platform) = after("set `target.platform` to `") {
        stack["target"]["platform"] = json!(platform);
    } else if let Some(gpu) = after("add the GPU to `target.gpu` (") {
        let gpus = stack["target"]["gpu"].as_array_mut()?;
        gpus.push(json!(gpu.trim_end_matches(')')));
    } else {
        return None;
    }
    Some(stack)
}

/// One key of a library, which may stand there with its version alone or not at all.
fn set(stack: &mut Value, library: &str, key: &str, value: &str) {
    let library = &mut stack["libraries"][library];
    if !library.is_object() {
        let version = library.as_str().unwrap_or("auto");
        *library = json!({ "version": version });
    }
    library[key] = json!(value);
}

/// What a finding is about: its code and the head of its message, whatever the version.
fn cause(code: &str, message: &str) -> (String, Vec<String>) {
    let words = message.split(' ').take(4);
    let words = words.map(|w| {
        if w.starts_with(char::is_numeric) {
            "VERSION".to_owned()
        } else {
            w.to_owned()
        }
    });
    (code.to_owned(), words.collect())
}

#[test]
fn proposals_of_the_rules_own_cases() {
    let mut followed = 0;
    for case in std::fs::read_dir(project("tests/rules")).unwrap() {
        let case = case.unwrap().path();
        let text = std::fs::read_to_string(case.join("triggers.yaml")).unwrap();
        let heads: String = (text.lines().filter(|l| l.starts_with('#')))
            .map(|l| format!("{l}\n"))
            .collect();
        // A lock holds the files until the stack is locked again.
        if heads.contains("# locked:") {
            continue;
        }
        followed += every_proposal(&case, &heads, &text);
    }
    assert!(followed >= 10, "{followed}");
}

fn every_proposal(case: &Path, heads: &str, text: &str) -> u32 {
    let catalog = case.join("catalog");
    let stack: Value = serde_saphyr::from_str(text).unwrap();
    let mut followed = 0;
    for finding in verdict(text, Some(&catalog)).findings {
        let Some(changed) = follow(&finding.help, &stack) else {
            continue;
        };
        let after = verdict(&format!("{heads}{changed}"), Some(&catalog));
        let gone = cause(&finding.code, &finding.message);
        let again = after.findings.iter();
        let again = again.map(|f| cause(&f.code, &f.message)).any(|c| c == gone);
        assert!(!again, "{}\n{changed}\n{}", finding.help, after.shown);
        followed += 1;
    }
    followed
}

/// Each release of a library as a wheel, on GPUs of each kind.
#[test]
fn proposals_for_every_release() {
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let places = [
        (
            "cuda-12.8-ubuntu24.04",
            "linux/amd64",
            ["v100", "rtx3090", "b300"],
        ),
        (
            "cuda-13.0-ubuntu24.04",
            "linux/amd64",
            ["t4", "a100", "rtx5090"],
        ),
        (
            "cuda-13.0-ubuntu24.04",
            "linux/arm64",
            ["gh200", "thor", "orin"],
        ),
    ];
    let mut followed = 0;
    for library in [
        "torch",
        "torchvision",
        "vllm",
        "xformers",
        "bitsandbytes",
        "sglang-kernel",
    ] {
        for version in catalog.releases(library).unwrap().keys() {
            for (base, platform, gpus) in places {
                for gpu in gpus {
                    let stack = json!({
                        "stack": "case", "base": base, "python": "3.12",
                        "target": { "platform": platform, "gpu": [gpu] },
                        "libraries": { library: { "version": version.to_string(), "from": "wheel" } },
                    });
                    followed += proposals(&catalog, &stack);
                }
            }
        }
    }
    assert!(followed > 300, "{followed}");
}

fn proposals(catalog: &Catalog, stack: &Value) -> u32 {
    let mut followed = 0;
    for finding in judged(catalog, &stack.to_string()) {
        let help = finding.help.as_deref().unwrap_or_default();
        let Some(changed) = follow(help, stack) else {
            continue;
        };
        let after = judged(catalog, &changed.to_string());
        let cause = |f: &Diagnostic| cause(&f.code.to_string(), &f.message);
        let again = after.iter().find(|f| cause(f) == cause(&finding));
        assert_eq!(again, None, "{help}\n{stack}\n{changed}");
        followed += 1;
    }
    followed
}
