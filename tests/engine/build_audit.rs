//! A build reads what it made before it uses it: a compiled wheel that does not fit the stack, and
//! an image that would fail at import, stop it.
//!
//! One test, in order: each build starts from what the one before left in the engine's cache.

use serde_json::Value;
use std::process::Command;
use support::{CleanUp, Run, Sandbox};

/// CUDA's runtime says which CUDA the stack is for.
const STACK: &str = "\
stack: stackforge-test-audit
base: debian-bookworm
target:
  platform: linux/amd64
  gpu: [h100]
python: \"3.11\"
libraries:
  nvidia-cuda-runtime: \"13.0.96\"
  markupsafe: { version: \"3.0.3\", from: source }
jit: false
bytecode: false
";
const IMAGE: &str = "stackforge-test-audit:latest";
const OBJECT: &str = "markupsafe/_speedups.cpython-311-x86_64-linux-gnu.so";
const SITE: &str = "opt/venv/lib/python3.11/site-packages";

/// A container of device code for one SM, as nvcc writes it.
const FATBIN: &str = r#"python -c "
import struct, sys
sm = int(sys.argv[1])
entry = struct.pack('<HHIQ8xHHI8xQ16x8x', 2, 0x101, 64, 8, 8, 7, sm, 0x11)
head = struct.pack('<IHHQ', 0xba55ed50, 1, 16, len(entry))
open('fatbin', 'wb').write(head + entry)
""#;
const INCLUDE: &str = r#"printf '%s\n' '__asm__(".section .nv_fatbin,\"a\"\n.incbin \"'"$PWD"'/fatbin\"\n.previous\n");' >> src/markupsafe/_speedups.c"#;
const WHEEL: &str = "/dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python wheel --no-cache-dir --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels .";

/// Recipes of the test: markupsafe's own C extension, which also needs a library and has code
/// for an SM.
fn recipes(sandbox: &Sandbox, needs: &str, sm: u32) {
    sandbox.write(
        ".stackforge/libraries/nvidia-cuda-runtime.yaml",
        "schema: 1\nlibrary: nvidia-cuda-runtime\ndistribution: nvidia-cuda-runtime\nabout: test\nimports: []\nwheels: index\nsources: [test]\n",
    );
    let link = format!("-Wl,--no-as-needed -Wl,-rpath,$ORIGIN/../nvidia/cu13/lib $PWD/{needs}");
    let commands = serde_json::json!([
        format!("{FATBIN} {sm}"),
        INCLUDE,
        format!("cc -shared -nostdlib -o {needs} -Wl,-soname,{needs} -x c /dev/null"),
        format!("export LDFLAGS='{}'", link.replace("$PWD", "'\"$PWD\"'")),
        WHEEL,
    ]);
    // It does without its extension where that does not load.
    sandbox.write(
        ".stackforge/libraries/markupsafe.yaml",
        &format!(
            "schema: 1\nlibrary: markupsafe\ndistribution: markupsafe\nabout: test\n\
             imports: [markupsafe]\nwheels: index\nsources: [test]\n\
             build:\n  source: sdist\n  requires: [setuptools, wheel]\n  \
             jobs: {{ variable: MAX_JOBS, memory_gb: 0.1, source: test }}\n  \
             metadata: {{ \"*\": {{ requires_python: \">=3.9\", requires_dist: [] }} }}\n  commands: {commands}\n"
        ),
    );
    let run = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}\n{}", run.stdout, run.stderr))
}

fn image_exists(image: &str) -> bool {
    let mut inspect = Command::new("docker");
    let out = inspect.args(["image", "inspect", image]).output().unwrap();
    out.status.success()
}

/// Builds, and looks for what the build must not leave.
fn build(sandbox: &Sandbox) -> (Run, Value) {
    let plan = json(&sandbox.run(&["plan", "s.yaml", "--json"]));
    let steps = plan["variants"][0]["steps"].as_array().unwrap();
    let key = |step: &Value| step["key"].as_str().unwrap().to_owned();
    let keys: Vec<String> = steps.iter().map(key).collect();
    let run = sandbox.run(&["build", "s.yaml", "--json"]);
    let left = Command::new("docker")
        .args(["images", "--format", "{{.Repository}}:{{.Tag}}"])
        .output()
        .unwrap();
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    let temporary = ["stackforge/wheels:", "stackforge/build:"];
    for image in left.lines() {
        let of = |start: &&str| Some(image.strip_prefix(start)?.get(..12)?.to_owned());
        let Some(short) = temporary.iter().find_map(of) else {
            continue;
        };
        assert!(!keys.iter().any(|k| k.contains(&short)), "{image} is left");
    }
    let document = json(&run);
    (run, document)
}

/// What a refused build says, without where its file lies.
fn refusal(run: &Run, document: &Value) -> String {
    assert_eq!(run.code, 1, "{}\n{}", run.stdout, run.stderr);
    assert_eq!(document["audit"]["ok"], false);
    assert!(!image_exists(IMAGE), "what does not fit gets no tag");
    let diagnostics = document["diagnostics"].as_array().unwrap().iter();
    let text = |d: &Value, key: &str| d[key].as_str().unwrap_or("").to_owned();
    diagnostics
        .map(|d| {
            let (code, message) = (text(d, "code"), text(d, "message"));
            format!("{code} {message}\n  help: {}\n", text(d, "help"))
        })
        .collect()
}

#[test]
fn what_does_not_fit_the_stack_gets_no_tag() {
    let _clean = CleanUp::of(&["stackforge-test-audit"]);
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", STACK);
    let installs = "steps/compiled.sh";

    // Of another CUDA, and for another GPU: seen in the wheel, before anything uses it.
    recipes(&sandbox, "libcudart.so.12", 80);
    let (run, document) = build(&sandbox);
    insta::assert_snapshot!("wheel", refusal(&run, &document));
    assert!(!run.stderr.contains(installs), "{}", run.stderr);
    let text = sandbox.run(&["build", "s.yaml"]);
    assert_eq!(text.code, 1);
    for part in [
        "SF0610",
        "SF0604",
        "SF0503",
        OBJECT,
        "the compiled wheel of markupsafe",
    ] {
        assert!(text.stderr.contains(part), "{part}: {}", text.stderr);
    }

    // What nothing in the image provides: seen when the image is there.
    recipes(&sandbox, "libnowhere.so.1", 90);
    let (run, document) = build(&sandbox);
    insta::assert_snapshot!("image", refusal(&run, &document));
    assert!(run.stderr.contains(installs), "{}", run.stderr);

    // Mended.
    recipes(&sandbox, "libcudart.so.13", 90);
    let (run, document) = build(&sandbox);
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    let none = serde_json::json!({ "errors": 0, "warnings": 0, "notes": 0 });
    let count = &document["audit"];
    assert_eq!(count["errors"], none["errors"]);
    let label = docker(&[
        "inspect",
        "-f",
        "{{index .Config.Labels \"io.stackforge.audit\"}}",
        IMAGE,
    ]);
    let warnings = count["warnings"].as_u64().unwrap();
    assert!(label.starts_with("no error, "), "{label}");
    assert_eq!(
        warnings == 0,
        label.trim() == "no error, no warning",
        "{label}"
    );
    let kept = ["run", "--rm", "--network", "none", IMAGE, "cat"];
    let kept = docker(&[&kept[..], &["/usr/share/stackforge/audit.json"]].concat());
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["ok"], true);
    assert_eq!(kept["target"], "stackforge-test-audit");
    let objects = kept["objects"].as_array().unwrap();
    let path = format!("{SITE}/{OBJECT}");
    let object = objects.iter().find(|o| o["path"] == path).unwrap();
    let provider = object["providers"]["libcudart.so.13"].as_str().unwrap();
    assert!(
        provider.starts_with(&format!("{SITE}/nvidia/cu13/lib/")),
        "{provider}"
    );

    // What was read once is not read again.
    let again = json(&sandbox.run(&["build", "s.yaml", "--json"]));
    assert_eq!(
        (&again["cached"], &again["audit"]),
        (&Value::Bool(true), count)
    );
}

fn docker(args: &[&str]) -> String {
    let out = Command::new("docker").args(args).output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "docker {args:?}: {error}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}
