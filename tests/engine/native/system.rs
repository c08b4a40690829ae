//! OS packages that wheels need and no stack names: found when it is locked, and enough for the image.

use super::ok;
use support::Sandbox;

/// A library that a linker wants and one that Python opens by its name.
fn sandbox(more: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.warm("store");
    sandbox.write(
        "s.yaml",
        &format!(
            "stack: stackforge-test-system\nbase: debian-bookworm\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\n\
             python: \"3.11\"\nlibraries: {{ lightgbm: \"4.6.0\", pyzbar: \"0.1.9\" }}\njit: false\nbytecode: false\n{more}"
        ),
    );
    sandbox
}

#[test]
fn what_wheels_need_of_the_system_is_locked_with_them() {
    let sandbox = sandbox("");
    let locked = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(locked.code, 0, "{}", locked.stderr);
    for line in [
        "  libgomp1: lightgbm needs libgomp.so.1",
        "  libzbar0: pyzbar needs libzbar.so.0",
    ] {
        assert!(
            locked.stdout.lines().any(|l| l == line),
            "{}",
            locked.stdout
        );
    }
    let text = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();

    // Nothing is read or chosen anew where nothing changed, and offline neither.
    let again = sandbox.run(&["lock", "s.yaml", "--json"]);
    let document = ok(&again);
    assert_eq!(document["changed"], false);
    assert_eq!(
        document["os_libraries"]["libgomp1"],
        "lightgbm needs libgomp.so.1"
    );
    assert!(!again.stderr.contains("reading what"), "{}", again.stderr);
    let offline = sandbox.run(&["lock", "s.yaml", "--offline"]);
    assert_eq!(offline.code, 0, "{}", offline.stderr);
    assert_eq!(
        std::fs::read_to_string(sandbox.path("s.lock")).unwrap(),
        text
    );

    for engine in ["native", "docker"] {
        let plan = sandbox.run(&["plan", "s.yaml", "--engine", engine]);
        let line = "  libgomp1  OS package  lightgbm needs libgomp.so.1";
        assert!(plan.stdout.lines().any(|l| l == line), "{}", plan.stdout);
    }
    let built = ok(&sandbox.run(&["build", "s.yaml", "--engine", "native", "--json"]));
    assert_eq!(built["validation"]["ok"], true, "{built:#}");
    assert_eq!(built["audit"]["errors"], 0, "{built:#}");

    // A lock of before has none of them: they are added, and what was locked stays.
    let stripped: String = text
        .split("[[")
        .filter(|part| !part.contains("libgomp1") && !part.contains("libzbar0"))
        .collect::<Vec<_>>()
        .join("[[");
    sandbox.write("s.lock", &stripped);
    let mended = ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    assert_eq!(mended["changed"], true);
    assert_eq!(
        std::fs::read_to_string(sandbox.path("s.lock")).unwrap(),
        text
    );

    // What nothing takes any more goes.
    let stack = std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
    sandbox.write("s.yaml", &stack.replace("lightgbm: \"4.6.0\", ", ""));
    let less = ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    let left = serde_json::json!({ "libzbar0": "pyzbar needs libzbar.so.0" });
    assert_eq!(less["os_libraries"], left);
}

/// torch has a libgomp.so.1 of its own, which only those find that import torch first.
#[test]
fn a_common_library_of_another_wheel_is_an_os_package() {
    let sandbox = sandbox("");
    let stack = std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
    let libraries = |other: &str| {
        let stack = stack.replace("pyzbar: \"0.1.9\"", "torch: \"2.15.0\"");
        sandbox.write("s.yaml", &stack.replace("lightgbm: \"4.6.0\"", other));
        let locked = ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
        locked["os_libraries"].clone()
    };
    let gomp = &libraries("lightgbm: \"4.6.0\"")["libgomp1"];
    assert_eq!(gomp, "lightgbm needs libgomp.so.1");
    let requires_torch = libraries("bitsandbytes: \"0.50.2\"");
    assert!(requires_torch["libgomp1"].is_null(), "{requires_torch:#}");
}

#[test]
fn a_stack_that_wants_none_is_told_what_is_missing() {
    let sandbox = sandbox("os_libraries: false\n");
    let locked = ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    assert_eq!(locked["os_libraries"], serde_json::json!({}));
    let built = sandbox.run(&["build", "s.yaml", "--engine", "native", "--json"]);
    assert_eq!(built.code, 1, "{}", built.stdout);
    let document: serde_json::Value = serde_json::from_str(&built.stdout).unwrap();
    let found = &document["matches"][0];
    assert_eq!(found["code"], "SF0701", "{document:#}");
    let fix = found["fix"].as_str().unwrap();
    assert!(fix.contains("packages: [libgomp1]"), "{fix}");
}

/// Of CUDA's libraries no OS package has one: their extra brings them.
#[test]
fn a_lock_that_is_refused_is_one_document_and_its_fix_works() {
    let sandbox = Sandbox::new();
    let stack = "stack: refused\nbase: debian-bookworm\ntarget: { platform: linux/amd64, gpu: [h100] }\n\
                 python: \"3.11\"\nlibraries:\n  cupy-cuda12x: \"14.*\"\njit: false\n";
    sandbox.write("s.yaml", stack);
    let refused = sandbox.run(&["lock", "s.yaml", "--json"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    let document: serde_json::Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!(
        (&document["ok"], &document["changed"]),
        (&false.into(), &true.into())
    );
    assert_eq!(document["diagnostics"][0]["code"], "SF0214");
    assert!(sandbox.path("s.lock").exists(), "it shows what was found");
    sandbox.run(&["check", "--fix", "s.yaml"]);
    ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
}
