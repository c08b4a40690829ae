//! One cause is one finding, at its line, with what is true of this stack.

use support::verdict::{Verdict, verdict};

const H100: &str =
    "base: cuda-13.0-ubuntu24.04\ntarget: { platform: linux/amd64, gpu: [h100] }\npython: \"3.12\"";
const A100_CUDA_12: &str =
    "base: cuda-12.8-ubuntu24.04\ntarget: { platform: linux/amd64, gpu: [a100] }\npython: \"3.12\"";

fn check(target: &str, libraries: &str, args: &str) -> Verdict {
    let text = format!(
        "# args: --memory 64 {args}\nstack: case\n{target}\nlibraries: {{ {libraries} }}\n"
    );
    verdict(&text, None)
}

fn errors(verdict: &Verdict) -> Vec<&str> {
    let errors = verdict.findings.iter().filter(|f| f.severity == "error");
    errors.map(|f| f.code.as_str()).collect()
}

fn only(code: &str, verdict: &Verdict) {
    let codes: Vec<&str> = verdict.findings.iter().map(|f| f.code.as_str()).collect();
    assert_eq!(codes, [code], "{}", verdict.shown);
}

#[test]
fn a_pin_that_the_stack_breaks() {
    for libraries in [
        "vllm: 0.33.0, torch: 2.15.0",
        "torchaudio: 2.9.0, torch: 2.14.0",
        "torchvision: { version: 0.29.0, from: wheel }, torch: 2.13.0+cu126",
        "torch: 2.14.0, triton: 3.6.0",
    ] {
        only("SF0607", &check(H100, libraries, ""));
    }
}

#[test]
fn a_torch_without_cuda() {
    let grace = H100.replace("amd64", "arm64").replace("h100", "gh200");
    let verdict = check(&grace, "vllm: { version: 0.19.1, from: wheel }", "");
    only("SF0205", &verdict);
    let message = &verdict.findings[0].message;
    assert!(message.ends_with("(pinned by vllm 0.19.1)"), "{message}");
}

#[test]
fn a_gpu_that_is_not_on_the_platform() {
    for gpu in ["thor", "sm_110a"] {
        let target = H100.replace("h100", gpu);
        only("SF0108", &check(&target, "torch: 2.13.0, vllm: 0.32.0", ""));
        let args = format!("--gpu {gpu}");
        only("SF0108", &check(H100, "torch: 2.13.0, vllm: 0.32.0", &args));
    }
}

#[test]
fn an_image_that_is_compiled_for_another_gpu() {
    let libraries = "torch: 2.10.0, flash-attn: 2.8.3.post2, causal-conv1d: 1.7.0";
    let verdict = check(A100_CUDA_12, libraries, "--gpu h100");
    only("SF0604", &verdict);
    let finding = &verdict.findings[0];
    assert_eq!(
        finding.message,
        "causal-conv1d 1.7.0 and flash-attn 2.8.3.post2 are compiled for sm_80, which does not run on sm_90"
    );
    assert_eq!(finding.help, "add the GPU to `target.gpu` (sm_90)");
    only("SF0604", &check(A100_CUDA_12, libraries, "--gpu t4"));
    // The base's CUDA cannot make code for a B300: adding it to the target would not help.
    let verdict = check(A100_CUDA_12, libraries, "--gpu b300");
    assert!(
        verdict.findings[0].help.contains("needs CUDA 12.9"),
        "{}",
        verdict.shown
    );
}

#[test]
fn a_gpu_that_a_torch_does_not_reach_with_all_that_comes_with_it() {
    let v100 = H100.replace("h100", "v100");
    let verdict = check(&v100, "vllm: { version: 0.32.0, from: wheel }", "");
    let codes = errors(&verdict);
    assert_eq!(codes, ["SF0104", "SF0604", "SF0604"], "{}", verdict.shown);
    assert_eq!(verdict.findings.len(), 3, "{}", verdict.shown);
}

#[test]
fn a_refusal_and_what_follows_from_it() {
    let t4 = H100.replace("h100", "t4");
    let verdict = check(&t4, "sglang: 0.5.23", "");
    assert_eq!(errors(&verdict), ["SF0105"], "{}", verdict.shown);
    assert!(verdict.find("SF0604").is_none(), "{}", verdict.shown);
}

#[test]
fn a_driver_that_runs_nothing() {
    only("SF0601", &check(H100, "torch: 2.14.0", "--driver 470.10"));
    let verdict = check(H100, "torch: 2.14.0", "--driver 540.4.0");
    let message = &verdict.findings[0].message;
    assert_eq!(message, "driver 540.4.0 cannot run CUDA 13.0");
}

#[test]
fn a_torch_of_another_build() {
    // vLLM would be compiled for it, by the base's CUDA; its torch stays the one that is named.
    let verdict = check(H100, "vllm: 0.33.0, torch: 2.14.0+cu126", "");
    let mismatch = verdict.find("SF0621").expect(&verdict.shown);
    assert!(
        mismatch
            .message
            .contains("torch 2.14.0+cu126 has CUDA 12.6")
    );
}

#[test]
fn a_torch_of_another_index_has_the_cuda_of_its_label() {
    let torch = "torch: { version: 2.14.0+cu126, index: https://torch.example/cu126 }";
    let verdict = check(H100, &format!("{torch}, torchaudio: 2.11.0"), "");
    only("SF0610", &verdict);
    let help = &verdict.findings[0].help;
    assert!(
        help.ends_with("from an `index` that has it, as torch 2.14.0+cu126"),
        "{help}"
    );
}

#[test]
fn findings_stand_at_the_line_that_brings_them() {
    let verdict = check(A100_CUDA_12, "torch: 2.9.1, triton: 3.5.1", "--gpu sm_88");
    let line = verdict.find("SF0609").expect(&verdict.shown).span.as_ref();
    assert!(line.is_some_and(|s| s.line > 0), "{}", verdict.shown);
    // triton comes with torch: its wheel asks for it, not its release.
    let verdict = check(A100_CUDA_12, "torch: 2.9.1", "--gpu sm_88");
    let line = verdict.find("SF0609").expect(&verdict.shown).span.as_ref();
    assert!(line.is_some_and(|s| s.line > 0), "{}", verdict.shown);
}
