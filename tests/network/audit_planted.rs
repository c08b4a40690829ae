//! Faults that people met, planted with the wheels that had them or with objects built like theirs:
//! each is found with its code, at its object, in words that name the thing. What goes together is
//! no fault.
//!
//! Needs a C compiler, and the network for the wheels, through pip: about 1.5 GB, kept below the
//! target directory.

use serde_json::Value;
use stackforge_binary::samples::compiled::{Built, runpath};
use std::collections::BTreeSet;
use support::Sandbox;
use support::{self, wheels};
use wheels::{download, install};

const TORCH: (&str, &str) = ("torch==2.15.0", "manylinux_2_28_x86_64");
const XFORMERS: (&str, &str) = ("xformers==0.0.35", "manylinux_2_28_x86_64");
const VLLM_ARM: (&str, &str) = ("vllm==0.19.1", "manylinux_2_31_aarch64");
const TORCH_ARM: (&str, &str) = ("torch==2.10.0", "manylinux_2_28_aarch64");

fn fetch(sandbox: &Sandbox, (requirement, platform): (&str, &str)) {
    let wheel = download(requirement, Some(platform));
    install(&wheel, &sandbox.path("site-packages"));
}

fn plant(sandbox: &Sandbox, path: &str, built: Built<'_>) {
    built.write(&sandbox.path(&format!("site-packages/{path}")));
}

fn audit(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    let run = sandbox.run(&[&["audit", "site-packages", "--json"], arguments].concat());
    serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {}", run.stderr))
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or("")
}

fn errors(document: &Value) -> Vec<&Value> {
    let findings = document["findings"].as_array().unwrap().iter();
    findings.filter(|f| f["severity"] == "error").collect()
}

/// The finding of a code at an object, which says all of these.
fn assert_found(document: &Value, code: &str, object: &str, words: &[&str]) {
    let mut findings = document["findings"].as_array().unwrap().iter();
    let found = findings.find(|f| f["code"] == code && f["object"] == object);
    let found = found.unwrap_or_else(|| panic!("{code} at {object}: {:#}", document["findings"]));
    let texts = format!("{} {}", text(found, "message"), text(found, "help"));
    for word in words {
        assert!(texts.contains(word), "{word}: {texts}");
    }
    assert!(!text(found, "help").is_empty(), "{texts}");
}

/// Stands in for each of CUDA's own libraries that torch misses: 2 GB less to download.
fn cuda(sandbox: &Sandbox) {
    let document = audit(sandbox, &[]);
    let mut names = BTreeSet::new();
    for object in document["objects"].as_array().unwrap() {
        let providers = object["providers"].as_object().unwrap();
        let missing = providers.iter().filter(|(_, by)| *by == "missing");
        names.extend(missing.map(|(name, _)| name.clone()));
    }
    assert!(names.contains("libcudart.so.13"), "{names:?}");
    for name in &names {
        let library = Built {
            soname: Some(name),
            ..Built::default()
        };
        plant(sandbox, &format!("nvidia/cu13/lib/{name}"), library);
    }
}

#[test]
fn xformers_for_cuda_12_beside_torch_2_15() {
    let sandbox = Sandbox::new();
    fetch(&sandbox, TORCH);
    cuda(&sandbox);
    let alone = audit(
        &sandbox,
        &["--gpu", "h100", "--gpu", "b200", "--python", "3.12"],
    );
    assert_eq!(
        errors(&alone),
        Vec::<&Value>::new(),
        "torch and CUDA go together"
    );
    let warnings = alone["findings"].as_array().unwrap().iter();
    let warnings: Vec<&Value> = warnings.filter(|f| f["severity"] == "warning").collect();
    assert_eq!(warnings, Vec::<&Value>::new());

    // No GPU before sm_75 is among those that CUDA 13 compiles for.
    let old = audit(&sandbox, &["--gpu", "v100"]);
    let core = "torch/lib/libtorch_cuda.so";
    assert_found(
        &old,
        "SF0604",
        core,
        &["torch does not run on v100 (sm_70)", core],
    );

    fetch(&sandbox, XFORMERS);
    let both = audit(&sandbox, &["--gpu", "h100"]);
    let object = "xformers/_C.so";
    let words = [object, "libcudart.so.12", "CUDA 12", "CUDA 13"];
    assert_found(&both, "SF0610", object, &words);
    assert!(errors(&both).iter().all(|f| f["object"] == object));
}

#[test]
fn vllm_beside_a_torch_without_cuda() {
    let sandbox = Sandbox::new();
    fetch(&sandbox, TORCH_ARM);
    fetch(&sandbox, VLLM_ARM);
    let document = audit(&sandbox, &["--gpu", "gh200"]);
    let words = ["libtorch_cuda.so", "libc10_cuda.so", "built without CUDA"];
    let object = "vllm/_C.abi3.so";
    assert_found(&document, "SF0902", object, &words);
    assert!(
        errors(&document)
            .iter()
            .all(|f| text(f, "object").starts_with("vllm/"))
    );
}

/// Beside a torch of stand-ins: what its C++ interface exports.
fn small_torch(sandbox: &Sandbox) {
    sandbox.write(
        "site-packages/torch-2.13.0.dist-info/METADATA",
        "Name: torch\n",
    );
    let torch = Built {
        soname: Some("libc10.so"),
        exports: &["_ZN3c105checkENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"],
        ..Built::default()
    };
    plant(sandbox, "torch/lib/libc10.so", torch);
}

#[test]
fn an_extension_for_default_archs_on_thor() {
    let sandbox = Sandbox::new();
    small_torch(&sandbox);
    // What flash-attn's setup.py compiles for without FLASH_ATTN_CUDA_ARCHS under CUDA 12.
    let extension = Built {
        needs: &["libc10.so"],
        code: &[(&[80, 90], &[]), (&[80, 90], &[])],
        ..Built::default()
    };
    let object = "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so";
    plant(&sandbox, object, extension);
    let thor = audit(&sandbox, &["--gpu", "thor", "--python", "3.12"]);
    assert_found(
        &thor,
        "SF0604",
        object,
        &[object, "thor (sm_110)", "sm_80, sm_90"],
    );
    let hopper = audit(&sandbox, &["--gpu", "h100", "--python", "3.12"]);
    assert_eq!(errors(&hopper), Vec::<&Value>::new());

    let old = audit(&sandbox, &["--python", "3.11"]);
    assert_found(&old, "SF0906", object, &[object, "3.12", "3.11"]);
}

#[test]
fn the_other_cxx11_abi() {
    let sandbox = Sandbox::new();
    small_torch(&sandbox);
    let extension = Built {
        needs: &["libc10.so"],
        asks: &["_ZN3c105checkESs"],
        ..Built::default()
    };
    plant(&sandbox, "ext/_C.abi3.so", extension);
    let document = audit(&sandbox, &[]);
    let words = ["ext/_C.abi3.so", "old C++11 ABI", "c10::check(std::string)"];
    assert_found(&document, "SF0605", "ext/_C.abi3.so", &words);
}

#[test]
fn what_only_the_machine_that_built_it_had() {
    let sandbox = Sandbox::new();
    small_torch(&sandbox);
    let library = Built {
        needs: &["libfmt.so.9"],
        search: &[&runpath("/tmp/build/prefix/lib:/home/ci/prefix/lib")],
        ..Built::default()
    };
    plant(&sandbox, "ext/_C.abi3.so", library);
    let document = audit(&sandbox, &[]);
    let object = "ext/_C.abi3.so";
    assert_found(&document, "SF0902", object, &[object, "libfmt.so.9"]);
    assert_found(
        &document,
        "SF0911",
        object,
        &["/tmp/build/prefix/lib", "anyone"],
    );
}

#[test]
fn a_floor_above_the_base_and_above_the_tag() {
    let sandbox = Sandbox::new();
    small_torch(&sandbox);
    let extension = Built {
        glibc: Some("GLIBC_2.38"),
        ..Built::default()
    };
    let object = "ext/_C.abi3.so";
    plant(&sandbox, object, extension);
    let wheel = |tag: &str| {
        let info = "site-packages/ext-1.0.dist-info";
        let tag = format!("Wheel-Version: 1.0\nTag: cp38-abi3-{tag}\n");
        sandbox.write(&format!("{info}/WHEEL"), &tag);
        sandbox.write(&format!("{info}/RECORD"), &format!("{object},sha256=x,1\n"));
    };
    let machine = std::env::consts::ARCH;
    wheel(&format!("manylinux_2_28_{machine}"));
    let document = audit(&sandbox, &[]);
    assert_found(
        &document,
        "SF0909",
        object,
        &["ext-1.0", "2.28", object, "2.38"],
    );

    let libc = Built {
        soname: Some("libc.so.6"),
        defines: Some("GLIBC_2.36"),
        ..Built::default()
    };
    libc.write(&sandbox.path(&format!("base/lib/{machine}-linux-gnu/libc.so.6")));
    let document = audit(&sandbox, &["--sysroot", "base"]);
    assert_found(
        &document,
        "SF0907",
        object,
        &[object, "GLIBC_2.38", "GLIBC_2.36"],
    );

    let other = if machine == "x86_64" {
        "aarch64"
    } else {
        "x86_64"
    };
    wheel(&format!("manylinux_2_38_{other}"));
    let document = audit(&sandbox, &[]);
    assert_found(
        &document,
        "SF0910",
        object,
        &[object, machine, other, "ext-1.0"],
    );
}

#[test]
fn variants_for_newer_cpus_and_stacks_that_run() {
    let sandbox = Sandbox::new();
    small_torch(&sandbox);
    let user = Built {
        needs: &["libfast.so.1"],
        search: &["-Wl,-z,execstack", &runpath("$ORIGIN/lib")],
        ..Built::default()
    };
    plant(&sandbox, "ext/_C.abi3.so", user);
    let fast = Built {
        soname: Some("libfast.so.1"),
        ..Built::default()
    };
    let variant = "ext/lib/glibc-hwcaps/x86-64-v3/libfast.so.1";
    plant(&sandbox, variant, fast);
    let document = audit(&sandbox, &[]);
    assert_found(
        &document,
        "SF0912",
        "ext/_C.abi3.so",
        &["executable stack", "2.41"],
    );
    if std::env::consts::ARCH == "x86_64" {
        assert_eq!(errors(&document), Vec::<&Value>::new());
        assert!(
            document
                .to_string()
                .contains(&format!("{variant} (by RUNPATH)"))
        );
    }
}
