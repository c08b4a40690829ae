//! SBOMs before the official programs of their formats.

use support::made::{self, REPORTS, labels};
use support::server::{Kind, Server};
use support::{Sandbox, project, python as judges, sbom, tiny};

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
fn judge_spdx(sandbox: &Sandbox, text: &str) {
    judge(sandbox, SPDX, "judged.spdx.json", text).unwrap();
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
fn the_spdx_project_takes_an_attached_document() {
    let server = Server::start(Kind::Open);
    let sandbox = tiny();
    let name = format!("{}/team/app:v1", server.host);
    made::push(server.dir.path(), &name, &labels(&sandbox), &REPORTS);
    let run = sandbox.run(&["attach", &name, "--stack", "tiny.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    judge_spdx(
        &sandbox,
        &sandbox.run(&["inspect", &name, "--print", "spdx"]).stdout,
    );
}
