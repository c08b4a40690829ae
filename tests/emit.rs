//! What `matrix --emit` writes is what its reader takes: a workflow, a pipeline, an array job and
//! Jobs, each before a judge of its kind.

mod support;

#[path = "emit/documents.rs"]
mod documents;
#[path = "emit/files.rs"]
mod files;
#[path = "emit/limits.rs"]
mod limits;
#[path = "emit/published.rs"]
mod published;
#[path = "emit/python.rs"]
mod python;
#[path = "emit/quoting.rs"]
mod quoting;
#[path = "emit/slurm.rs"]
mod slurm;

use support::{Run, Sandbox};

const FORMATS: [&str; 4] = ["github", "gitlab", "slurm", "kubernetes"];

/// Every variant of vLLM.
fn all() -> String {
    std::fs::read_to_string(support::project("stacks/vllm-matrix.yaml")).unwrap()
}

const ONE_SM: &str = "  sm: [\"9.0\"]";

/// Four of them, on two platforms, published.
fn small() -> String {
    let text = all();
    let axis = |key: &str| {
        let start = format!("  {key}: ");
        text.lines().find(|l| l.starts_with(&start)).unwrap()
    };
    let small = text
        .replace(axis("sm"), ONE_SM)
        .replace(axis("isa"), "  isa: [avx512, armv9]");
    small + "publish: { repository: ghcr.io/acme/small }\n"
}

/// No matrix, one platform, nothing to compile and nowhere to publish.
fn single() -> String {
    std::fs::read_to_string(support::project("examples/tiny.yaml")).unwrap()
}

/// A directory with the stack and its lock.
fn with(name: &str, stack: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write(&format!("{name}.yaml"), stack);
    let lock = |path| std::fs::read_to_string(support::project(path)).unwrap();
    let lock = match stack.contains("matrix:") {
        // Locked files are the same for one SM of many.
        true if stack.contains(ONE_SM) => {
            let line = |l: &str| match l.starts_with("gpu = ") {
                true => "gpu = \"sm_90\"\n".to_owned(),
                false => format!("{l}\n"),
            };
            lock("stacks/vllm-matrix.lock").lines().map(line).collect()
        }
        true => lock("stacks/vllm-matrix.lock"),
        false => lock("examples/tiny.lock"),
    };
    sandbox.write(&format!("{name}.lock"), &lock);
    sandbox
}

fn emit(sandbox: &Sandbox, stack: &str, format: &str) -> Run {
    sandbox.run(&["matrix", stack, "--emit", format, "--offline"])
}

fn emitted(name: &str, stack: &str, format: &str) -> String {
    let run = emit(&with(name, stack), &format!("{name}.yaml"), format);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    run.stdout
}

/// What varies with the release and with a lock.
fn shown(text: &str) -> String {
    let version = text.replace(env!("CARGO_PKG_VERSION"), "[VERSION]");
    let lines = version
        .lines()
        .map(|line| match line.split_once("stack.lock.gz: ") {
            Some((before, _)) if before.trim().is_empty() => {
                format!("{before}stack.lock.gz: [LOCK]")
            }
            _ => line.to_owned(),
        });
    lines.map(|l| l + "\n").collect()
}

#[test]
fn pipelines_of_a_small_matrix() {
    for format in FORMATS {
        insta::assert_snapshot!(format, shown(&emitted("small", &small(), format)));
    }
}

#[test]
fn pipelines_of_a_stack_without_matrix() {
    for format in FORMATS {
        let name = format!("single_{format}");
        insta::assert_snapshot!(name, shown(&emitted("single", &single(), format)));
    }
}

/// A pipeline that asks for what this stackforge does not have fails on every machine.
#[test]
fn every_flag_is_one_that_stackforge_has() {
    let sandbox = Sandbox::new();
    for format in FORMATS {
        let text = emitted("small", &small(), format);
        let mut seen = Vec::new();
        for command in ["check", "build"] {
            let help = sandbox.run(&[command, "--help"]).stdout;
            let call = format!("stackforge {command} ");
            for line in text.lines().filter(|l| l.contains(&call)) {
                let (_, arguments) = line.split_once(&call).unwrap();
                for word in arguments.split_whitespace().filter(|w| w.starts_with("--")) {
                    assert!(help.contains(&format!(" {word}")), "{format}: {line}");
                    seen.push(word);
                }
            }
        }
        assert!(
            seen.contains(&"--variant") && seen.contains(&"--tag"),
            "{format}: {seen:?}"
        );
    }
}
