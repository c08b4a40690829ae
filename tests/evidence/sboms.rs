//! SBOMs before the official programs of their formats.

use super::support::{Sandbox, project};
use super::{digest, document};
use serde_json::Value;
use std::path::Path;

#[path = "../support/python.rs"]
mod judges;

const PACKAGES: [&str; 2] = [
    "spdx-tools==0.8.5",
    "cyclonedx-python-lib[json-validation]==11.12.0",
];

const SPDX: &str = "
import sys
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
document = parse_file(sys.argv[1])
found = validate_full_spdx_document(document, 'SPDX-2.3')
for message in found[:10]:
    print(message.validation_message, message.context.spdx_id)
sys.exit(bool(found))
";

const CYCLONEDX: &str = "
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
print(found or '')
sys.exit(bool(found))
";

fn judge(sandbox: &Sandbox, program: &str, file: &str, text: &str) -> Result<(), String> {
    sandbox.write(file, text);
    let path = sandbox.path(file).display().to_string();
    judges::run(&PACKAGES, &["-c", program, &path]).map(|_| ())
}

/// By the SPDX project's own program.
pub fn judge_spdx(sandbox: &Sandbox, text: &str) {
    judge(sandbox, SPDX, "judged.spdx.json", text).unwrap();
}

fn sbom(sandbox: &Sandbox, stack: &Path, more: &[&str]) -> String {
    let path = stack.display().to_string();
    let run = sandbox.run(&[&["sbom", &path], more].concat());
    assert_eq!(run.code, 0, "{path}: {}", run.stderr);
    run.stdout
}

fn stacks() -> [(std::path::PathBuf, &'static [&'static str]); 4] {
    [
        (project("examples/tiny.yaml"), &[]),
        (project("stacks/thor-cuda13.yaml"), &[]),
        (project("stacks/orin-jp6.yaml"), &[]),
        (project("stacks/demo-cuda13.yaml"), &[]),
    ]
}

#[test]
fn the_spdx_project_takes_each_document() {
    let sandbox = Sandbox::new();
    for (stack, more) in stacks() {
        let text = sbom(&sandbox, &stack, more);
        judge_spdx(&sandbox, &text);
        assert_eq!(text, sbom(&sandbox, &stack, more), "the same each time");
    }
}

#[test]
fn the_cyclonedx_project_takes_each_document() {
    let sandbox = Sandbox::new();
    for (stack, more) in stacks() {
        let more = [more, &["--format", "cyclonedx"]].concat();
        let text = sbom(&sandbox, &stack, &more);
        judge(&sandbox, CYCLONEDX, "judged.cdx.json", &text).unwrap();
        assert_eq!(text, sbom(&sandbox, &stack, &more), "the same each time");
    }
}

/// A judge that takes everything would prove nothing.
#[test]
fn judges_refuse_what_is_wrong() {
    let sandbox = Sandbox::new();
    let stack = project("examples/tiny.yaml");
    let text = sbom(&sandbox, &stack, &[]);
    let wrong = text.replacen("\"CONTAINS\"", "\"HOLDS\"", 1);
    assert_ne!(text, wrong);
    assert!(judge(&sandbox, SPDX, "wrong.json", &wrong).is_err());
    let wrong = text.replacen("SPDXRef-pypi-six", "SPDXRef_pypi_six", 1);
    assert!(judge(&sandbox, SPDX, "wrong.json", &wrong).is_err());
    let text = sbom(&sandbox, &stack, &["--format", "cyclonedx"]);
    let wrong = text.replacen("\"library\"", "\"book\"", 1);
    assert_ne!(text, wrong);
    assert!(judge(&sandbox, CYCLONEDX, "wrong.json", &wrong).is_err());
}

/// Every file of the lock is in it with its digest, and what is compiled with its source.
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
            let there = section.get(kind).and_then(|v| v.as_array());
            for file in there.unwrap_or(&none) {
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
    let sandbox = super::tiny();
    let lock = std::fs::read_to_string(sandbox.path("tiny.lock")).unwrap();
    let mut lock: toml::Value = toml::from_str(&lock).unwrap();
    let wheels = lock["platform"][0]["wheel"].as_array_mut().unwrap();
    let six = wheels
        .iter_mut()
        .find(|w| w["name"].as_str() == Some("six"))
        .unwrap();
    let wheel = wheel("six-1.17.0", "License-Expression: MIT");
    let digest = digest(&wheel);
    six["sha256"] = digest.hex().into();
    sandbox.write("tiny.lock", &toml::to_string(&lock).unwrap());
    let declared = || {
        let run = sandbox.run(&["sbom", "tiny.yaml"]);
        let document = document(&run);
        let packages = document["packages"].as_array().unwrap().clone();
        let six = packages.into_iter().find(|p| p["name"] == "six").unwrap();
        (six["licenseDeclared"].clone(), run.stderr)
    };
    let (before, said) = declared();
    assert_eq!(before, "NOASSERTION");
    assert!(said.contains("state no licence"), "{said}");
    let store = stackforge_image::store::Store::open(Some(&sandbox.path("store"))).unwrap();
    store.put(&wheel[..], Some(&digest)).unwrap();
    assert_eq!(declared().0, "MIT");
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
