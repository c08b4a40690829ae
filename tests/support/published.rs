//! Answers of `push` and `pull`.

use super::server::{Server, layout};
use super::{Run, Sandbox};
use serde_json::Value;
use stackforge_types::Digest;

pub fn digest(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}

/// The answer of a command that has to succeed.
pub fn answer(sandbox: &Sandbox, args: &[&str]) -> Value {
    let run = sandbox.run(&[&["--json"][..], args].concat());
    assert_eq!(run.code, 0, "{args:?}: {}{}", run.stdout, run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

/// Enters an image of its own into the index at `place`.
pub fn enter(
    sandbox: &Sandbox,
    server: &Server,
    place: &str,
    (seed, variant, fact): (u64, &str, &str),
) -> Value {
    let image = layout(server.dir.path(), seed);
    let source = format!("oci:{}:v1", image.display());
    let args = ["push", &source, place, "--index"];
    let of = ["--variant", variant, "--fact", fact];
    answer(sandbox, &[args, of].concat())
}

/// The answer of one that has to fail with a code.
pub fn refusal(run: &Run, exit: i32, code: &str) -> Value {
    assert_eq!(run.code, exit, "{}{}", run.stdout, run.stderr);
    let answer: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(answer["diagnostics"][0]["code"], code, "{answer}");
    answer
}
