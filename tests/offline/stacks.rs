//! Every stack of the project is locked for what it says and plans offline.

use support::{Sandbox, yaml_files};

#[test]
fn every_stack_has_a_lock_that_fits_it_and_plans_offline() {
    for file in ["stacks", "examples"].into_iter().flat_map(yaml_files) {
        let path = file.display().to_string();
        let run = Sandbox::new().run(&["plan", &path, "--json", "--offline"]);
        assert_eq!(run.code, 0, "{path}: {}", run.stderr);
        let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        for variant in document["variants"].as_array().unwrap() {
            let steps = variant["steps"].as_array().unwrap();
            assert_eq!(steps.last().unwrap()["kind"], "image", "{path}");
        }
        let again = Sandbox::new().run(&["plan", &path, "--json", "--offline"]);
        assert_eq!(
            run.stdout, again.stdout,
            "keys depend on nothing but the stack and its lock"
        );
    }
}

#[test]
fn locks_name_no_host() {
    for file in ["stacks", "examples"].into_iter().flat_map(yaml_files) {
        let lock = std::fs::read_to_string(file.with_extension("lock")).unwrap();
        for line in lock.lines() {
            // Sources in git are named by their repository: that is what they are.
            let source = line.starts_with("url = \"https://github.com/");
            assert!(
                source || !line.contains("://"),
                "{}: {line}",
                file.display()
            );
        }
    }
}
