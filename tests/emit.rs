//! What `matrix --emit` writes is what its reader takes: a workflow, a pipeline, an array job and
//! Jobs, each before a judge of its kind.

mod support;

#[path = "emit/documents.rs"]
mod documents;
#[path = "emit/files.rs"]
mod files;
#[path = "emit/limits.rs"]
mod limits;
#[path = "emit/python.rs"]
mod python;
#[path = "emit/quoting.rs"]
mod quoting;
#[path = "emit/slurm.rs"]
mod slurm;

use support::{Run, Sandbox};

const FORMATS: [&str; 4] = ["github", "gitlab", "slurm", "kubernetes"];

/// Four variants on two platforms, compiled and published.
const SMALL: &str = r#"stack: small
base: cuda-{{cuda}}-ubuntu24.04
target: { gpu: [h100] }
python: "3.12"
libraries:
  torch: { version: "2.10.0", from: source, ref: 449b1768410104d3ed79d3bcfe4ba1d65c7f22c0 }
matrix:
  cuda: ["12.9", "12.8"]
  platform: [linux/amd64, linux/arm64]
publish: { repository: ghcr.io/acme/small }
"#;

/// One wheel, one platform, no matrix, nowhere to publish.
const SINGLE: &str = r#"stack: single
base: debian-bookworm
target: { platform: linux/amd64, gpu: [h100] }
python: "3.11"
libraries: { torch: "2.13.0" }
"#;

/// A directory with the stack and some lock.
fn with(name: &str, stack: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write(&format!("{name}.yaml"), stack);
    let lock = std::fs::read_to_string(support::project("examples/tiny.lock")).unwrap();
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
        insta::assert_snapshot!(format, shown(&emitted("small", SMALL, format)));
    }
}

#[test]
fn pipelines_of_a_stack_without_matrix() {
    for format in FORMATS {
        let name = format!("single_{format}");
        insta::assert_snapshot!(name, shown(&emitted("single", SINGLE, format)));
    }
}

/// A pipeline that asks for what this stackforge does not have fails on every machine.
#[test]
fn every_flag_is_one_that_stackforge_has() {
    let sandbox = Sandbox::new();
    for format in FORMATS {
        let text = emitted("single", SINGLE, format);
        let mut seen = 0;
        for command in ["check", "build"] {
            let help = sandbox.run(&[command, "--help"]).stdout;
            let call = format!("stackforge {command} ");
            for line in text.lines().filter(|l| l.contains(&call)) {
                let (_, arguments) = line.split_once(&call).unwrap();
                for word in arguments.split_whitespace().filter(|w| w.starts_with("--")) {
                    assert!(help.contains(&format!("{word} ")), "{format}: {line}");
                    seen += 1;
                }
            }
        }
        assert!(seen >= 1, "{format} builds");
    }
}
