//! `audit` finds planted faults by code and object, and resolves as the loader does.
//!
//! Needs a C compiler, and the network for the wheels, through pip.

mod resolution;

use serde_json::Value;
use stackforge_binary::samples::compiled::Built;
use std::collections::BTreeMap;
use std::process::Command;
use support::{self, wheels};
use support::{Run, Sandbox};
use wheels::download;

const NEW_ABI: &str = "_ZN3c105checkENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
const OLD_ABI: &str = "_ZN3c105checkESs";

/// A site-packages directory in which everything fits.
fn sound(at: &Sandbox) {
    let write =
        |path: &str, built: Built<'_>| built.write(&at.path(&format!("site-packages/{path}")));
    at.write(
        "site-packages/torch-2.13.0.dist-info/METADATA",
        "Name: torch\n",
    );
    write(
        "torch/lib/libc10.so",
        Built {
            soname: Some("libc10.so"),
            exports: &[NEW_ABI],
            ..Built::default()
        },
    );
    write(
        "nvidia/cu13/lib/libcudart.so.13",
        Built {
            soname: Some("libcudart.so.13"),
            ..Built::default()
        },
    );
    write(
        "good/_C.cpython-312-x86_64-linux-gnu.so",
        Built {
            needs: &["libc10.so", "libcudart.so.13", "libcuda.so.1", "libc.so.6"],
            asks: &[NEW_ABI],
            code: &[(&[80, 90], &[]), (&[80, 90, 110], &[90])],
            ..Built::default()
        },
    );
}

/// One fault each: the object, what is wrong with it, and the code that says so.
fn faults() -> Vec<(&'static str, Built<'static>, &'static str)> {
    let plain = Built::default;
    vec![
        (
            "lost/_C.abi3.so",
            Built {
                needs: &["libnowhere.so.1", "libalso.so"],
                ..plain()
            },
            "SF0902",
        ),
        (
            "cuda12/_C.so",
            Built {
                needs: &["libcudart.so.12"],
                ..plain()
            },
            "SF0610",
        ),
        (
            "python/_C.cpython-311-x86_64-linux-gnu.so",
            plain(),
            "SF0906",
        ),
        (
            "abi/_C.so",
            Built {
                asks: &[OLD_ABI],
                ..plain()
            },
            "SF0605",
        ),
        (
            "skew/_C.so",
            Built {
                asks: &["_ZN2at6renameEi", "_ZN3c104goneEv"],
                ..plain()
            },
            "SF0905",
        ),
        (
            "server/_C.so",
            Built {
                code: &[(&[80, 90], &[])],
                ..plain()
            },
            "SF0604",
        ),
        (
            "asks/_C.so",
            Built {
                needs: &["libheld.so"],
                ..plain()
            },
            "SF0902",
        ),
        (
            "second.libs/libgomp-a34b3233.so.1",
            Built {
                soname: Some("libgomp-a34b3233.so.1"),
                ..plain()
            },
            "SF0904",
        ),
    ]
}

fn faulty() -> Sandbox {
    let sandbox = Sandbox::new();
    sound(&sandbox);
    for (path, built, _) in faults() {
        built.write(&sandbox.path(&format!("site-packages/{path}")));
    }
    let held = Built {
        soname: Some("libheld.so"),
        ..Built::default()
    };
    held.write(&sandbox.path("site-packages/holds/libheld.so"));
    let gomp = Built {
        soname: Some("libgomp.so.1"),
        ..Built::default()
    };
    gomp.write(&sandbox.path("site-packages/third/libgomp.so.1"));
    std::fs::write(sandbox.path("site-packages/cut.so"), b"\x7fELF\x02\x01\x01").unwrap();
    sandbox
}

fn audit(sandbox: &Sandbox, arguments: &[&str]) -> (Run, Value) {
    let mut all = vec!["audit", "--json"];
    all.extend(arguments);
    let run = sandbox.run(&all);
    let document =
        serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {}", run.stderr));
    (run, document)
}

/// Code and object of every finding of a severity.
fn findings(document: &Value, severity: &str) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    (document["findings"].as_array().unwrap().iter())
        .filter(|f| f["severity"] == severity)
        .map(|f| (text(&f["code"]), text(&f["object"])))
        .collect()
}

fn providers(document: &Value) -> BTreeMap<String, BTreeMap<String, String>> {
    (document["objects"].as_array().unwrap().iter())
        .map(|o| {
            let providers = serde_json::from_value(o["providers"].clone()).unwrap();
            (o["path"].as_str().unwrap().to_owned(), providers)
        })
        .collect()
}

/// Without what differs between machines.
fn shown(run: &Run) -> String {
    let text = format!("exit {}\n{}{}", run.code, run.stdout, run.stderr);
    text.replace(
        &format!("\"machine\": \"{}\"", std::env::consts::ARCH),
        "\"machine\": \"[MACHINE]\"",
    )
}

/// SMs of SASS and of PTX.
type Module = (&'static [u32], &'static [u32]);

const THOR: [&str; 5] = ["site-packages", "--python", "3.12", "--gpu", "thor"];

#[test]
fn a_sound_environment_has_no_findings() {
    let sandbox = Sandbox::new();
    sound(&sandbox);
    let (run, document) = audit(&sandbox, &THOR[..3]);
    assert_eq!(
        (run.code, &document["findings"]),
        (0, &serde_json::json!([]))
    );
    let good = &providers(&document)["good/_C.cpython-312-x86_64-linux-gnu.so"];
    let by = |name: &str| good[name].as_str();
    assert_eq!(
        by("libcudart.so.13"),
        "nvidia/cu13/lib/libcudart.so.13 (through torch's preload)"
    );
    assert_eq!(
        by("libc10.so"),
        "torch/lib/libc10.so (through torch's preload)"
    );
    assert_eq!(by("libcuda.so.1"), "the host's driver");
    assert_eq!(by("libc.so.6"), "the base");
}

#[test]
fn every_fault_is_found_at_its_object() {
    let (run, document) = audit(&faulty(), &THOR);
    assert_eq!((run.code, &document["ok"]), (1, &Value::Bool(false)));
    let found = [findings(&document, "error"), findings(&document, "warning")].concat();
    let expected = faults()
        .into_iter()
        .map(|(path, _, code)| (code.to_owned(), path.to_owned()));
    let mut expected: Vec<_> = expected.collect();
    let more = [
        ("SF0901", "cut.so"),
        // One of its two modules has code for others only.
        ("SF0604", "good/_C.cpython-312-x86_64-linux-gnu.so"),
    ];
    expected.extend(more.map(|(code, path)| (code.to_owned(), path.to_owned())));
    expected.sort();
    let mut sorted = found;
    sorted.sort();
    assert_eq!(sorted, expected);
}

#[test]
fn faults_as_text_json_and_sarif() {
    let sandbox = faulty();
    let run = |format: &[&str]| sandbox.run(&[&["audit"], format, &THOR].concat());
    insta::assert_snapshot!("text", shown(&run(&[])));
    insta::assert_snapshot!("json", shown(&run(&["--json"])));
    insta::assert_snapshot!("sarif", shown(&run(&["--sarif"])));
}

#[test]
fn sarif_is_what_code_scanning_takes() {
    let schema = include_str!("sarif.schema.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let sandbox = faulty();
    let run = sandbox.run(&[&["audit", "--sarif"][..], &THOR].concat());
    let log: Value = serde_json::from_str(&run.stdout).unwrap();
    let wrong: Vec<String> = schema.iter_errors(&log).map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");

    let driver = &log["runs"][0]["tool"]["driver"];
    let rules = driver["rules"].as_array().unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert!(results.len() >= faults().len());
    let mut fingerprints = std::collections::BTreeSet::new();
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        let place = &result["locations"][0]["physicalLocation"]["artifactLocation"];
        let file = place["uri"].as_str().unwrap();
        assert!(
            sandbox.path(file).is_file(),
            "{file} lies in the repository"
        );
        assert_eq!(place["uriBaseId"], "%SRCROOT%");
        let hash = &result["partialFingerprints"]["primaryLocationLineHash"];
        fingerprints.insert(hash.to_string());
    }
    assert_eq!(
        fingerprints.len(),
        results.len(),
        "each finding is told apart"
    );
}

#[test]
fn a_wheel_alone_leaves_libraries_to_others() {
    let sandbox = faulty();
    let object = "site-packages/lost/_C.abi3.so";
    let (run, document) = audit(&sandbox, &[object]);
    assert_eq!(run.code, 0);
    let note = ("SF0903".to_owned(), "_C.abi3.so".to_owned());
    assert_eq!(findings(&document, "note"), [note]);
}

#[test]
fn a_second_cuda_major_is_named_with_its_users() {
    let sandbox = Sandbox::new();
    sound(&sandbox);
    let write =
        |path: &str, built: Built<'_>| built.write(&sandbox.path(&format!("site-packages/{path}")));
    let old = Built {
        soname: Some("libcudart.so.12"),
        ..Built::default()
    };
    write("nvidia/cuda_runtime/lib/libcudart.so.12", old);
    let user = Built {
        needs: &["libcudart.so.12"],
        ..Built::default()
    };
    write("user/_C.so", user);
    let (run, document) = audit(&sandbox, &["site-packages"]);
    assert_eq!(run.code, 0);
    let path = "nvidia/cuda_runtime/lib/libcudart.so.12";
    let one = ("SF0610".to_owned(), path.to_owned());
    assert!(findings(&document, "warning").contains(&one));
    assert!(document.to_string().contains("(for `user/_C.so`)"));
}

#[test]
fn what_is_no_target_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("notes.txt", "no object\n");
    sandbox.write("x-1.0-py3-none-any.whl", "no archive\n");
    for (target, code, exit) in [
        ("notes.txt", "SF0908", 2),
        ("gone", "SF0018", 2),
        ("x-1.0-py3-none-any.whl", "SF0901", 1),
    ] {
        let run = sandbox.run(&["audit", target]);
        assert_eq!(run.code, exit, "{target}: {}", run.stderr);
        assert!(run.stderr.contains(code), "{target}: {}", run.stderr);
    }
    sandbox.write("empty/readme", "nothing here\n");
    let no_base = sandbox.run(&["audit", "empty", "--sysroot", "gone"]);
    assert_eq!(no_base.code, 2, "{}", no_base.stderr);
    assert_eq!(sandbox.run(&["audit", "empty"]).code, 0);
}

const XFORMERS: (&str, &str) = ("xformers==0.0.35", "manylinux_2_28_x86_64");
const RUNTIME: (&str, &str) = ("nvidia-cuda-runtime==13.2.75", "manylinux_2_17_x86_64");
const BITSANDBYTES: (&str, &str) = ("bitsandbytes==0.50.1", "manylinux_2_24_x86_64");

fn wheel(sandbox: &Sandbox, (requirement, platform): (&str, &str)) -> String {
    let wheel = download(requirement, Some(platform));
    let name = wheel.file_name().unwrap().to_str().unwrap().to_owned();
    std::fs::copy(&wheel, sandbox.path(&name)).unwrap();
    name
}

#[test]
fn xformers_for_cuda_12_beside_cuda_13() {
    let sandbox = Sandbox::new();
    for requirement in [XFORMERS, RUNTIME] {
        let status = Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(download(requirement.0, Some(requirement.1)))
            .arg(sandbox.path("site-packages"))
            .status();
        assert!(status.unwrap().success());
    }
    let (run, document) = audit(&sandbox, &["site-packages"]);
    assert_eq!(run.code, 1);
    let object = "xformers/_C.so".to_owned();
    assert!(findings(&document, "error").contains(&("SF0610".to_owned(), object)));
    let message = "`xformers/_C.so` needs `libcudart.so.12` of CUDA 12, and CUDA 13 is there";
    assert_eq!(document["findings"][0]["message"], message);
}

#[test]
fn wheels_as_they_are_published() {
    let sandbox = Sandbox::new();
    let xformers = wheel(&sandbox, XFORMERS);
    let bitsandbytes = wheel(&sandbox, BITSANDBYTES);
    let two = sandbox.run(&["audit", &xformers, "--gpu", "thor", "--gpu", "sm_90"]);
    insta::assert_snapshot!("xformers", shown(&two));
    let all = sandbox.run(&["audit", &bitsandbytes, "--gpu", "all"]);
    insta::assert_snapshot!("bitsandbytes", shown(&all));
    let orin = sandbox.run(&["audit", &bitsandbytes, "--gpu", "h100"]);
    assert_eq!(
        orin.code, 0,
        "one of its alternatives runs: {}",
        orin.stdout
    );
}

#[test]
fn what_runs_on_newer_gpus_is_what_all_libraries_have_ptx_for() {
    let reach = |all: &[(&str, &[Module])], gpu: &str| {
        let sandbox = Sandbox::new();
        for (path, code) in all {
            let built = Built {
                code,
                ..Built::default()
            };
            built.write(&sandbox.path(&format!("site-packages/{path}")));
        }
        let (_, document) = audit(&sandbox, &["site-packages", "--gpu", gpu]);
        document["reach"].clone()
    };
    let one: (&str, &[Module]) = ("one/_C.so", &[(&[80, 90], &[90])]);
    let two: (&str, &[Module]) = ("two/_C.so", &[(&[90], &[80, 120])]);
    assert_eq!(
        reach(&[one, two], "h100"),
        serde_json::json!({ "native": ["9.0"], "ptx": "9.0", "ptx_driver": "570.26" })
    );
    // Thor finds no machine code, and PTX of both.
    let thor = reach(&[one, two], "thor");
    assert_eq!(
        (&thor["native"], &thor["ptx"]),
        (&serde_json::json!([]), &"9.0".into())
    );
    let later: (&str, &[Module]) = ("later/_C.so", &[(&[110], &[120])]);
    assert_eq!(reach(&[one, later], "b200")["ptx"], "12.0");
    // One has PTX and the other machine code: it runs there, and on nothing newer.
    let without: (&str, &[Module]) = ("without/_C.so", &[(&[90, 110], &[])]);
    assert_eq!(
        reach(&[one, without], "thor"),
        serde_json::json!({ "native": [], "mixed": ["11.0"], "mixed_driver": "570.26" })
    );
    assert_eq!(reach(&[("none.so", &[])], "thor"), Value::Null);
}
