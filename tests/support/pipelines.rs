//! What `matrix --emit` writes of stacks of every kind, and what is in it.

use super::{Run, Sandbox};
use serde_json::Value;

pub const FORMATS: [&str; 4] = ["github", "gitlab", "slurm", "kubernetes"];

/// Every variant of vLLM.
pub fn all() -> String {
    std::fs::read_to_string(super::project("stacks/vllm-matrix.yaml")).unwrap()
}

pub const ONE_SM: &str = "  sm: [\"9.0\"]";

/// Four of them, on two platforms, published.
pub fn small() -> String {
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
pub fn single() -> String {
    std::fs::read_to_string(super::project("examples/tiny.yaml")).unwrap()
}

/// A directory with the stack and its lock.
pub fn with(name: &str, stack: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write(&format!("{name}.yaml"), stack);
    let lock = |path| std::fs::read_to_string(super::project(path)).unwrap();
    let lock = if !stack.contains("matrix:") {
        lock("examples/tiny.lock")
    } else if stack.contains(ONE_SM) {
        // Locked files are the same for one SM of many.
        let line = |l: &str| {
            if l.starts_with("gpu = ") {
                "gpu = \"sm_90\"\n".to_owned()
            } else {
                format!("{l}\n")
            }
        };
        lock("stacks/vllm-matrix.lock").lines().map(line).collect()
    } else {
        lock("stacks/vllm-matrix.lock")
    };
    sandbox.write(&format!("{name}.lock"), &lock);
    sandbox
}

pub fn emit(sandbox: &Sandbox, stack: &str, format: &str) -> Run {
    sandbox.run(&["matrix", stack, "--emit", format, "--offline"])
}

pub fn emitted(name: &str, stack: &str, format: &str) -> String {
    let run = emit(&with(name, stack), &format!("{name}.yaml"), format);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    run.stdout
}

pub fn yaml(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

/// Every text below a key named so.
pub fn below<'a>(key: &str, value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::String(text) if name == key => out.push(text),
                    Value::Array(items) if name == key => {
                        out.extend(items.iter().filter_map(Value::as_str));
                    }
                    _ => below(key, value, out),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|v| below(key, v, out)),
        _ => {}
    }
}
