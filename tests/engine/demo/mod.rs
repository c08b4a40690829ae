//! The demo, whole: real CUDA wheels, a real CUDA compile, judged from outside.

mod service;

use serde_json::Value;
use std::process::Command;
use support::exported::{at_rest, exported, unexplained};
use support::{CleanUp, Sandbox, has_turn, project};

const TAG: &str = "stackforge-test-demo:latest";

fn inside(script: &str) -> String {
    let out = Command::new("docker")
        .args(["run", "--rm", "--network", "none", TAG, "sh", "-c", script])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{script}: {text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    text
}

/// What a program printed after what its libraries say of the machine.
fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or_default()
}

#[test]
fn the_demo_and_the_example_service_hold_what_they_say() {
    let _clean = CleanUp::of(&["stackforge-test-demo"]);
    let sandbox = Sandbox::new();
    // The project's own stack and lock, where a new OS package lock may be written.
    for file in ["demo-cuda13.yaml", "demo-cuda13.lock"] {
        let text = std::fs::read_to_string(project("stacks").join(file)).unwrap();
        sandbox.write(file, &text);
    }
    let mut run = sandbox.run(&["build", "demo-cuda13.yaml", "-t", TAG, "--json"]);
    if run.stdout.contains("SF0210") {
        // The mirror has dropped an OS package since the lock was made.
        assert_eq!(
            sandbox
                .run(&["lock", "demo-cuda13.yaml", "--upgrade-os"])
                .code,
            0
        );
        run = sandbox.run(&["build", "demo-cuda13.yaml", "-t", TAG, "--json"]);
    }
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);

    let again = sandbox.run(&["build", "demo-cuda13.yaml", "-t", TAG, "--json"]);
    let document: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(document["cached"], true);
    assert!(
        !again.stderr.contains("\"uploading\""),
        "a no-op uploads nothing"
    );
    let checks = document["validation"]["checks"].as_array().unwrap();
    for name in ["imports", "cuda", "attention"] {
        let check = checks.iter().find(|c| c["name"] == name).unwrap();
        assert_eq!(check["status"], "passed", "{check}");
    }
    let triton = checks.iter().find(|c| c["name"] == "triton").unwrap();
    assert_eq!(triton["status"], "not-run");
    assert!(triton["reason"].as_str().unwrap().contains("GPU"));

    let imported = inside(
        "python -c 'import torch, triton, triton.language, deepspeed.ops.adam; print(torch.version.cuda)'",
    );
    assert_eq!(last_line(&imported), "13.0");
    let left = inside(
        "command -v nvcc g++ c++ uv pip; find / -xdev \\( -name nvcc -o -name ptxas -o -name 'libcu*.a' -o -name 'g++*' \
         -o -path '*/.cache/pip' -o -path '*/.cache/uv' -o -path /opt/build -o -path /opt/tools -o -path /opt/wheels \
         -o -path /opt/cuda \\) -not -path '*/triton/*' -not -path '/proc/*' | grep -v bash-completion; command -v cc",
    );
    assert_eq!(
        left.trim(),
        "/usr/bin/cc",
        "only Triton's C compiler may be there"
    );

    // A GPU is asked for where there is none.
    let run = sandbox.run(&["validate", TAG, "--gpu", "--json"]);
    assert_eq!(
        run.code, 3,
        "this engine has no GPU to give: {}",
        run.stdout
    );
    assert!(run.stdout.contains("SF0306"), "{}", run.stdout);

    the_audit_finds_nothing(&sandbox);
    if has_turn("the demo by the native engine", 0, 2) {
        the_native_engine_makes_the_same_image(&sandbox);
    }

    let sms = cuobjdump_sms(&sandbox);
    assert_eq!(sms, ["sm_110", "sm_90"]);

    if has_turn("the example service", 1, 2) {
        service::the_example_service_answers_from_both_engines(&sandbox);
    }
}

/// With the wheel that Docker compiled, which is kept by its step's key.
fn the_native_engine_makes_the_same_image(sandbox: &Sandbox) {
    let args = ["build", "demo-cuda13.yaml", "--engine", "native", "--json"];
    let run = sandbox.run(&[&args[..], &["-o", "oci:native"]].concat());
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["validation"]["ok"], true, "{document:#}");
    let (by_docker, by_native) = (exported(TAG), at_rest(&sandbox.path("native")));
    let differ = unexplained(&by_docker, &by_native);
    assert!(differ.is_empty(), "{differ:#?}");
    let of = |part: &str| by_native.keys().filter(|p| p.contains(part)).count();
    assert!(of("deepspeed/ops/adam/fused_adam_op") > 0 && of("torch/lib/libtorch_cuda.so") == 1);
}

/// Of a severity: code, object and message.
fn findings(document: &Value, severity: &str) -> Vec<[String; 3]> {
    let findings = document["findings"].as_array().unwrap().iter();
    findings
        .filter(|f| f["severity"] == severity)
        .map(|f| ["code", "object", "message"].map(|key| f[key].as_str().unwrap().to_owned()))
        .collect()
}

fn the_audit_finds_nothing(sandbox: &Sandbox) {
    let image = format!("docker:{TAG}");
    let run = sandbox.run(&["audit", &image, "--gpu", "h100", "--json"]);
    let document: Value =
        serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {}", run.stderr));
    assert_eq!((run.code, findings(&document, "error")), (0, vec![]));
    // torch brings its own libgomp, and the system has one for what is compiled here.
    for [code, object, message] in findings(&document, "warning") {
        let gomp = code == "SF0904" && message.contains("`libgomp.so.1`");
        assert!(gomp, "{code} {object}: {message}");
    }
}

/// SMs of the compiled extension, as NVIDIA's own tool lists them.
fn cuobjdump_sms(sandbox: &Sandbox) -> Vec<String> {
    let container = inside_file(sandbox);
    let venv = sandbox.path("venv");
    let ok = |command: &mut Command| {
        let out = command.output().unwrap();
        assert!(
            out.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    ok(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    ok(Command::new(venv.join("bin/pip")).args([
        "install",
        "-q",
        "nvidia-cuda-cuobjdump==13.5.37",
    ]));
    let tool = ok(Command::new("find")
        .arg(&venv)
        .args(["-name", "cuobjdump", "-type", "f"]));
    let tool = tool.lines().next().unwrap().to_owned();
    ok(Command::new("chmod").args(["+x", &tool]));
    let listing = ok(Command::new(tool).args(["-all", &container]));
    let mut sms: Vec<String> = listing
        .lines()
        .filter_map(|l| l.strip_prefix("arch = "))
        .map(|l| l.trim().to_owned())
        .collect();
    sms.sort();
    sms.dedup();
    assert!(
        !listing.contains("Fatbin ptx code"),
        "PTX was not asked for"
    );
    sms
}

fn inside_file(sandbox: &Sandbox) -> String {
    let path = inside(
        "python -c 'import torch, deepspeed.ops.adam.fused_adam_op as c; print(c.__file__)'",
    );
    let out = sandbox.path("extension.so");
    let name = format!("stackforge-test-demo-{}", std::process::id());
    let run = |args: &[&str]| {
        let done = Command::new("docker").args(args).output().unwrap();
        assert!(done.status.success(), "docker {args:?}");
    };
    run(&["create", "--name", &name, TAG]);
    run(&[
        "cp",
        &format!("{name}:{}", last_line(&path)),
        &out.display().to_string(),
    ]);
    run(&["rm", &name]);
    out.display().to_string()
}
