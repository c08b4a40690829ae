//! The JSON Schema that `stackforge schema` prints accepts every stack of the project and
//! refuses what the program refuses for its shape.

use support::{Sandbox, yaml_files};

fn schema() -> jsonschema::Validator {
    let run = Sandbox::new().run(&["schema"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let schema: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn yaml(text: &str) -> serde_json::Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn every_stack_of_the_project_is_valid() {
    let validator = schema();
    let files: Vec<_> = ["stacks", "examples"]
        .into_iter()
        .flat_map(yaml_files)
        .collect();
    assert!(files.len() >= 5);
    for file in files {
        let document = yaml(&std::fs::read_to_string(&file).unwrap());
        let errors: Vec<String> = validator
            .iter_errors(&document)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{}: {errors:?}", file.display());
    }
}

#[test]
fn every_stack_of_the_project_checks_clean() {
    for file in ["stacks", "examples"].into_iter().flat_map(yaml_files) {
        let run = Sandbox::new().run(&["check", &file.display().to_string()]);
        assert_eq!(run.code, 0, "{}: {}", file.display(), run.stderr);
    }
}

#[test]
fn wrong_shapes_are_refused() {
    let validator = schema();
    let good = std::fs::read_to_string(support::project("stacks/demo-cuda13.yaml")).unwrap();
    assert!(validator.is_valid(&yaml(&good)));
    for (from, to) in [
        ("python: ", "pyhton: "),
        ("gpu: [", "gpu: [1, "),
        ("  triton: auto ", "  triton: [auto] "),
        ("from: source", "from: sauce"),
        ("base: debian-bookworm", ""),
    ] {
        assert!(good.contains(from), "{from}");
        assert!(!validator.is_valid(&yaml(&good.replace(from, to))), "{to}");
    }
}
