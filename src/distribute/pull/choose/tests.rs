//! Tests devices against an index of twelve variants.

use super::*;
use stackforge_device::{Board, Device, Driver, Gpu};
use stackforge_stack::catalog::Catalog;
use stackforge_types::Digest;

const AMD64: Platform = Platform::LinuxAmd64;
const ARM64: Platform = Platform::LinuxArm64;

const AVX2: &[&str] = &["avx", "avx2", "fma", "f16c"];
const AVX512: &[&str] = &[
    "avx", "avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512vl", "avx512bw",
];

fn variant(catalog: &Catalog, name: &str, platform: Platform, facts: &str) -> Variant {
    let mut own = Facts::default();
    for fact in facts.split(' ').filter(|fact| !fact.is_empty()) {
        own.set(fact).unwrap();
    }
    own.complete(catalog);
    Variant {
        name: Some(name.to_owned()),
        platform: Some(platform),
        digest: Digest::of(name.as_bytes()),
        size: 1,
        media_type: "m".to_owned(),
        facts: Ok(own),
    }
}

fn index(catalog: &Catalog) -> Vec<Variant> {
    let of = |name, platform, facts| variant(catalog, name, platform, facts);
    vec![
        of("server", AMD64, "sm=75,80,86,89,90,100,120 cuda=12.8"),
        of("server13", AMD64, "sm=80,90,100,120 ptx=120 cuda=13.0"),
        of("hopper", AMD64, "sm=90a cuda=13.0"),
        of("hopper-avx512", AMD64, "sm=90a cuda=13.0 isa=avx512"),
        of("ada", AMD64, "sm=89 cuda=12.8"),
        of("turing", AMD64, "sm=75 cuda=12.8"),
        of("cpu-amd64", AMD64, ""),
        of("grace", ARM64, "sm=90,100 cuda=13.0"),
        of("orin-jp6", ARM64, "sm=87 cuda=12.6 l4t=36.4"),
        of("thor-r38", ARM64, "sm=110 cuda=13.0 l4t=38"),
        of("thor", ARM64, "sm=110 cuda=13.0"),
        of("cpu-arm64", ARM64, ""),
    ]
}

/// A device of which only the platform and the CPU flags are known.
fn device(platform: Platform, flags: &[&str]) -> Device {
    let dir = tempfile::tempdir().unwrap();
    let mut device = Device::read(dir.path());
    device.platform = Some(platform);
    device.cpu.flags = flags.iter().map(|f| (*f).to_owned()).collect();
    device
}

fn server(platform: Platform, flags: &[&str], gpu: &str, driver: &str) -> Device {
    let mut device = device(platform, flags);
    device.gpus.push(Gpu {
        name: gpu.to_owned(),
        sm: None,
        memory: None,
        mig: None,
    });
    device.driver = Some(Driver {
        module: Some(driver.to_owned()),
        ..Driver::default()
    });
    device
}

fn jetson(chip: &str, l4t: &str) -> Device {
    let mut device = device(ARM64, &["fp", "asimd"]);
    device.board = Some(Board {
        model: None,
        compatible: vec![format!("nvidia,{chip}")],
    });
    device.l4t = Some(l4t.to_owned());
    device
}

fn chosen(device: &Device, catalog: &Catalog, variants: &[Variant]) -> String {
    let choice = choose(&Machine::of(device, catalog), variants);
    let all = choice.others.len() + usize::from(choice.taken.is_some());
    assert_eq!(all, variants.len(), "each has its reason");
    assert!(choice.others.iter().all(|other| !other.why.is_empty()));
    choice
        .taken
        .map_or("none".to_owned(), |chosen| chosen.variant)
}

#[test]
fn each_device_gets_the_right_one_or_the_right_refusal() {
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let variants = index(&catalog);
    let h100 = "NVIDIA H100 80GB HBM3";
    for (name, device, expected) in [
        ("Orin r36", jetson("tegra234", "36.4.3"), "orin-jp6"),
        ("Thor r38", jetson("tegra264", "38.2.0"), "thor-r38"),
        ("Thor r39", jetson("tegra264", "39.2.0"), "thor"),
        (
            "GB200",
            server(ARM64, &["fp"], "NVIDIA GB200", "580.65.06"),
            "grace",
        ),
        (
            "H100",
            server(AMD64, AVX512, h100, "580.65.06"),
            "hopper-avx512",
        ),
        (
            "H100 without AVX-512",
            server(AMD64, AVX2, h100, "580.65.06"),
            "hopper",
        ),
        (
            "H100, driver of CUDA 12",
            server(AMD64, AVX512, h100, "570.124.06"),
            "server",
        ),
        (
            "RTX 4090",
            server(AMD64, AVX2, "NVIDIA GeForce RTX 4090", "570.26"),
            "ada",
        ),
        (
            "T4",
            server(AMD64, AVX512, "Tesla T4", "535.183.01"),
            "turing",
        ),
        (
            "T4, too old a driver",
            server(AMD64, AVX512, "Tesla T4", "470.10"),
            "cpu-amd64",
        ),
        ("CPU only", device(AMD64, AVX2), "cpu-amd64"),
        ("arm64 laptop", device(ARM64, &["fp", "asimd"]), "cpu-arm64"),
        ("Orin r35", jetson("tegra234", "35.4.1"), "cpu-arm64"),
        ("Orin r36.3", jetson("tegra234", "36.3.0"), "cpu-arm64"),
    ] {
        assert_eq!(chosen(&device, &catalog, &variants), expected, "{name}");
    }
}

#[test]
fn the_newest_gpus_run_their_family_s_code_or_ptx() {
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let variants = index(&catalog);
    let machine = |gpu: &str, driver: &str| {
        let device = server(AMD64, AVX2, "unknown", driver);
        Machine {
            gpus: vec![gpu.parse().unwrap()],
            unknown_gpus: 0,
            ..Machine::of(&device, &catalog)
        }
    };
    let chosen = |machine: &Machine| choose(machine, &variants).taken.unwrap();
    let b300 = chosen(&machine("10.3", "580.65.06"));
    assert_eq!(b300.variant, "server13");
    assert_eq!(b300.why, "machine code for sm_100, which sm_103 runs");
    let next = chosen(&machine("13.0", "580.65.06"));
    assert_eq!(next.variant, "server13");
    assert_eq!(next.why, "PTX of sm_120, compiled by the driver");
    // This driver runs the machine code of CUDA 13.0, but cannot compile its PTX.
    let old = machine("13.0", "575.51.03");
    assert_eq!(chosen(&old).variant, "cpu-amd64");
}

#[test]
fn no_match_says_why_each_was_refused() {
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let mut variants = index(&catalog);
    variants.retain(|v| !v.name.as_ref().is_some_and(|n| n.starts_with("cpu")));
    variants.push(Variant {
        facts: Err("its annotation io.stackforge.sm is `x`: no SM".to_owned()),
        ..variant(&catalog, "damaged", ARM64, "")
    });
    let orin = Machine::of(&jetson("tegra234", "35.4.1"), &catalog);
    let choice = choose(&orin, &variants);
    assert_eq!(choice.taken, None);
    let why: Vec<String> = (choice.others.iter())
        .map(|r| format!("{}: {}", r.variant, r.why))
        .collect();
    assert_eq!(
        why[6..],
        [
            "grace: it has sm_90, sm_100, nothing for sm_87",
            "orin-jp6: it needs L4T 36.4, and this is L4T 35.4.1",
            "thor-r38: it needs L4T 38, and this is L4T 35.4.1",
            "thor: it has sm_110, nothing for sm_87",
            "damaged: its annotation io.stackforge.sm is `x`: no SM",
        ]
    );
    assert_eq!(
        why[0],
        "server: it is for linux/amd64, and this is linux/arm64"
    );
}

#[test]
fn a_named_gpu_is_not_held_back_by_this_machine_s_driver() {
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let variants = index(&catalog);
    let here = Machine::of(&device(AMD64, AVX2), &catalog);
    let choice = choose(&here.clone().with_gpu("9.0".parse().unwrap()), &variants);
    assert_eq!(choice.taken.unwrap().variant, "hopper");
    let choice = choose(&here, &variants[..1]);
    assert_eq!(
        choice.others[0].why,
        "it is for sm_75, sm_80, sm_86, sm_89, sm_90, sm_100, sm_120, and there is no GPU"
    );
}

#[test]
fn an_index_of_others_gives_the_first_of_the_platform() {
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let plain = |seed: &[u8]| Variant {
        name: None,
        digest: Digest::of(seed),
        facts: Ok(Facts::default()),
        ..variant(&catalog, "x", AMD64, "")
    };
    let variants = [plain(b"1"), plain(b"2")];
    let here = Machine::of(&device(AMD64, AVX2), &catalog);
    let chosen = choose(&here, &variants).taken.unwrap();
    assert_eq!(chosen.place, 0);
}
