//! A matrix expands to exactly the variants that can work, and says why each other cannot.

use std::collections::{BTreeMap, BTreeSet};
use support::Sandbox;

/// The variants of the vLLM builds that the matrix replaces, from their rules: which
/// instruction sets exist for which SM, and that CUDA 12.8 has no sm_103.
fn names_by_rule() -> BTreeSet<String> {
    let x86 = ["avx", "avx2", "avx512", "avx512bf16", "avx512vnni"];
    let mut names = BTreeSet::new();
    for cuda in ["12_9", "12_8"] {
        for sm in [61, 70, 75, 80, 86, 89, 90, 100, 103, 120] {
            if cuda == "12_8" && sm == 103 {
                continue;
            }
            let mut isas = match sm {
                61 => x86[..2].to_vec(),
                _ => x86.to_vec(),
            };
            if [80, 90].contains(&sm) {
                isas.push("armv8_2");
            }
            if [90, 100, 103].contains(&sm) {
                isas.push("armv9");
            }
            for isa in isas {
                names.insert(format!("vllm-python312-cuda{cuda}-sm{sm}-{isa}"));
            }
        }
    }
    names
}

fn matrix_of(path: &str) -> serde_json::Value {
    let path = support::project(path).display().to_string();
    let run = Sandbox::new().run(&["matrix", &path, "--json", "--offline"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn the_vllm_matrix_has_exactly_its_98_variants() {
    let document = matrix_of("stacks/vllm-matrix.yaml");
    let variants = document["variants"].as_array().unwrap();
    let names: BTreeSet<String> = variants
        .iter()
        .map(|v| v["name"].as_str().unwrap().to_owned())
        .collect();
    let expected = names_by_rule();
    assert_eq!(expected.len(), 98);
    assert_eq!(variants.len(), 98, "no name twice");
    let difference: Vec<_> = names.symmetric_difference(&expected).collect();
    assert!(difference.is_empty(), "{difference:?}");
    let of = |cuda: &str| variants.iter().filter(|v| v["cuda"] == cuda).count();
    assert_eq!((of("12.9"), of("12.8")), (52, 46));

    let rejected = document["rejected"].as_array().unwrap();
    assert_eq!(
        rejected.len(),
        10 * 7 * 2 - 98,
        "each other combination is refused"
    );
    for r in rejected {
        assert!(!names.contains(r["name"].as_str().unwrap()));
        assert!(!r["message"].as_str().unwrap().is_empty());
        assert!(["SF0104", "SF0109"].contains(&r["code"].as_str().unwrap()));
    }
}

#[test]
fn a_variant_says_what_its_builds_are_told() {
    let document = matrix_of("stacks/vllm-matrix.yaml");
    let variant = |name: &str| {
        let variants = document["variants"].as_array().unwrap();
        variants.iter().find(|v| v["name"] == name).unwrap().clone()
    };
    insta::assert_json_snapshot!("volta", variant("vllm-python312-cuda12_9-sm70-avx512"));
    let arm = variant("vllm-python312-cuda12_8-sm90-armv9");
    assert_eq!(arm["platform"], "linux/arm64");
    assert_eq!(arm["base"], "cuda-12.8-ubuntu24.04");
    for compiled in arm["compiled"].as_array().unwrap() {
        assert_eq!(compiled["env"]["CXXFLAGS"], "-march=armv9-a+sve2+bf16+i8mm");
        assert!(compiled["env"].get("USE_CUDNN").is_none());
    }
}

#[test]
fn the_table_reads_well() {
    let path = support::project("stacks/vllm-matrix.yaml");
    let run = Sandbox::new().run(&["matrix", &path.display().to_string()]);
    insta::assert_snapshot!("table", run.stdout);
}

fn plan_of(variant: &str) -> serde_json::Value {
    let path = support::project("stacks/vllm-matrix.yaml");
    let path = path.display().to_string();
    let run = Sandbox::new().run(&["plan", &path, "--variant", variant, "--json", "--offline"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["variants"].as_array().unwrap().len(), 1);
    document["variants"][0].clone()
}

fn keys(plan: &serde_json::Value) -> BTreeMap<String, String> {
    let steps = plan["steps"].as_array().unwrap();
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    steps
        .iter()
        .map(|s| (text(&s["id"]), text(&s["key"])))
        .collect()
}

#[test]
fn variants_share_what_neither_sm_nor_instruction_set_changes() {
    let avx = plan_of("vllm-python312-cuda12_9-sm90-avx");
    assert_eq!(avx["isa"], "avx");
    assert_eq!(avx["sm"], serde_json::json!(["90"]));
    let avx = keys(&avx);
    for other in [
        "vllm-python312-cuda12_9-sm90-avx2",
        "vllm-python312-cuda12_9-sm80-avx",
    ] {
        for (id, key) in keys(&plan_of(other)) {
            let shared = ["base", "tools"].contains(&id.as_str()) || id.starts_with("wheels:");
            assert_eq!(avx[&id] == key, shared, "{id} of {other}");
        }
    }
}

/// A directory with the vLLM matrix, changed, as s.yaml and its lock as it is.
fn sandbox_with(from: &str, to: &str) -> Sandbox {
    let read = |name| std::fs::read_to_string(support::project(name)).unwrap();
    let stack = read("stacks/vllm-matrix.yaml");
    assert!(stack.contains(from));
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", &stack.replace(from, to));
    sandbox.write("s.lock", &read("stacks/vllm-matrix.lock"));
    sandbox
}

fn checked(from: &str, to: &str) -> String {
    let run = sandbox_with(from, to).run(&["check", "s.yaml"]);
    format!("{}{}", run.stdout, run.stderr)
}

#[test]
fn a_lock_is_stale_when_an_axis_changes_what_is_installed() {
    for (from, to) in [
        ("stack: vllm", "stack: vllm"),
        ("avx512bf16, avx512vnni", "avx512bf16"),
        ("\"12.9\", \"12.8\"", "\"12.8\""),
        ("[linux/amd64, linux/arm64]", "[linux/arm64, linux/amd64]"),
    ] {
        let output = checked(from, to);
        assert!(output.contains(", locked; "), "{to}: {output}");
    }
    for (from, to, key) in [
        (
            "\"12.9\", \"12.8\"",
            "\"12.9\", \"13.0\"",
            "`base` (`cuda-13.0-ubuntu24.04`)",
        ),
        ("\"9.0\", ", "", "`gpu` was"),
        (
            "triton: \"3.6.0\"",
            "triton: \"3.5.1\"",
            "`libraries.triton` was",
        ),
    ] {
        let output = checked(from, to);
        assert!(
            output.contains("SF0202") && output.contains(key),
            "{to}: {output}"
        );
    }
}

#[test]
fn check_for_a_gpu_counts_the_variants_that_run_there() {
    let sandbox = sandbox_with("stack: vllm", "stack: vllm");
    // Code for sm_70 runs on a T4 too.
    for (gpu, variants) in [("h100", 14), ("t4", 20)] {
        let run = sandbox.run(&["check", "s.yaml", "--gpu", gpu, "--json"]);
        let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(document["variants"], variants, "{gpu}");
        assert_eq!(document["rejected"], 140 - variants, "{gpu}");
    }
    let run = sandbox.run(&["check", "s.yaml", "--gpu", "thor"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("SF0022"), "{}", run.stderr);
}

#[test]
fn a_variant_has_to_be_named_and_to_exist() {
    let sandbox = sandbox_with("stack: vllm", "stack: vllm");
    sandbox.write(
        "plain.yaml",
        &SMALL.replace("{{cuda}}", "12.9").replace(AXIS, ""),
    );
    let mut all = String::new();
    for args in [
        "render s.yaml -o out",
        "plan s.yaml --dot",
        "plan s.yaml --variant vllm-python312-cuda12_9-sm90-avx51",
        "build s.yaml --variant vllm-python312-cuda12_8-sm103-avx",
        "plan plain.yaml --variant x",
    ] {
        let words: Vec<&str> = args.split(' ').collect();
        let run = sandbox.run(&words);
        all.push_str(&format!("$ {args}\nexit {}\n{}\n", run.code, run.stderr));
    }
    insta::assert_snapshot!("named", all);
}

const SMALL: &str = r#"stack: small
base: cuda-{{cuda}}-ubuntu24.04
target: { platform: linux/amd64, gpu: [h100] }
python: "3.12"
libraries:
  torch: "2.10.*"
matrix:
  cuda: ["12.9", "12.8"]
"#;
const AXIS: &str = "matrix:\n  cuda: [\"12.9\", \"12.8\"]\n";

fn run(command: &str, text: &str) -> String {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", text);
    let run = sandbox.run(&[command, "s.yaml"]);
    format!("exit {}\n{}{}", run.code, run.stdout, run.stderr)
}

macro_rules! shows {
    ($($name:ident: $command:literal, $text:expr;)*) => {
        $(#[test]
        fn $name() {
            let text: String = $text;
            insta::assert_snapshot!(stringify!($name), run($command, &text));
        })*
    };
}

shows! {
    one_axis: "matrix", SMALL.to_owned();
    check_counts_variants: "check", SMALL.replace("[h100]", "[sm_103]");
    platforms_are_named_where_names_would_repeat: "matrix",
        format!("{SMALL}  platform: [linux/amd64, linux/arm64]\n");
    no_matrix_is_one_variant: "matrix",
        SMALL.replace("{{cuda}}", "12.9").replace(AXIS, "");
    axes_in_place_of_the_target: "matrix",
        SMALL.replace("target: { platform: linux/amd64, gpu: [h100] }\n", "")
            + "  sm: [sm_90, \"12.0\"]\n  platform: [linux/amd64]\n";
    nothing_left: "matrix", SMALL.replace("[h100]", "[thor]").replace("amd64", "arm64");
    unknown_values: "matrix",
        SMALL.replace("12.8\"]", "12.7\"]") + "  sm: [\"9.1\"]\n  isa: [avx51, armv9]\n";
    values_that_do_not_parse: "check",
        SMALL.replace("\"12.8\"", "\"12\"")
            + "  sm: [hopper]\n  isa: [AVX]\n  platform: [linux/riscv64]\n  python: [\"3\"]\n";
    values_that_stand_twice: "check", SMALL.replace("12.8", "12.9") + "  sm: [\"9.0\", sm_90]\n";
    a_placeholder_without_its_axis: "check", SMALL.replace("cuda: [", "python: [").replace("12.9\", \"12.8", "3.12");
    an_axis_without_its_placeholder: "check", SMALL.replace("{{cuda}}", "12.9");
    an_unknown_placeholder: "check", SMALL.replace("ubuntu24.04", "{{os}}");
    a_missing_target: "check", SMALL.replace("target: { platform: linux/amd64, gpu: [h100] }\n", "");
    too_many_combinations: "check", {
        let sms: Vec<String> = (1..99).map(|n| format!("\"{n}.0\"")).collect();
        let pythons: Vec<String> = (6..40).map(|n| format!("\"3.{n}\"")).collect();
        format!("{SMALL}  sm: [{}]\n  python: [{}]\n", sms.join(", "), pythons.join(", "))
    };
}
