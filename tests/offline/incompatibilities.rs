//! Known incompatibilities of the field: `check` finds each where it bites, and is silent
//! about the stack that works instead.

use support::project;
use support::verdict::{Verdict, verdict};

const H100: &str =
    "base: cuda-13.0-ubuntu24.04\ntarget: { platform: linux/amd64, gpu: [h100] }\npython: \"3.12\"";
const H100_CUDA_12: &str =
    "base: cuda-12.8-ubuntu24.04\ntarget: { platform: linux/amd64, gpu: [h100] }\npython: \"3.12\"";
const H100_PYTHON_3_10: &str =
    "base: cuda-13.0-ubuntu22.04\ntarget: { platform: linux/amd64, gpu: [h100] }\npython: \"3.10\"";
const H100_PYTHON_3_11: &str =
    "base: debian-bookworm\ntarget: { platform: linux/amd64, gpu: [h100] }\npython: \"3.11\"";
const B200: &str =
    "base: cuda-13.0-ubuntu24.04\ntarget: { platform: linux/amd64, gpu: [b200] }\npython: \"3.12\"";
const GH200: &str = "base: cuda-13.0-ubuntu24.04\ntarget: { platform: linux/arm64, gpu: [gh200] }\npython: \"3.12\"";
const THOR: &str =
    "base: thor-jetpack7\ntarget: { platform: linux/arm64, gpu: [thor] }\npython: \"3.12\"";
const ORIN: &str =
    "base: cuda-13.2-ubuntu24.04\ntarget: { platform: linux/arm64, gpu: [orin] }\npython: \"3.12\"";

/// Checks these libraries of a stack on a target; `heads` say how, as `verdict` reads them.
fn check(target: &str, libraries: &str, heads: &[&str]) -> Verdict {
    let heads: String = heads.iter().map(|h| format!("# {h}\n")).collect();
    let text = format!("{heads}stack: case\n{target}\nlibraries: {{ {libraries} }}\n");
    let catalog = project("tests/rules/SF0208-glibc-too-old/catalog");
    verdict(&text, Some(&catalog))
}

fn bites(code: &str, target: &str, libraries: &str) {
    bites_with(&[], code, target, libraries);
}

fn bites_with(heads: &[&str], code: &str, target: &str, libraries: &str) {
    let verdict = check(target, libraries, heads);
    let codes: Vec<&str> = verdict.findings.iter().map(|f| f.code.as_str()).collect();
    assert_eq!(codes, [code], "{libraries}\n{}", verdict.shown);
    assert!(!verdict.findings[0].help.is_empty(), "{}", verdict.shown);
}

fn works(target: &str, libraries: &str) {
    works_with(&[], target, libraries);
}

fn works_with(heads: &[&str], target: &str, libraries: &str) {
    let verdict = check(target, libraries, heads);
    assert!(verdict.is_clean(), "{libraries}\n{}", verdict.shown);
}

#[test]
fn flash_attention_asks_for_an_older_standard_than_torch_2_14_needs() {
    let unpatched = "flash-attn: { version: 2.8.3.post2, patches: [none] }";
    bites("SF0606", H100, &format!("torch: 2.14.1, {unpatched}"));
    works(H100, "torch: 2.14.1, flash-attn: 2.8.3.post2");
    works(H100, &format!("torch: 2.13.0, {unpatched}"));
}

#[test]
fn flash_attention_ignores_an_arch_that_it_does_not_know() {
    for archs in ["110", "90;110"] {
        let env = format!("env: {{ FLASH_ATTN_CUDA_ARCHS: \"{archs}\" }}");
        let flash = format!("flash-attn: {{ version: 2.8.3.post2, {env} }}");
        bites("SF0611", THOR, &format!("torch: 2.13.0, {flash}"));
    }
    works(THOR, "torch: 2.13.0, flash-attn: 2.8.3.post2");
}

#[test]
fn no_vllm_takes_torch_2_15() {
    for vllm in ["0.33.0", "auto", "\">=0.30\""] {
        bites("SF0607", H100, &format!("vllm: {vllm}, torch: 2.15.0"));
    }
    works(H100, "vllm: 0.33.0, torch: 2.14.0");
}

#[test]
fn vllm_and_sglang_pin_different_torches() {
    bites("SF0607", B200, "vllm: 0.33.0, sglang: 0.5.23");
    bites(
        "SF0607",
        H100_PYTHON_3_10,
        "vllm: 0.31.0, sglang-kernel: 0.4.10",
    );
    works(H100, "vllm: 0.33.0");
    works(H100_PYTHON_3_10, "sglang-kernel: 0.4.10");
}

#[test]
fn the_xformers_of_cuda_12_beside_a_torch_of_cuda_13() {
    let wheel = "xformers: { version: 0.0.35, from: wheel }";
    bites("SF0610", H100, &format!("torch: 2.15.0, {wheel}"));
    works(H100, "torch: 2.15.0, xformers: 0.0.35");
    works(H100_CUDA_12, &format!("torch: 2.10.0, {wheel}"));
}

#[test]
fn vllm_for_arm64_pins_a_torch_without_cuda() {
    for vllm in ["0.10.2", "0.11.2", "0.13.0", "0.16.0", "0.19.1"] {
        bites("SF0205", GH200, &format!("vllm: {vllm}"));
    }
    works(GH200, "vllm: 0.20.2");
}

#[test]
fn the_first_vllm_wheel_for_thor() {
    // Beside a CUDA torch of their own index: the wheel of vLLM is what is wrong.
    let torch = "torch: { version: 2.10.0+cu130, index: https://torch.example/cu130 }";
    let vllm = |version: &str| format!("{torch}, vllm: {{ version: {version}, from: wheel }}");
    let verdict = check(THOR, &vllm("0.19.1"), &[]);
    let codes: Vec<&str> = verdict.findings.iter().map(|f| f.code.as_str()).collect();
    assert!(codes.contains(&"SF0604"), "{}", verdict.shown);
    assert!(codes.contains(&"SF0610"), "{}", verdict.shown);
    works(THOR, "vllm: { version: 0.32.0, from: wheel }");
}

#[test]
fn vllm_0_20_needs_a_newer_glibc_than_its_neighbours() {
    let old = H100.replace("cuda-13.0-ubuntu24.04", "old-glibc");
    for vllm in ["0.20.0", "0.20.2"] {
        let wheel = format!("vllm: {{ version: {vllm}, from: wheel }}");
        bites("SF0208", &old, &wheel);
    }
    works(&old, "vllm: { version: 0.22.1, from: wheel }");
}

#[test]
fn triton_3_6_cannot_assemble_for_thor() {
    bites("SF0609", THOR, "torch: 2.11.0");
    bites("SF0609", THOR, "vllm: { version: 0.20.0, from: wheel }");
    works(THOR, "torch: 2.12.0");
}

#[test]
fn kernels_of_flashinfer_compiled_ahead_for_blackwell_alone() {
    let cubin = "torch: 2.13.0, flashinfer: 0.6.13, flashinfer-cubin: 0.6.13";
    bites("SF0620", THOR, cubin);
    bites("SF0620", H100, cubin);
    works(B200, cubin);
    works(H100, "torch: 2.13.0, flashinfer: 0.6.13");
}

#[test]
fn one_cudnn_has_code_for_orin() {
    // A torch for Orin of its own index, with the cuDNN of the public one.
    let torch = "torch: { version: 2.13.0+cu130, index: https://torch.example/jetson }";
    let locked = |cudnn: &'static str| {
        [
            "locked: torch-2.13.0+cu130-cp312-cp312-manylinux_2_28_aarch64.whl",
            cudnn,
        ]
    };
    let other = "locked: nvidia_cudnn_cu13-9.20.0.48-py3-none-manylinux_2_27_aarch64.whl";
    let verdict = check(ORIN, torch, &locked(other));
    let cudnn = verdict.find("SF0612").expect(&verdict.shown);
    assert!(cudnn.help.contains("nvidia-cudnn-cu13==9.24.0.43"));
    let with = "locked: nvidia_cudnn_cu13-9.24.0.43-py3-none-manylinux_2_27_aarch64.whl";
    works_with(&locked(with), ORIN, torch);
    // From CUDA 13.2 on Orin runs code for sm_80, which each has.
    works(ORIN, "torch: { version: 2.15.0, from: wheel }");
}

#[test]
fn arch_lists_carried_over_from_cuda_12() {
    for sm in ["7.0", "7.2", "10.1"] {
        let env = format!("env: {{ TORCH_CUDA_ARCH_LIST: \"{sm};9.0\" }}");
        let flash = format!("flash-attn: {{ version: 2.8.3.post2, {env} }}");
        bites("SF0611", H100, &format!("torch: 2.13.0, {flash}"));
    }
    works(H100, "torch: 2.13.0, flash-attn: 2.8.3.post2");
}

#[test]
fn torchvision_0_29_beside_an_older_torch() {
    for vision in ["0.29.0", "0.29.1", "0.29.2"] {
        bites(
            "SF0607",
            H100,
            &format!("torch: 2.13.0, torchvision: {vision}"),
        );
    }
    works(H100, "torch: 2.13.0, torchvision: 0.28.0");
    works(H100, "torch: 2.15.0, torchvision: 0.29.2");
}

#[test]
fn torchaudio_of_torchs_version() {
    for audio in ["2.14.0", "2.14.*", "\">=2.12\"", "~=2.14.0"] {
        bites(
            "SF0105",
            H100,
            &format!("torch: 2.14.0, torchaudio: {audio}"),
        );
    }
    works(H100, "torch: 2.14.0, torchaudio: 2.11.0");
    works(H100, "torch: 2.14.0, torchaudio: \">=2.11\"");
}

#[test]
fn extensions_of_one_python_in_wheels_for_all() {
    bites("SF0620", H100, "sglang-kernel: 0.4.10");
    bites("SF0620", H100_CUDA_12, "sgl-kernel: 0.3.21, torch: 2.9.1");
    bites("SF0620", H100_PYTHON_3_11, "vllm: 0.20.2");
    works(H100_PYTHON_3_10, "sglang-kernel: 0.4.10");
    works(H100, "vllm: 0.20.2");
    works(H100_PYTHON_3_11, "vllm: 0.22.1");
}

#[test]
fn an_nvcc_newer_than_the_runtime_on_a_driver_of_its_age() {
    let locked = |nvcc: &'static str| {
        [
            "locked: torch-2.14.0-cp312-cp312-manylinux_2_28_x86_64.whl",
            "locked: nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.whl",
            nvcc,
            "args: --driver 580.65.06",
        ]
    };
    let newer = locked("locked: nvidia_cuda_nvcc-13.5.37-py3-none-manylinux2014_x86_64.whl");
    bites_with(&newer, "SF0603", H100, "torch: 2.14.0");
    let same = locked("locked: nvidia_cuda_nvcc-13.0.88-py3-none-manylinux2014_x86_64.whl");
    works_with(&same, H100, "torch: 2.14.0");
}
