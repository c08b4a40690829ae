//! `doctor` says what a machine is and what to do about it; `init` starts from that.

use serde_json::Value;
use support::{Sandbox, machines};

fn sandbox(machine: fn(&Sandbox)) -> Sandbox {
    let sandbox = Sandbox::new();
    machine(&sandbox);
    sandbox
}

fn report(machine: fn(&Sandbox)) -> String {
    let run = sandbox(machine).run(&["doctor", "--root", "machine"]);
    format!("exit {}\n{}{}", run.code, run.stdout, run.stderr)
}

fn document(sandbox: &Sandbox, args: &[&str], env: &[(&str, &str)]) -> Value {
    let run = sandbox.run_with(args, env);
    assert_eq!(run.code, 0, "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

fn codes(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().unwrap();
    findings
        .iter()
        .map(|f| f["code"].as_str().unwrap())
        .collect()
}

macro_rules! shows {
    ($($name:ident: $machine:path;)*) => {
        $(#[test]
        fn $name() {
            insta::assert_snapshot!(stringify!($name), report($machine));
        })*
    };
}

shows! {
    thor_with_jetpack_7: machines::thor_r38;
    thor_with_jetpack_7_2: machines::thor_r39;
    orin_with_jetpack_6: machines::orin_r36;
    orin_with_jetpack_5: machines::orin_r35;
    server_with_two_h100: machines::h100;
    server_with_an_old_driver: machines::a100_old_driver;
    gpu_without_a_driver: machines::no_driver;
    laptop_without_a_gpu: machines::laptop;
}

#[test]
fn json_holds_every_fact_and_null_for_what_is_not_known() {
    let server = sandbox(machines::h100);
    let document = document(&server, &["doctor", "--root", "machine", "--json"], &[]);
    insta::assert_json_snapshot!(document);
}

#[test]
fn an_empty_directory_is_a_machine_of_which_nothing_is_known() {
    let sandbox = Sandbox::new();
    sandbox.write("machine/etc/motd", "hello\n");
    let document = document(&sandbox, &["doctor", "--root", "machine", "--json"], &[]);
    assert_eq!(document["device"]["platform"], Value::Null);
    assert_eq!(document["device"]["driver"], Value::Null);
    assert_eq!(document["gpus"], serde_json::json!([]));
    assert_eq!(document["findings"], serde_json::json!([]));
    assert_eq!(document["can"]["run"]["why_not"], "no NVIDIA GPU");
}

#[test]
fn this_machine_is_reported_whatever_it_is() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&["doctor", "--offline"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let sections: Vec<&str> = run
        .stdout
        .lines()
        .take_while(|l| !l.contains("SF0"))
        .filter(|l| l.starts_with(|c: char| c.is_ascii_alphabetic()) && !l.starts_with("next: "))
        .collect();
    let last = run.stdout.lines().next_back().unwrap_or_default();
    assert!(last.starts_with("next: stackforge "), "{last}");
    assert_eq!(
        sections,
        [
            "machine",
            "GPU",
            "CUDA",
            "containers",
            "memory and disk",
            "network",
            "can build",
            "can run"
        ]
    );
    let document = document(&sandbox, &["doctor", "--offline", "--json"], &[]);
    assert_eq!(document["schema"], 1);
    let info = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = document["device"]["memory"]["total"].as_u64().unwrap() / 1024;
    assert!(info.contains(&format!("{total} kB")));
    assert_eq!(document["live"]["network"]["index"]["state"], "not-asked");
    let store = &document["live"]["disks"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()["free"];
    assert!(store.as_u64().unwrap() > 0);
}

#[test]
fn what_does_not_answer_is_a_finding_that_names_no_host() {
    let sandbox = Sandbox::new();
    let nowhere = sandbox.path("no.sock").display().to_string();
    let env = [
        ("DOCKER_HOST", &*format!("unix://{nowhere}")),
        ("UV_DEFAULT_INDEX", "http://name:secret@127.0.0.1:1/simple"),
        ("STACKFORGE_DEBIAN_MIRROR", "http://127.0.0.1:1/debian"),
        ("HTTP_PROXY", ""),
        ("http_proxy", ""),
        ("ALL_PROXY", ""),
        ("all_proxy", ""),
    ];
    let run = sandbox.run_with(&["doctor", "--json"], &env);
    assert_eq!(run.code, 0, "a report is not a failure: {}", run.stderr);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    let codes = codes(&document);
    assert!(codes.contains(&"SF0301"), "{codes:?}");
    assert_eq!(codes.iter().filter(|c| **c == "SF0808").count(), 2);
    assert_eq!(
        document["can"]["build"]["why_not"],
        "no container engine answers"
    );
    assert!(!run.stdout.contains("secret") && !run.stdout.contains("127.0.0.1"));
}

/// What nvcc of two releases prints.
fn nvcc(sandbox: &Sandbox, directory: &str, release: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = format!("{directory}/bin/nvcc");
    sandbox.write(
        &path,
        &format!("#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.88'\n"),
    );
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path(&path), mode).unwrap();
}

#[test]
fn an_nvcc_of_another_major_than_torch_s_is_found_with_its_remedy() {
    let sandbox = Sandbox::new();
    nvcc(&sandbox, "cuda-12.4", "12.4");
    nvcc(&sandbox, "cuda-13.0", "13.0");
    let site = "venv/lib/python3.12/site-packages/torch";
    sandbox.write(
        &format!("{site}/version.py"),
        "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n",
    );
    let at = |name: &str| sandbox.path(name).display().to_string();
    let system = std::env::var("PATH").unwrap();
    let path = format!("{}:{}:{system}", at("cuda-12.4/bin"), at("cuda-13.0/bin"));
    let env = [
        ("PATH", path.as_str()),
        ("CUDA_HOME", &at("cuda-13.0")),
        ("VIRTUAL_ENV", &at("venv")),
    ];
    let run = sandbox.run_with(&["doctor", "--offline", "--json"], &env);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    let toolkits = document["device"]["toolkits"].as_array().unwrap();
    assert_eq!(toolkits[0]["version"], "12.4");
    assert_eq!(toolkits[0]["first"], true);
    assert_eq!(toolkits[1]["version"], "13.0");
    assert_eq!(
        toolkits[1]["found"],
        serde_json::json!(["PATH", "CUDA_HOME"])
    );
    let findings = document["findings"].as_array().unwrap();
    let misfit = findings.iter().find(|f| f["code"] == "SF0804").unwrap();
    assert_eq!(
        misfit["message"],
        "`[DIR]/cuda-12.4/bin/nvcc` (CUDA 12.4) comes first in PATH, but torch 2.13.0+cu130 is for CUDA 13.0"
    );
    assert_eq!(misfit["help"], "put `[DIR]/cuda-13.0/bin` first in PATH");
}

/// `init` for a machine, and what `check` says of the result.
fn started(machine: fn(&Sandbox)) -> String {
    let sandbox = sandbox(machine);
    let run = sandbox.run(&["init", "--root", "machine", "-o", "s.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let check = sandbox.run(&["check", "s.yaml"]);
    assert_eq!(check.code, 0, "{}", check.stderr);
    std::fs::read_to_string(sandbox.path("s.yaml")).unwrap()
}

#[test]
fn init_takes_the_base_that_a_machine_runs() {
    let stacks = [
        started(machines::thor_r38),
        started(machines::thor_r39),
        started(machines::orin_r36),
        started(machines::h100),
        started(machines::a100_old_driver),
    ];
    insta::assert_snapshot!(stacks.join("---\n"));
}

#[test]
fn init_without_a_gpu_asks_for_its_name() {
    for machine in [machines::laptop, machines::no_driver, machines::orin_r35] {
        let sandbox = sandbox(machine);
        let run = sandbox.run(&["init", "--root", "machine"]);
        assert_eq!(run.code, 3);
        assert!(!sandbox.path("machine.yaml").exists());
        insta::assert_snapshot!(run.stderr);
    }
}

#[test]
fn init_for_each_gpu_passes_check() {
    for gpu in [
        "thor", "orin", "h100", "a100", "rtx4090", "b200", "gb10", "v100", "sm_90",
    ] {
        let sandbox = Sandbox::new();
        let run = sandbox.run(&["init", "--gpu", gpu, "-o", "s.yaml"]);
        assert_eq!(run.code, 0, "{gpu}: {}", run.stderr);
        let check = sandbox.run(&["check", "s.yaml"]);
        assert_eq!(check.code, 0, "{gpu}: {}", check.stderr);
        let again = sandbox.run(&["init", "--gpu", gpu, "-o", "s.yaml"]);
        assert_eq!(again.code, 2, "an existing file stays");
    }
    let run = Sandbox::new().run(&["init", "--gpu", "h1000"]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("did you mean `h100`?"),
        "{}",
        run.stderr
    );
}
