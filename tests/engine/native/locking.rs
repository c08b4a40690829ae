//! `build` makes the lock that it lacks and renews one that is stale, as cargo does; `--locked` forbids it.

use super::ok;
use serde_json::Value;
use support::{CleanUp, Run, Sandbox};

const NAME: &str = "stackforge-test-locking";

fn stack(libraries: &str, more: &str) -> String {
    format!(
        "stack: {NAME}\nbase: debian-bookworm\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\n\
         python: \"3.11\"\nlibraries: {{ {libraries} }}\njit: false\n{more}"
    )
}

fn locked(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path("s.lock")).unwrap()
}

/// Builds natively into a layout.
fn build(sandbox: &Sandbox, more: &[&str]) -> Run {
    let args = ["build", "s.yaml", "--engine", "native", "-o", "oci:out"];
    sandbox.run(&[&args[..], more].concat())
}

fn json(sandbox: &Sandbox, more: &[&str]) -> Value {
    ok(&build(sandbox, &[more, &["--json"]].concat()))
}

#[test]
fn a_build_locks_what_is_not_locked_and_what_changed() {
    let _clean = CleanUp::of(&[NAME]);
    let sandbox = Sandbox::new();
    sandbox.warm("store");
    sandbox.write("s.yaml", &stack("six: \"1.16.0\"", ""));

    let run = build(&sandbox, &["--locked"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("SF0201"), "{}", run.stderr);
    let run = build(&sandbox, &["--offline"]);
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(!sandbox.path("s.lock").exists());

    let run = build(&sandbox, &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("s.yaml has no lock"), "{}", run.stderr);
    assert!(run.stderr.contains("s.lock: written"), "{}", run.stderr);
    let first = locked(&sandbox);
    let again = json(&sandbox, &[]);
    assert_eq!(
        (&again["cached"], &again["locked"]),
        (&true.into(), &Value::Null)
    );
    assert_eq!(locked(&sandbox), first);

    // What changed is said and locked.
    sandbox.write(
        "s.yaml",
        &stack("six: \"1.16.0\", idna: \"3.10\"", "packages: [tree]\n"),
    );
    let refused = build(&sandbox, &["--locked"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("SF0202"), "{}", refused.stderr);
    assert_eq!(locked(&sandbox), first);
    let built = json(&sandbox, &[]);
    assert_eq!(built["locked"]["changed"], true);
    assert_eq!(built["locked"]["differences"][0], "idna 3.10 added");
    let second = locked(&sandbox);
    assert!(second.contains("six-1.16.0-") && second.contains("idna-3.10-"));
    assert_eq!(json(&sandbox, &["--locked"])["cached"], true);

    // A lock that cannot be read is its user's to restore.
    sandbox.write("s.lock", "format = \"what\"\n");
    let run = build(&sandbox, &[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("SF0203"), "{}", run.stderr);
    assert_eq!(locked(&sandbox), "format = \"what\"\n");

    // What the stack now asks for is not there: the lock of before stays.
    sandbox.write("s.lock", &second);
    sandbox.write("s.yaml", &stack("six: \"99\"", ""));
    let run = build(&sandbox, &[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("`libraries.six`"), "{}", run.stderr);
    assert_eq!(locked(&sandbox), second);
}

#[test]
fn all_variants_are_locked_once_before_the_first_is_built() {
    let _clean = CleanUp::of(&[NAME]);
    let sandbox = Sandbox::new();
    sandbox.warm("store");
    let matrix = stack("six: auto", "matrix: { sm: [\"8.0\", \"9.0\"] }\n");
    let matrix = matrix.replace(", gpu: [h100] }", " }");
    sandbox.write("s.yaml", &matrix);
    let args = [
        "build",
        "s.yaml",
        "--all-variants",
        "--engine",
        "native",
        "--json",
    ];
    let refused = sandbox.run(&[&args[..], &["--locked"]].concat());
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    let run = sandbox.run(&args);
    let document = ok(&run);
    assert!(run.stderr.contains("has no lock"), "{}", run.stderr);
    let variants = document["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 2, "{document:#}");
    assert_eq!(document["locked"]["changed"], true);
    assert!(locked(&sandbox).contains("six-"));
}
