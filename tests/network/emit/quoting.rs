//! No name of a file becomes anything but the name of a file.

use super::{python, single, yaml};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use stackforge_build::emit::{Format, Request, emit};
use stackforge_build::render::{quote, yaml as quoted};
use std::process::Command;
use support::Sandbox;

const HOSTILE: &str = "(\\PC|\\p{Cc}|[ \t\n\r'\"\\\\$`{}#:&*!|>%@,-]|\\$\\{\\{ | \\}\\}|\u{feff}|\u{85}|\u{2028}){1,24}";

fn emitted(format: Format, path: &str) -> String {
    let stack = stackforge_stack::spec::read("s.yaml", &single()).unwrap();
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let variants = stackforge_stack::matrix::expand(&stack, &catalog)
        .unwrap()
        .variants;
    let request = Request {
        stack: &stack.pattern,
        variants: &variants,
        path,
        catalog: None,
        overlay: None,
        lock: None,
    };
    emit(format, &request).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_path_is_one_value_of_yaml(name in HOSTILE.prop_map(|n| n.replace(['/', '\0'], ""))) {
        let path = format!("stacks/a{name}b.yaml");
        let github = &yaml(&emitted(Format::Github, &path))[0];
        let value = github["env"]["STACK"].as_str().unwrap();
        prop_assert_eq!(value.replace("${{ '${{' }}", "${{"), path.as_str());
        prop_assert_eq!(value.matches("${{").count() % 2, 0, "each is inside an expression");
        let gitlab = &yaml(&emitted(Format::Gitlab, &path))[0];
        prop_assert_eq!(gitlab["variables"]["STACK"]["value"].as_str(), Some(path.as_str()));
        prop_assert_eq!(&gitlab["variables"]["STACK"]["expand"], false);
    }

    /// The emitted script itself runs, with a `stackforge` that prints what it is told.
    #[test]
    fn a_path_is_one_argument(name in HOSTILE.prop_map(|n| n.replace(['/', '\0'], ""))) {
        let sandbox = Sandbox::new();
        let path = format!("{name}.yaml");
        sandbox.write("job.sh", &emitted(Format::Slurm, &path));
        let bin = sandbox.program("bin", "stackforge", "printf %s \"$2\"");
        sandbox.program("bin", "docker", "exec touch \"$3\"");
        let out = Command::new("bash")
            .arg(sandbox.path("job.sh"))
            .current_dir(sandbox.path(""))
            .env("PATH", bin)
            .env("SLURM_ARRAY_TASK_ID", "0")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&out.stdout);
        prop_assert_eq!(printed.trim_start_matches("./"), path.trim_start_matches("./"));
        prop_assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    #[test]
    fn bash_reads_the_very_word(text in HOSTILE.prop_map(|n| n.replace('\0', ""))) {
        let script = format!("printf %s {}", quote::sh(&text));
        let out = Command::new("bash").args(["-c", &script]).output().unwrap();
        prop_assert_eq!(String::from_utf8_lossy(&out.stdout), text);
    }
}

/// libyaml's rules are PyYAML's, and GitLab's, whose YAML goes through Ruby's libyaml.
#[test]
fn another_parser_reads_the_very_text() {
    let mut runner = TestRunner::deterministic();
    let texts: Vec<String> = (0..512)
        .map(|_| HOSTILE.new_tree(&mut runner).unwrap().current())
        .collect();
    let mut document = String::new();
    for (n, text) in texts.iter().enumerate() {
        let (block, scalar) = (quoted::block(text, 2), quoted::scalar(text));
        document.push_str(&format!("k{n}:\n  block: {block}\n  scalar: {scalar}\n"));
    }
    let sandbox = Sandbox::new();
    sandbox.write("document.yaml", &document);
    sandbox.write("texts.json", &serde_json::to_string(&texts).unwrap());
    let compare = "
import json, sys, yaml
document = yaml.safe_load(open(sys.argv[1], newline='', encoding='utf-8'))
texts = json.load(open(sys.argv[2], encoding='utf-8'))
for n, text in enumerate(texts):
    for how in 'block', 'scalar':
        read = document[f'k{n}'][how]
        assert read == text, f'{how}: {read!r} is not {text!r}'
assert len(document) == len(texts) == 512
";
    let path = |name: &str| sandbox.path(name).display().to_string();
    python::run(&["-c", compare, &path("document.yaml"), &path("texts.json")]).unwrap();
}
