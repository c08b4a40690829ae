//! Sets that work pass `check` without a word: no false alarm.

use stackforge_stack::spec::{Platform, Sm};
use support::verdict::{Verdict, judged, verdict};
use support::{Sandbox, yaml_files};

/// Where a set runs.
struct Place {
    base: &'static str,
    platform: &'static str,
    python: &'static str,
    gpus: &'static [&'static str],
}

const THOR: Place = Place {
    base: "thor-jetpack7",
    platform: "linux/arm64",
    python: "3.12",
    gpus: &["thor"],
};

const CUDA_13: Place = Place {
    base: "cuda-13.0-ubuntu24.04",
    platform: "linux/amd64",
    python: "3.12",
    gpus: &["h100", "a100", "rtx4090", "b200"],
};

const CUDA_13_GRACE: Place = Place {
    base: "cuda-13.0-ubuntu24.04",
    platform: "linux/arm64",
    python: "3.12",
    gpus: &["gh200", "gb200"],
};

const CUDA_12: Place = Place {
    base: "cuda-12.8-ubuntu24.04",
    platform: "linux/amd64",
    python: "3.12",
    gpus: &["a100", "h100", "rtx4090", "b200"],
};

const VLLM_0_33: &str = "  vllm: 0.33.0
  torch: 2.14.0
  triton: 3.8.0
  torchvision: 0.29.0
  torchaudio: 2.11.0
";

const TORCH_2_8: &str = "  torch: 2.8.0
  triton: 3.4.0
  torchvision: 0.23.0
  torchaudio: 2.8.0
";

const VLLM_0_11_2: &str = "  vllm: 0.11.2
  torch: 2.9.0
  torchvision: 0.24.0
  torchaudio: 2.9.0
  xformers: 0.0.33.post1
  flashinfer: 0.5.2
";

/// The set on each GPU of the place, with enough memory to compile.
fn sets(place: &Place, libraries: &str) -> Vec<(String, Verdict)> {
    let check = |gpu: &&str| {
        let text = format!(
            "# args: --memory 64\nstack: set\nbase: {}\ntarget: {{ platform: {}, gpu: [{gpu}] }}\npython: \"{}\"\nlibraries:\n{libraries}",
            place.base, place.platform, place.python
        );
        let verdict = verdict(&text, None);
        (text, verdict)
    };
    place.gpus.iter().map(check).collect()
}

fn passes(place: &Place, libraries: &str) {
    for (text, verdict) in sets(place, libraries) {
        assert!(verdict.is_clean(), "{text}\n{}", verdict.shown);
    }
}

#[test]
fn vllm_with_its_torch() {
    for place in [THOR, CUDA_13, CUDA_13_GRACE] {
        passes(&place, VLLM_0_33);
    }
    passes(&CUDA_13, "  vllm: 0.22.1\n");
}

#[test]
fn what_was_the_default_once() {
    passes(&CUDA_12, TORCH_2_8);
    let place = Place {
        gpus: &["a100", "h100"],
        ..CUDA_12
    };
    passes(&place, VLLM_0_11_2);
    passes(&place, "  vllm: 0.11.2\n");
}

/// vLLM asks for xFormers on x86_64 alone: there is none for arm64.
#[test]
fn vllm_on_grace_beside_a_torch_of_its_own_index() {
    let place = Place {
        base: "cuda-12.8-ubuntu24.04",
        gpus: &["gh200"],
        ..CUDA_13_GRACE
    };
    let torch = "  torch: { version: 2.9.0, index: https://torch.example/cu128 }\n";
    passes(&place, &format!("{torch}  vllm: 0.11.2\n"));
}

#[test]
fn flash_attention_compiled_beside_each() {
    let flash = "  flash-attn: { version: 2.8.3.post2, from: source }\n";
    for (place, set) in [
        (THOR, VLLM_0_33),
        (CUDA_13, VLLM_0_33),
        (CUDA_13_GRACE, VLLM_0_33),
        (CUDA_13, "  vllm: 0.22.1\n"),
        (CUDA_12, TORCH_2_8),
        (CUDA_12, VLLM_0_11_2),
    ] {
        passes(&place, &format!("{set}{flash}"));
    }
}

#[test]
fn kernels_beside_their_torch() {
    passes(&CUDA_13, "  sglang-kernel: 0.4.9\n  torch: 2.14.1\n");
    let oldest_python = Place {
        base: "cuda-13.0-ubuntu22.04",
        python: "3.10",
        ..CUDA_13
    };
    passes(&oldest_python, "  sglang-kernel: 0.4.10\n  torch: 2.14.1\n");
    let wheel = "bitsandbytes: { version: 0.50.2, from: wheel }";
    passes(&CUDA_12, &format!("  torch: 2.10.0\n  {wheel}\n"));
    passes(&CUDA_13, &format!("  torch: 2.13.0\n  {wheel}\n"));
    let wheel = "xformers: { version: 0.0.34, from: wheel }";
    passes(&CUDA_12, &format!("  torch: 2.10.0\n  {wheel}\n"));
}

/// A release after those that the catalog knows is not held against anyone.
#[test]
fn releases_of_tomorrow() {
    for torch in ["\">=2.16\"", "\">2.15\"", "2.99.0"] {
        passes(
            &CUDA_13,
            &format!("  torch: {torch}\n  torchvision: auto\n"),
        );
    }
    passes(&CUDA_13, "  vllm: 0.99.0\n  torch: 2.15.0\n");
}

/// An open requirement of one library does not win over the exact one of another.
#[test]
fn what_libraries_bring_is_what_all_of_them_take() {
    let bitsandbytes = "  bitsandbytes: { version: 0.50.2, from: wheel }\n";
    passes(&CUDA_13, &format!("{bitsandbytes}  vllm: 0.32.0\n"));
    passes(&CUDA_12, &format!("{bitsandbytes}  vllm: 0.19.1\n"));
}

#[test]
fn code_of_an_sm_with_a_suffix() {
    let thor = |gpus| Place { gpus, ..THOR };
    passes(&thor(&["sm_110a", "sm_110f"]), VLLM_0_33);
    let hopper = |gpus| Place { gpus, ..CUDA_13 };
    passes(&hopper(&["sm_90a", "sm_100f", "h100, sm_90a"]), VLLM_0_33);
}

#[test]
fn wheels_of_an_index_of_its_own() {
    let index = "index: https://wheels.example/simple";
    let label = "2.8.3+cu12torch2.8cxx11abiTRUE";
    let flash = format!("  flash-attn: {{ version: {label}, from: wheel, {index} }}\n");
    passes(&CUDA_12, &format!("{TORCH_2_8}{flash}"));
    let torch = format!("  torch: {{ version: 2.10.0+cu130, from: wheel, {index} }}\n");
    passes(&THOR, &torch);
}

/// The machine that runs an image is not the one that its code is compiled for.
#[test]
fn images_on_other_machines_than_their_target() {
    let flash = "torch: 2.13.0\n  flash-attn: 2.8.3.post2";
    for (target, args) in [
        ("a100", "--gpu sm_88"),
        ("a100", "--gpu rtx4090"),
        ("h100", "--gpu sm_90a"),
        ("h100", "--driver 580.65.06"),
        ("h100", "--driver 999"),
    ] {
        let text = format!(
            "# args: --memory 64 {args}\nstack: set\nbase: {}\ntarget: {{ platform: linux/amd64, gpu: [{target}] }}\npython: \"3.12\"\njit: false\nlibraries:\n  {flash}\n",
            CUDA_13.base
        );
        let verdict = verdict(&text, None);
        let errors = verdict.findings.iter().filter(|f| f.severity == "error");
        assert_eq!(errors.count(), 0, "{text}\n{}", verdict.shown);
    }
}

#[test]
fn stock_stacks_with_and_without_their_lock() {
    for file in yaml_files("stacks") {
        let path = file.display().to_string();
        let sandbox = Sandbox::new();
        sandbox.write("copy.yaml", &std::fs::read_to_string(&file).unwrap());
        for stack in [path.as_str(), "copy.yaml"] {
            let run = sandbox.run(&["check", stack, "--json", "--memory", "64"]);
            assert_eq!(run.code, 0, "{path}: {}{}", run.stdout, run.stderr);
            let answer: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
            let findings = answer["diagnostics"].as_array();
            assert!(findings.is_none_or(Vec::is_empty), "{path}: {}", run.stdout);
        }
    }
}

/// Every torch of the catalog, as each of its wheels, on every GPU that its list has.
#[test]
fn torch_on_the_gpus_of_its_list() {
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let mut pairs = 0;
    for (version, release) in catalog.releases("torch").unwrap() {
        for wheel in &release.wheels {
            let platform = wheel.platform.unwrap();
            let core = wheel.code.iter().find(|c| c.core);
            let local = wheel.local.as_deref().map(|l| format!("+{l}"));
            let torch = format!("{version}{}", local.unwrap_or_default());
            for sm in core.iter().flat_map(|c| &c.sm) {
                let exists = |sm: Sm| catalog.sm_facts(sm).unwrap().platforms.contains(&platform);
                if !exists(*sm) || lacks_an_assembler(&torch, *sm) {
                    continue;
                }
                let text = alone(&torch, *sm, platform);
                let found = judged(&catalog, &text);
                assert!(found.is_empty(), "{text}\n{found:#?}");
                pairs += 1;
            }
        }
    }
    assert!(pairs > 200, "{pairs}");
}

/// torch 2.11 pins a Triton that cannot compile for the Thor that its own wheel supports.
fn lacks_an_assembler(torch: &str, sm: Sm) -> bool {
    torch.starts_with("2.11.0") && sm == Sm::new(11, 0)
}

/// torch and its Triton, wheels alone, on a base without CUDA that has a Python for them.
fn alone(torch: &str, sm: Sm, platform: Platform) -> String {
    format!(
        "stack: set\nbase: debian-bookworm\ntarget: {{ platform: {platform}, gpu: [sm_{}] }}\npython: \"3.11\"\nlibraries:\n  torch: {{ version: {torch:?}, from: wheel }}\n  triton: auto\n",
        sm.digits()
    )
}
