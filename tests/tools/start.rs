//! `validate` measures starts, and compares them with limits: on this machine's own Python, with packages that
//! PYTHONPATH leads to. No time is asserted but that a sleep is not shorter than it is.

use serde_json::Value;
use support::{Run, Sandbox, document, tiny};

/// The libraries of the smallest stack; one takes its time.
fn packages(sandbox: &Sandbox) {
    let lock = std::fs::read_to_string(sandbox.path("tiny.lock")).unwrap();
    for (name, text) in [("six", "import time\ntime.sleep(0.3)\n"), ("packaging", "")] {
        let start = format!("name = \"{name}\"\nversion = \"");
        let version = lock
            .split_once(&start)
            .unwrap()
            .1
            .split('"')
            .next()
            .unwrap();
        let info = format!("site/{name}-{version}.dist-info");
        sandbox.write(&format!("site/{name}.py"), text);
        let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
        sandbox.write(&format!("{info}/METADATA"), &metadata);
        let record = format!("{name}.py,,\n{name}-{version}.dist-info/METADATA,,\n");
        sandbox.write(&format!("{info}/RECORD"), &record);
    }
}

fn validate(sandbox: &Sandbox, limits: &str, more: &[&str]) -> Run {
    sandbox.write("limits.yaml", limits);
    let args = [
        "validate",
        "rootfs:/",
        "--stack",
        "tiny.yaml",
        "--limits",
        "limits.yaml",
    ];
    let site = sandbox.path("site").display().to_string();
    sandbox.run_with(&[&args[..], more].concat(), &[("PYTHONPATH", &site)])
}

fn outcomes(document: &Value) -> Vec<(&str, &str, &str)> {
    let text =
        |judged: &'_ Value, key: &str| judged[key].as_str().unwrap().to_owned().leak() as &str;
    let all = document["limits"].as_array().unwrap().iter();
    all.map(|j| (text(j, "what"), text(j, "state"), text(j, "outcome")))
        .collect()
}

#[test]
fn a_start_is_held_against_its_limits() {
    let sandbox = tiny();
    packages(&sandbox);
    let kept = "import:\n  six: { warm: 10m, cold: { at_most: 10m, required: false } }\nkernel: { warm: { at_most: 1s, required: false } }\n";
    let run = validate(&sandbox, kept, &["--json"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let good = document(&run);
    let start = &good["validation"]["start"];
    let six = start["libraries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|l| l["name"] == "six")
        .unwrap();
    assert!(six["warm"]["import"].as_f64().unwrap() > 0.3, "{start}");
    let found = outcomes(&good);
    assert_eq!(found[0], ("import six", "warm", "kept"));
    let has_gpu = good["validation"]["device"]["gpu"].is_string();
    // There is no torch, which would start the kernel.
    assert_eq!(found[2], ("kernel", "warm", "not-measured"), "{has_gpu}");

    let exceeded =
        "import:\n  six: { warm: 300ms }\n  packaging: { warm: 10m }\n  torch: { cold: 1s }\n";
    let run = validate(&sandbox, exceeded, &[]);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    for part in [
        "SF0511",
        "six: { warm: 300ms }",
        "SF0512",
        "no library `torch`",
        "start of a new process",
    ] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    let run = validate(&sandbox, exceeded, &["--json"]);
    let bad = document(&run);
    assert_eq!((run.code, &bad["ok"]), (1, &Value::Bool(false)));
    assert_eq!(
        outcomes(&bad),
        [
            ("import packaging", "warm", "kept"),
            ("import six", "warm", "exceeded"),
            ("import torch", "cold", "not-measured"),
        ]
    );
}
