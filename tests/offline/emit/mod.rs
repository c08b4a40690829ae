//! What `matrix --emit` writes and refuses: a workflow, a pipeline, an array job and Jobs.

mod files;
mod limits;

use support::Sandbox;
use support::pipelines::{FORMATS, all, emit, emitted, single, small, with};

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

/// Compiled wheels are kept where the stack says, with the login of its images or one of its own.
#[test]
fn pipelines_of_a_stack_with_a_cache() {
    for (place, cache) in [
        ("beside", "ghcr.io/acme/cache"),
        ("elsewhere", "registry.example/cache"),
    ] {
        let stack = format!("{}cache: {{ registry: {cache} }}\n", small());
        for format in FORMATS.into_iter().filter(|format| *format != "slurm") {
            let text = shown(&emitted("cached", &stack, format));
            let without = shown(&emitted("cached", &small(), format));
            let more: Vec<&str> = text
                .lines()
                .filter(|l| !without.lines().any(|w| w == *l))
                .collect();
            insta::assert_snapshot!(format!("cache_{place}_{format}"), more.join("\n"));
        }
    }
    let run = emit(
        &with("bad", &(small() + "cache: { registry: 'a/${{ b }}' }\n")),
        "bad.yaml",
        "github",
    );
    assert!(
        run.code != 0 && !run.stdout.contains("${{ b"),
        "{}",
        run.stdout
    );
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
