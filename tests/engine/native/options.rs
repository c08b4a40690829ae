//! A library of which a stack leaves parts out: with either engine its wheel says so, and has what was kept.

use super::ok;
use support::exported::{exported, unexplained};
use support::{CleanUp, Sandbox};

const NAME: &str = "stackforge-test-options";

/// six, whose functions `ensure_…` can be left out.
const RECIPE: &str = r#"
schema: 1
library: six
distribution: six
about: test
imports: [six]
wheels: index
sources: [test]
build:
  source: sdist
  requires: [setuptools, wheel]
  jobs: { variable: MAX_JOBS, memory_gb: 0.1, source: test }
  metadata: { "*": { requires_python: ">=3.9", requires_dist: [] } }
  local_version: SIX_LOCAL_VERSION
  options:
    - id: ensure
      about: functions that change the type of a text
      parts: [binary, str, text]
      loses: the others
      edits: [{ file: six.py, replace: "def ensure_{part}(", with: "def no_{part}(" }]
      source: test
    - id: docs
      about: its documentation
      loses: its documentation
      env: { SIX_DOCS: "0" }
      edits: [{ file: six.py, remove_lines: "\"\"\"Utilities for writing code" }]
      source: test
  commands:
    - 'sed -i "s/^__version__ = .*/__version__ = \"1.17.0${SIX_LOCAL_VERSION:++$SIX_LOCAL_VERSION}\"/" six.py'
    - 'echo "DOCS = \"${SIX_DOCS:-1}\"" >> six.py'
    - "/dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python wheel --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels ."
"#;

fn stack(sandbox: &Sandbox, options: &str, check: &str) {
    let text = format!(
        "stack: {NAME}\nbase: debian-bookworm\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\npython: \"3.11\"\n\
         libraries:\n  six: {{ version: \"1.17.0\", from: source, options: {options} }}\njit: false\nbytecode: false\n\
         validate:\n  run:\n    - cmd: [python, -c, \"import six; assert {check}\"]\n"
    );
    sandbox.write("s.yaml", &text);
}

#[test]
fn parts_that_a_stack_leaves_out_are_left_out_by_both_engines() {
    let _clean = CleanUp::of(&[NAME]);
    let sandbox = Sandbox::new();
    sandbox.warm("store");
    sandbox.write(".stackforge/libraries/six.yaml", RECIPE);
    let left_out = "six.__version__ == '1.17.0+ensurestr.nodocs' and six.DOCS == '0' and hasattr(six, 'ensure_str') \
                    and not hasattr(six, 'ensure_text') and not hasattr(six, 'ensure_binary') and not six.__doc__";
    stack(&sandbox, "{ ensure: str, docs: false }", left_out);
    assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
    let lock = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    let plan = ok(&sandbox.run(&["plan", "s.yaml", "--json", "--engine", "native"]));
    let version = &plan["variants"][0]["libraries"][0]["version"];
    assert_eq!(version, "1.17.0+ensurestr.nodocs");

    let (native, docker) = (format!("{NAME}:native"), format!("{NAME}:docker"));
    let engine = |engine: &str, tag: &str, more: &[&str]| {
        let args = ["build", "s.yaml", "--json", "--engine", engine, "-t", tag];
        ok(&sandbox.run(&[&args[..], more].concat()))
    };
    let by_docker = engine("docker", &docker, &[]);
    let by_native = engine("native", &native, &["-o", "docker"]);
    for built in [&by_docker, &by_native] {
        assert_eq!(built["validation"]["ok"], true, "{built}");
    }
    let differ = unexplained(&exported(&docker), &exported(&native));
    assert!(differ.is_empty(), "{differ:#?}");
    for image in [&native, &docker] {
        let labels = super::configuration(image)["Labels"].clone();
        let expected = "six 1.17.0+ensurestr.nodocs";
        assert_eq!(labels["io.stackforge.options"], expected, "{image}");
    }

    // A whole one is another image of the same lock.
    let whole = "six.__version__ == '1.17.0' and six.DOCS == '1' and hasattr(six, 'ensure_text') and six.__doc__";
    stack(
        &sandbox,
        "{ ensure: [str, text, binary], docs: true }",
        whole,
    );
    let built = engine("native", &native, &["-o", "docker", "--locked"]);
    assert_ne!(built["image"]["id"], by_native["image"]["id"]);
    let labels = super::configuration(&native)["Labels"].clone();
    assert_eq!(labels.get("io.stackforge.options"), None);
    let after = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    assert_eq!(after, lock, "options decide nothing of a lock");

    // A build that passes over its local version makes no wheel that is taken for a whole one.
    sandbox.write(
        ".stackforge/libraries/six.yaml",
        &RECIPE.replace("${SIX_LOCAL_VERSION:++$SIX_LOCAL_VERSION}", ""),
    );
    stack(&sandbox, "{ docs: false }", "True");
    for engine in ["native", "docker"] {
        let run = sandbox.run(&["build", "s.yaml", "--engine", engine, "-t", &docker]);
        assert_ne!(run.code, 0, "{engine}");
        let said = format!("{}{}", run.stdout, run.stderr);
        let words: Vec<&str> = said.split_whitespace().filter(|w| *w != "│").collect();
        let words = words.join(" ");
        assert!(words.contains("SF0622"), "{said}");
        assert!(words.contains("six has version 1.17.0, and"), "{said}");
    }

    // An edit that does not fit the source stops the compile and says which.
    sandbox.write(
        ".stackforge/libraries/six.yaml",
        &RECIPE.replace("Utilities for", "Something of"),
    );
    stack(&sandbox, "{ docs: false }", "True");
    let run = sandbox.run(&["build", "s.yaml", "--engine", "native", "-o", "oci:layout"]);
    assert_ne!(run.code, 0);
    let said = format!("{}{}", run.stdout, run.stderr);
    assert!(
        said.contains("patch docs-docs-0: six.py does not hold"),
        "{said}"
    );
}
