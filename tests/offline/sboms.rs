//! What an SBOM holds.

use serde_json::Value;
use stackforge_types::Digest;
use support::{Sandbox, document, project, sbom, tiny};

#[test]
fn nothing_of_the_lock_is_missing() {
    let sandbox = Sandbox::new();
    for (stack, sources) in [
        (project("stacks/thor-cuda13.yaml"), 1),
        (project("stacks/orin-jp6.yaml"), 1),
    ] {
        let lock = std::fs::read_to_string(stack.with_extension("lock")).unwrap();
        let lock: toml::Value = toml::from_str(&lock).unwrap();
        let section = &lock["platform"][0];
        let run = sbom(&sandbox, &stack, &[]);
        let document: Value = serde_json::from_str(&run).unwrap();
        let packages = document["packages"].as_array().unwrap();
        let digests: Vec<&str> = packages
            .iter()
            .filter_map(|p| p["checksums"][0]["checksumValue"].as_str())
            .collect();
        let mut files = 0;
        for kind in ["wheel", "package", "builder-package", "tool"] {
            let none = Vec::new();
            let list = section.get(kind).and_then(|v| v.as_array());
            for file in list.unwrap_or(&none) {
                let Some(sha256) = file.get("sha256") else {
                    continue;
                };
                let sha256 = sha256.as_str().unwrap();
                assert!(digests.contains(&sha256), "{stack:?}: {file}");
                files += 1;
            }
        }
        assert!(files >= 10, "{stack:?}: {files}");
        let relations = document["relationships"].as_array().unwrap();
        let generated = relations
            .iter()
            .filter(|r| r["relationshipType"] == "GENERATED_FROM");
        assert!(generated.count() >= sources, "{stack:?}");
    }
}

#[test]
fn time_is_what_the_environment_says() {
    let sandbox = Sandbox::new();
    let stack = project("examples/tiny.yaml").display().to_string();
    let at = |epoch: &str| {
        let run = sandbox.run_with(&["sbom", &stack], &[("SOURCE_DATE_EPOCH", epoch)]);
        let document = document(&run);
        let time = document["creationInfo"]["created"].clone();
        (time, document["documentNamespace"].clone())
    };
    let (one, two) = (at("0"), at("86400"));
    assert_eq!(one.0, "1970-01-01T00:00:00Z");
    assert_eq!(two.0, "1970-01-02T00:00:00Z");
    assert_ne!(one.1, two.1, "another document has another name");
    assert_eq!(one, at("0"));
}

/// A licence is read from a file that the store has.
#[test]
fn licences_come_from_the_files_themselves() {
    let sandbox = tiny();
    let lock = std::fs::read_to_string(sandbox.path("tiny.lock")).unwrap();
    let mut lock: toml::Value = toml::from_str(&lock).unwrap();
    let wheels = lock["platform"][0]["wheel"].as_array_mut().unwrap();
    let six = wheels
        .iter_mut()
        .find(|w| w["name"].as_str() == Some("six"))
        .unwrap();
    let wheel = wheel("six-1.17.0", "License-Expression: MIT");
    let digest = Digest::of(&wheel);
    six["sha256"] = digest.hex().into();
    sandbox.write("tiny.lock", &toml::to_string(&lock).unwrap());
    let declared = || {
        let run = sandbox.run(&["sbom", "tiny.yaml"]);
        let document = document(&run);
        let packages = document["packages"].as_array().unwrap().clone();
        let six = packages.into_iter().find(|p| p["name"] == "six").unwrap();
        (six["licenseDeclared"].clone(), run.stderr)
    };
    let (before, stderr) = declared();
    assert_eq!(before, "NOASSERTION");
    assert!(stderr.contains("state no licence"), "{stderr}");
    let store = stackforge_image::store::Store::open(Some(&sandbox.path("store"))).unwrap();
    store.put(&wheel[..], Some(&digest)).unwrap();
    assert_eq!(declared().0, "MIT");
}

#[test]
fn a_wheel_without_some_parts_has_a_version_of_its_own_and_its_source_has_not() {
    let sandbox = Sandbox::new();
    let stack = std::fs::read_to_string(project("stacks/hopper-cuda13.yaml")).unwrap();
    let cut = "from: source, options: { head_dims: [64], dropout: false } }";
    let stack = stack.replacen("from: source }", cut, 1);
    assert!(stack.contains(cut));
    sandbox.write("s.yaml", &stack);
    let lock = std::fs::read_to_string(project("stacks/hopper-cuda13.lock")).unwrap();
    sandbox.write("s.lock", &lock);
    let bill: Value = serde_json::from_str(&sbom(&sandbox, &sandbox.path("s.yaml"), &[])).unwrap();
    let packages = bill["packages"].as_array().unwrap().iter();
    let versions: Vec<&str> = packages
        .filter(|p| p["name"] == "flash-attn")
        .map(|p| p["versionInfo"].as_str().unwrap())
        .collect();
    assert_eq!(
        versions,
        ["2.8.3.post2", "2.8.3.post2+headdims64.nodropout"]
    );
}

/// A wheel of its metadata alone, stored, as zip's specification has it.
fn wheel(stem: &str, field: &str) -> Vec<u8> {
    let name = format!("{stem}.dist-info/METADATA");
    let text = format!("Metadata-Version: 2.4\nName: six\nVersion: 1.17.0\n{field}\n\n");
    let program = "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as archive:
    archive.writestr(zipfile.ZipInfo(sys.argv[2]), sys.argv[3])
";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wheel").display().to_string();
    let python = std::process::Command::new("python3")
        .args(["-c", program, &path, &name, &text])
        .status();
    assert!(python.unwrap().success());
    std::fs::read(path).unwrap()
}
