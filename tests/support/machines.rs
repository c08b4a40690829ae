//! Files of machines, as their kernels, drivers and vendors write them.

use super::Sandbox;

fn file(sandbox: &Sandbox, path: &str, text: &str) {
    sandbox.write(&format!("machine/{path}"), text);
}

fn arm_cpu(sandbox: &Sandbox, count: usize, model: &str, features: &str) {
    let one = |i| {
        format!(
            "processor\t: {i}\nmodel name\t: {model}\nBogoMIPS\t: 62.50\nFeatures\t: {features}\nCPU implementer\t: 0x41\n\n"
        )
    };
    file(
        sandbox,
        "proc/cpuinfo",
        &(0..count).map(one).collect::<String>(),
    );
}

fn x86_cpu(sandbox: &Sandbox, count: usize, model: &str, flags: &str) {
    let one = |i| {
        format!(
            "processor\t: {i}\nvendor_id\t: GenuineIntel\nmodel name\t: {model}\nflags\t\t: {flags}\n\n"
        )
    };
    file(
        sandbox,
        "proc/cpuinfo",
        &(0..count).map(one).collect::<String>(),
    );
}

fn memory(sandbox: &Sandbox, total: u64, available: u64) {
    file(
        sandbox,
        "proc/meminfo",
        &format!(
            "MemTotal:       {total} kB\nMemFree:        1 kB\nMemAvailable:   {available} kB\n"
        ),
    );
}

fn system(sandbox: &Sandbox, version: &str, kernel: &str, libc: &str) {
    // /etc/os-release is a link in Ubuntu.
    file(
        sandbox,
        "usr/lib/os-release",
        &format!(
            "PRETTY_NAME=\"Ubuntu {version} LTS\"\nNAME=\"Ubuntu\"\nVERSION_ID=\"{version}\"\nID=ubuntu\n"
        ),
    );
    std::fs::create_dir_all(sandbox.path("machine/etc")).unwrap();
    std::os::unix::fs::symlink(
        "/usr/lib/os-release",
        sandbox.path("machine/etc/os-release"),
    )
    .unwrap();
    file(sandbox, "proc/sys/kernel/osrelease", &format!("{kernel}\n"));
    let banner = format!(
        "\0GNU C Library (Ubuntu GLIBC {libc}-0ubuntu8) stable release version {libc}.\n\0"
    );
    let library = if sandbox.path("machine/proc/device-tree").exists() {
        "lib/aarch64-linux-gnu/libc.so.6"
    } else {
        "lib/x86_64-linux-gnu/libc.so.6"
    };
    file(sandbox, library, &banner);
}

fn board(sandbox: &Sandbox, model: &str, compatible: &[&str]) {
    file(sandbox, "proc/device-tree/model", &format!("{model}\0"));
    let all: String = compatible.iter().map(|c| format!("{c}\0")).collect();
    file(sandbox, "proc/device-tree/compatible", &all);
}

fn l4t(sandbox: &Sandbox, release: &str, revision: &str) {
    file(
        sandbox,
        "etc/nv_tegra_release",
        &format!(
            "# R{release} (release), REVISION: {revision}, GCID: 1, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025\n# KERNEL_VARIANT: oot\n"
        ),
    );
}

fn open_driver(sandbox: &Sandbox, version: &str, machine: &str) {
    file(
        sandbox,
        "proc/driver/nvidia/version",
        &format!(
            "NVRM version: NVIDIA UNIX Open Kernel Module for {machine}  {version}  Release Build  (builder)  Sun Jul 27 06:54:38 UTC 2025\nGCC version:  gcc version 13.3.0\n"
        ),
    );
}

fn toolkit(sandbox: &Sandbox, version: &str, whole: &str) {
    file(sandbox, &format!("usr/local/cuda-{version}/bin/nvcc"), "");
    file(
        sandbox,
        &format!("usr/local/cuda-{version}/version.json"),
        &format!("{{\"cuda\": {{\"name\": \"CUDA SDK\", \"version\": \"{whole}\"}}}}\n"),
    );
}

fn torch(sandbox: &Sandbox, version: &str, cuda: &str) {
    file(
        sandbox,
        "usr/local/lib/python3.12/dist-packages/torch/version.py",
        &format!(
            "from typing import Optional\n\n__version__ = '{version}'\ndebug = False\ncuda: Optional[str] = '{cuda}'\n"
        ),
    );
}

fn gpu(sandbox: &Sandbox, bus: &str, device: &str, model: Option<&str>) {
    let at = format!("sys/bus/pci/devices/{bus}");
    for (name, value) in [
        ("vendor", "0x10de"),
        ("device", device),
        ("class", "0x030200"),
    ] {
        file(sandbox, &format!("{at}/{name}"), &format!("{value}\n"));
    }
    if let Some(model) = model {
        file(
            sandbox,
            &format!("proc/driver/nvidia/gpus/{bus}/information"),
            &format!("Model: \t\t {model}\nIRQ:   \t\t 255\nBus Type: \t PCIe\n"),
        );
    }
}

const ARMV8_2: &str = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp";
const ARMV9: &str = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimddp sve sve2 svebf16 i8mm bf16";
const AVX512: &str =
    "fpu sse2 avx f16c fma avx2 avx512f avx512dq avx512bw avx512vl avx512_vnni avx512_bf16";

fn thor(sandbox: &Sandbox, release: &str, revision: &str) {
    arm_cpu(sandbox, 14, "ARMv9 Processor", ARMV9);
    memory(sandbox, 128_789_024, 120_000_000);
    board(
        sandbox,
        "NVIDIA Jetson AGX Thor Developer Kit",
        &[
            "nvidia,p4071-0000+p3834-0008",
            "nvidia,p3834-0008",
            "nvidia,tegra264",
        ],
    );
    system(sandbox, "24.04", "6.8.12-tegra", "2.39");
    l4t(sandbox, release, revision);
}

pub fn thor_r38(sandbox: &Sandbox) {
    thor(sandbox, "38", "2.0");
    open_driver(sandbox, "580.00", "aarch64");
    toolkit(sandbox, "13.0", "13.0.20250715");
    std::os::unix::fs::symlink(
        "/usr/local/cuda-13.0",
        sandbox.path("machine/usr/local/cuda"),
    )
    .unwrap();
    file(
        sandbox,
        "etc/docker/daemon.json",
        "{\"runtimes\": {\"nvidia\": {\"args\": [], \"path\": \"nvidia-container-runtime\"}}}\n",
    );
}

pub fn thor_r39(sandbox: &Sandbox) {
    thor(sandbox, "39", "2.0");
}

fn orin(sandbox: &Sandbox, release: &str, revision: &str, ubuntu: &str, libc: &str) {
    arm_cpu(sandbox, 12, "ARMv8 Processor rev 1 (v8l)", ARMV8_2);
    memory(sandbox, 64_349_292, 60_000_000);
    board(
        sandbox,
        "NVIDIA Jetson AGX Orin Developer Kit",
        &[
            "nvidia,p3737-0000+p3701-0005",
            "nvidia,p3701-0005",
            "nvidia,tegra234",
        ],
    );
    system(sandbox, ubuntu, "5.15.148-tegra", libc);
    l4t(sandbox, release, revision);
}

pub fn orin_r36(sandbox: &Sandbox) {
    orin(sandbox, "36", "4.3", "22.04", "2.35");
    open_driver(sandbox, "540.4.0", "aarch64");
    toolkit(sandbox, "12.6", "12.6.11");
}

pub fn orin_r35(sandbox: &Sandbox) {
    orin(sandbox, "35", "4.1", "20.04", "2.31");
}

pub fn h100(sandbox: &Sandbox) {
    x86_cpu(sandbox, 4, "Intel(R) Xeon(R) Platinum 8480+", AVX512);
    memory(sandbox, 1_056_270_000, 1_000_000_000);
    system(sandbox, "24.04", "6.8.0-60-generic", "2.39");
    open_driver(sandbox, "580.65.06", "x86_64");
    gpu(
        sandbox,
        "0000:19:00.0",
        "0x2330",
        Some("NVIDIA H100 80GB HBM3"),
    );
    gpu(
        sandbox,
        "0000:3b:00.0",
        "0x2330",
        Some("NVIDIA H100 80GB HBM3"),
    );
    toolkit(sandbox, "12.4", "12.4.20240405");
    toolkit(sandbox, "13.0", "13.0.1");
    torch(sandbox, "2.13.0+cu130", "13.0");
    file(
        sandbox,
        "etc/cdi/nvidia.yaml",
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits: {}\n- name: all\n  containerEdits: {}\n",
    );
}

/// The same with the NVIDIA Container Toolkit in place of a CDI specification.
pub fn h100_with_toolkit(sandbox: &Sandbox) {
    h100(sandbox);
    std::fs::remove_file(sandbox.path("machine/etc/cdi/nvidia.yaml")).unwrap();
    file(sandbox, "usr/bin/nvidia-container-runtime-hook", "");
}

/// With JetPack 6 and Docker's runtime, as NVIDIA's installer sets it up.
pub fn orin_with_runtime(sandbox: &Sandbox) {
    orin_r36(sandbox);
    file(
        sandbox,
        "etc/docker/daemon.json",
        "{\"runtimes\": {\"nvidia\": {\"args\": [], \"path\": \"nvidia-container-runtime\"}}}\n",
    );
}

pub fn a100_old_driver(sandbox: &Sandbox) {
    x86_cpu(
        sandbox,
        2,
        "Intel(R) Xeon(R) Gold 6338",
        "fpu avx f16c fma avx2 avx512f avx512dq avx512bw avx512vl avx512_vnni",
    );
    memory(sandbox, 527_000_000, 500_000_000);
    system(sandbox, "22.04", "5.15.0-100-generic", "2.35");
    file(
        sandbox,
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n",
    );
    gpu(
        sandbox,
        "0000:01:00.0",
        "0x20b2",
        Some("NVIDIA A100-SXM4-80GB"),
    );
    torch(sandbox, "2.13.0+cu130", "13.0");
}

pub fn no_driver(sandbox: &Sandbox) {
    laptop(sandbox);
    gpu(sandbox, "0000:01:00.0", "0x2684", None);
}

pub fn laptop(sandbox: &Sandbox) {
    x86_cpu(
        sandbox,
        8,
        "11th Gen Intel(R) Core(TM) i7-1185G7",
        "fpu avx f16c fma avx2",
    );
    memory(sandbox, 16_000_000, 9_000_000);
    system(sandbox, "24.04", "6.8.0-60-generic", "2.39");
}
