//! Completions as bash asks for them.

use std::path::Path;
use std::process::Command;
use support::{self, Sandbox, stored};

/// What bash proposes for the last of the words.
fn proposals(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let script = r#"
        source <(stackforge completions bash)
        COMP_WORDS=(stackforge "$@") COMP_CWORD=$# COMP_TYPE=9
        _clap_complete_stackforge stackforge "${@: -1}" "${@: -2:1}" || exit 1
        printf '%s\n' "${COMPREPLY[@]}""#;
    let binary = Path::new(env!("CARGO_BIN_EXE_stackforge"));
    let path = format!(
        "{}:{}",
        binary.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut command: Command = sandbox.command_of("bash");
    let out = command
        .args(["--norc", "-c", script, "bash"])
        .args(words)
        .env("PATH", path)
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&out.stderr), "", "{words:?}");
    // Options come after the values that are wanted.
    let wanted = |line: &&str| {
        !line.is_empty() && (words.last() == Some(&"--all-v") || !line.starts_with('-'))
    };
    text.lines()
        .map(str::trim_end)
        .filter(wanted)
        .map(str::to_owned)
        .collect()
}

fn world() -> Sandbox {
    let sandbox = support::tiny();
    let matrix = std::fs::read_to_string(support::project("stacks/vllm-matrix.yaml")).unwrap();
    sandbox.write("many/vllm-matrix.yaml", &matrix);
    sandbox.write("notes.txt", "no stack");
    sandbox.write("broken.yaml", "stack: [");
    sandbox
}

#[test]
fn stacks_variants_libraries_gpus_and_codes_are_proposed() {
    let sandbox = world();
    let ask = |words: &[&str]| proposals(&sandbox, words);
    assert_eq!(ask(&["bui"]), ["build"]);
    assert_eq!(ask(&["build", "--all-v"]), ["--all-variants"]);
    assert_eq!(ask(&["build", ""]), ["broken.yaml", "tiny.yaml", "many/"]);
    assert_eq!(ask(&["build", "many/"]), ["many/vllm-matrix.yaml"]);
    assert_eq!(ask(&["build", "tiny.yaml", "--engine", "nat"]), ["native"]);
    let stack = "many/vllm-matrix.yaml";
    let variants = ask(&["plan", stack, "--variant", ""]);
    assert_eq!(variants.len(), 98, "{variants:?}");
    let one = &variants[3];
    assert_eq!(ask(&["build", stack, "--variant", one]), [one.as_str()]);
    assert_eq!(ask(&["sbom", stack, "--variant", "no-such"]), [""; 0]);
    assert_eq!(
        ask(&["lock", "tiny.yaml", "--upgrade", ""]),
        ["packaging", "six"]
    );
    assert_eq!(ask(&["check", "tiny.yaml", "--gpu", "thor"]), ["thor"]);
    assert_eq!(ask(&["init", "--gpu", "sm_11"]), ["sm_110"]);
    assert_eq!(ask(&["explain", "SF060"])[0], "SF0601");
    assert_eq!(ask(&["explain", "SF0609"]), ["SF0609"]);
    assert_eq!(ask(&["completions", "f"]), ["fish"]);
}

#[test]
fn images_and_places_are_proposed() {
    let sandbox = world();
    support::server::layout(sandbox.path("").as_path(), 1);
    let ask = |words: &[&str]| proposals(&sandbox, words);
    assert_eq!(ask(&["push", "oci:im"]), ["oci:image1/"]);
    assert_eq!(ask(&["build", "tiny.yaml", "-o", "reg"]), ["registry:"]);
    assert_eq!(
        ask(&["build", "tiny.yaml", "-o", ""]),
        ["oci:", "oci-archive:", "docker", "registry:", "index:"]
    );
    assert_eq!(
        ask(&["pull", "localhost/a", "-o", ""]),
        ["oci:", "oci-archive:", "rootfs:", "docker"]
    );
    assert_eq!(ask(&["pull", "localhost/a", "-o", "reg"]), [""; 0]);
    assert_eq!(ask(&["run", "ti"]), ["tiny.yaml"]);
}

#[test]
fn another_store_and_another_catalog_are_looked_at() {
    let sandbox = world();
    let store = stored::open(&sandbox.path("other"));
    stored::image(&store, "elsewhere:1", "file", b"content");
    let ask = |words: &[&str]| proposals(&sandbox, words);
    assert_eq!(ask(&["run", "else"]), [""; 0]);
    assert_eq!(ask(&["run", "--store", "other", "else"]), ["elsewhere:1"]);
    let gpus = "schema: 1\ngpus:\n  - { name: mine, about: ours, sm: \"9.0\", platforms: [linux/amd64], source: us }\n";
    sandbox.write("ours/gpus.yaml", gpus);
    assert_eq!(ask(&["check", "tiny.yaml", "--gpu", "min"]), [""; 0]);
    let named = ["check", "tiny.yaml", "--catalog", "ours", "--gpu", "min"];
    assert_eq!(ask(&named), ["mine"]);
}

/// Whatever is wrong with what is read, the shell gets an answer.
#[test]
fn broken_files_and_stores_propose_nothing() {
    let sandbox = world();
    let ask = |words: &[&str]| proposals(&sandbox, words);
    assert_eq!(ask(&["plan", "broken.yaml", "--variant", ""]), [""; 0]);
    assert_eq!(ask(&["plan", "gone.yaml", "--variant", ""]), [""; 0]);
    assert_eq!(ask(&["lock", "broken.yaml", "--upgrade", ""]), [""; 0]);
    sandbox.write("store/index.json", "{");
    assert_eq!(ask(&["run", "ti"]), ["tiny.yaml"]);
    let long = "x".repeat(10_000);
    assert_eq!(ask(&["explain", &long]), [""; 0]);
}

#[test]
fn every_shell_has_a_script() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = sandbox.run(&["completions", shell]);
        assert_eq!(run.code, 0, "{shell}: {}", run.stderr);
        assert!(run.stdout.contains("STACKFORGE_COMPLETE"), "{}", run.stdout);
        // A shell that asks.
        let asked = sandbox
            .command()
            .args(["--", "stackforge", "explain", "SF0609"])
            .env("STACKFORGE_COMPLETE", shell)
            .env("_CLAP_COMPLETE_INDEX", "2")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&asked.stdout).into_owned();
        assert!(text.contains("SF0609"), "{shell}: {text}");
    }
    let unknown = sandbox
        .command()
        .args(["--", "stackforge", ""])
        .env("STACKFORGE_COMPLETE", "tcsh")
        .output()
        .unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(unknown.stdout.is_empty());
}
