//! Bad input gets an underlined diagnostic with a code, a reason and the nearest valid name.

use support::Sandbox;

const GOOD: &str = "\
stack: small
base: debian-bookworm
target:
  platform: linux/amd64
  gpu: [h100]
python: \"3.11\"
libraries:
  torch: \"2.13.0\"
";

fn with_options(options: &str) -> String {
    let library = format!("  flash-attn: {{ version: \"2.8.3.post2\", options: {options} }}\n");
    format!("{GOOD}{library}")
}

fn check(text: &str) -> String {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", text);
    let run = sandbox.run(&["check", "s.yaml"]);
    format!("exit {}\n{}{}", run.code, run.stdout, run.stderr)
}

macro_rules! shows {
    ($($name:ident: $text:expr;)*) => {
        $(#[test]
        fn $name() {
            let text: String = $text;
            insta::assert_snapshot!(stringify!($name), check(&text));
        })*
    };
}

shows! {
    good_stack: GOOD.to_owned();
    unknown_key: GOOD.replace("python:", "pyhton:");
    unknown_key_far_from_any: GOOD.replace("python:", "colour: red\npython:");
    unknown_nested_key: GOOD.replace("  gpu:", "  gpus:");
    wrong_type: GOOD.replace("gpu: [h100]", "gpu: h100");
    unquoted_version: GOOD.replace("\"2.13.0\"", "2.10");
    duplicate_key: format!("{GOOD}python: \"3.12\"\n");
    bad_specifier: GOOD.replace("\"2.13.0\"", "\"~2.13\"");
    bad_specifier_in_a_mapping: GOOD.replace("\"2.13.0\"", "{ version: \"=>2.13\" }");
    index_that_is_none: GOOD.replace("\"2.13.0\"", "{ version: auto, index: ../wheels }") + "indexes: [\"ftp://wheels.example\"]\n";
    unknown_gpu: GOOD.replace("h100", "h10");
    unknown_gpu_far_from_any: GOOD.replace("h100", "voodoo2");
    unknown_base: GOOD.replace("debian-bookworm", "debian-bokworm");
    base_by_tag: GOOD.replace("debian-bookworm", "nvcr.io/nvidia/cuda:13.0.0-devel-ubuntu24.04");
    empty_libraries: GOOD.replace("libraries:\n  torch: \"2.13.0\"", "libraries: {}");
    missing_key: GOOD.replace("base: debian-bookworm\n", "");
    bad_names: GOOD.replace("small", "../etc").replace("torch:", "To$(id)rch:");
    several_faults_at_once: GOOD.replace("\"3.11\"", "\"3\"").replace("amd64", "riscv").replace("\"2.13.0\"", "\"x\"");
    python_the_base_lacks: GOOD.replace("\"3.11\"", "\"3.12\"");
    gpu_on_the_wrong_platform: GOOD.replace("h100", "thor");
    broken_yaml: GOOD.replace("[h100]", "[h100");
    not_a_mapping: "just text\n".to_owned();
    empty_file: String::new();
    bad_package: format!("{GOOD}packages: [git, \"x; rm -rf /\"]\n");
    bad_override: format!("{GOOD}overrides: [\"certifi >> 1\"]\n");
    an_override_whose_name_ends_with_a_dash: format!("{GOOD}overrides: [\"certifi->=1\"]\n");
    byte_code_that_is_no_yes_or_no: format!("{GOOD}bytecode: never\n");
    option_that_no_build_has: with_options("{ head_dim: [64] }");
    option_far_from_any: with_options("{ colour: red }");
    option_with_a_part_too_many: with_options("{ head_dims: [64, 80] }");
    option_without_parts: with_options("{ head_dims: [] }");
    option_switched_where_a_list_belongs: with_options("{ head_dims: false }");
    option_listed_where_a_switch_belongs: with_options("{ backward: [64] }");
    option_without_a_value: with_options("{ backward: }");
    options_of_a_library_without_any: GOOD.replace("\"2.13.0\"", "{ version: \"2.13.0\", options: { backward: false } }");
    option_that_another_library_needs: with_options("{ backward: false }").replace("  flash", "  deepspeed: auto\n  flash");
    byte_code_misspelt: format!("{GOOD}byte_code: false\n");
    attention_out_of_range: format!("{GOOD}validate: {{ attention: {{ batch: 0, heads: 1, seq: 1, head_dim: 1, dtype: float16 }} }}\n");
    app_without_a_source: format!("{GOOD}app: {{ to: /app }}\n");
    app_to_a_place_of_the_image: format!("{GOOD}app: {{ source: ., to: /opt/venv/app }}\n");
    app_to_a_relative_path: format!("{GOOD}app: {{ source: ., to: app/../x }}\n");
    app_with_an_unknown_file_of_requirements: format!("{GOOD}app: {{ source: ., requirements: Pipfile }}\n");
    app_with_groups_of_nothing: format!("{GOOD}app: {{ source: ., requirements: requirements.txt, groups: [dev] }}\n");
    app_with_requirements_that_are_not_there: format!("{GOOD}app: {{ source: ., requirements: requirements.txt }}\n");
    image_with_an_unknown_key: format!("{GOOD}image: {{ entrypont: [x] }}\n");
    image_with_a_command_of_a_shell: format!("{GOOD}image: {{ cmd: python -m x }}\n");
    image_that_hides_the_gpu: format!("{GOOD}image:\n  env:\n    NVIDIA_DRIVER_CAPABILITIES: utility\n    NVIDIA_VISIBLE_DEVICES: none\n");
    image_that_does_not_start_with_a_gpu: format!("{GOOD}image:\n  env:\n    NVIDIA_DRIVER_CAPABILITIES: compute, profile\n    NVIDIA_REQUIRE_CUDA: '>=13.0'\n    NVIDIA_VISIBLE_DEVICES: gpu0\n");
    image_with_a_secret: format!("{GOOD}image:\n  env:\n    HF_TOKEN: hf_abcdefghijklmnop\n    URL: postgres://u:pw@db/x\n");
    image_with_a_bad_variable: format!("{GOOD}image: {{ env: {{ \"A B\": x, PATH: /usr/bin, TEXT: \"a\\nb\" }} }}\n");
    image_with_bad_users: format!("{GOOD}image: {{ user: \"Bad Name\" }}\n");
    image_with_a_user_of_large_numbers: format!("{GOOD}image: {{ user: {{ name: app, uid: 4294967295 }} }}\n");
    image_with_a_user_without_a_name: format!("{GOOD}image: {{ user: {{ uid: 5 }} }}\n");
    image_with_bad_ports: format!("{GOOD}image: {{ ports: [0, 8080:80, \"53/http\"] }}\n");
    image_with_bad_places: format!("{GOOD}image: {{ workdir: app, volumes: [/, /proc/x], files: {{ etc/x: x }} }}\n");
    image_with_reserved_labels: format!("{GOOD}image: {{ labels: {{ io.stackforge.key: x, \"\": y }} }}\n");
    image_with_a_bad_signal: format!("{GOOD}image: {{ stop_signal: SIGTREM }}\n");
    image_with_a_bad_health_check: format!("{GOOD}image: {{ health: {{ cmd: [], interval: 30, retries: 0 }} }}\n");
    image_with_a_file_that_is_not_there: format!("{GOOD}image: {{ files: {{ /etc/x: x.conf }} }}\n");
    bad_checks: format!("{GOOD}validate: {{ imports: [\"a-b\"], run: [{{ cmd: [x], timeout: never }}] }}\n");
    unknown_dtype: format!("{GOOD}validate: {{ attention: {{ batch: 1, heads: 1, seq: 1, head_dim: 1, dtype: fp16 }} }}\n");
    a_folder_for_a_library: GOOD.replace("\"2.13.0\"", "./torch");
    a_repository_for_a_library: GOOD.replace("\"2.13.0\"", "git+https://github.com/pytorch/pytorch@v2.13.0");
    a_file_of_another_library: GOOD.replace("\"2.13.0\"", "https://h.test/torchaudio-2.13.0-py3-none-any.whl");
    a_wheel_for_another_python: GOOD.replace("\"2.13.0\"", "{ file: torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl }");
    a_file_beside_other_keys: GOOD.replace("\"2.13.0\"", "{ file: torch-2.13.0.tar.gz, version: \"2.13.0\", from: wheel, sha256: abc }");
    a_digest_without_a_file: GOOD.replace("\"2.13.0\"", "{ version: \"2.13.0\", sha256: abc }");
    constraints_that_are_none: format!("{GOOD}constraints: [\"numpy<\", ../c.in, gone.txt]\n");
    constraints_of_a_file_that_is_not_there: format!("{GOOD}constraints: [gone.txt]\n");
    the_newest_by_another_word: GOOD.replace("\"2.13.0\"", "latest");
    a_range_as_poetry_writes_it: GOOD.replace("\"2.13.0\"", "^2.13");
    a_range_that_pip_took_once: GOOD.replace("\"2.13.0\"", "\"<3.x,>=2.13\"");
    alias_bomb: {
        let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]\n");
        for (name, of) in [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e"), ("g", "f")] {
            bomb.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 10].join(", ")));
        }
        bomb
    };
    deep_nesting: format!("stack: {}\n", "[".repeat(5000));
}

#[test]
fn a_file_of_ten_megabytes_is_refused_by_its_size() {
    let shown = check(&format!("{GOOD}# {}\n", "x".repeat(10 << 20)));
    insta::assert_snapshot!(shown);
}

#[test]
fn a_device_without_an_end_is_refused_and_a_pipe_is_read() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&["check", "/dev/zero"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("has more than"), "{}", run.stderr);
    let pipe = sandbox.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let writer = std::thread::spawn(move || std::fs::write(pipe, GOOD));
    assert_eq!(sandbox.run(&["check", "pipe"]).code, 0);
    writer.join().unwrap().unwrap();
}

#[test]
fn a_file_that_is_not_there() {
    let run = Sandbox::new().run(&["check", "nowhere.yaml"]);
    insta::assert_snapshot!(format!("exit {}\n{}", run.code, run.stderr));
}

#[test]
fn a_misspelt_file_names_the_nearest() {
    let sandbox = Sandbox::new();
    sandbox.write("stacks/tiny.yaml", GOOD);
    sandbox.write("s.yaml", GOOD);
    let help = |path: &str| {
        let run = sandbox.run(&["check", path, "--json"]);
        assert_eq!(run.code, 2, "{}", run.stderr);
        let document = support::document(&run);
        document["diagnostics"][0]["help"].clone()
    };
    assert_eq!(help("stacks/tniy.yaml"), "did you mean `stacks/tiny.yaml`?");
    assert_eq!(help("s.yml"), "did you mean `s.yaml`?");
    let path = "check the path and its permissions";
    assert_eq!(help("stacks/quite-another.yaml"), path);
    assert_eq!(help("no-folder/tiny.yaml"), path);
}

#[test]
fn json_has_code_span_and_help() {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", &GOOD.replace("h100", "hh100"));
    let run = sandbox.run(&["check", "s.yaml", "--json"]);
    assert_eq!(run.code, 1);
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["schema"], 1);
    assert_eq!(document["ok"], false);
    let d = &document["diagnostics"][0];
    assert_eq!(d["code"], "SF0008");
    assert_eq!(d["severity"], "error");
    assert_eq!(d["span"], serde_json::json!({ "line": 5, "column": 9 }));
    assert_eq!(d["help"], "did you mean `h100`?");
}

#[test]
fn explain_knows_every_code_that_a_diagnostic_prints() {
    let sandbox = Sandbox::new();
    let all = sandbox.run(&["explain", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&all.stdout).unwrap();
    for code in document["codes"].as_array().unwrap() {
        let run = sandbox.run(&["explain", code["code"].as_str().unwrap()]);
        assert_eq!(run.code, 0);
        assert!(run.stdout.contains("Fix: "), "{}", run.stdout);
    }
    assert_eq!(sandbox.run(&["explain", "SF9999"]).code, 2);
}
