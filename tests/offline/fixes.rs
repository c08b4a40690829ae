//! `check --fix` writes what findings advise, and nothing else.

use serde_json::Value;
use support::{Sandbox, project};

const WRONG: &str = "\
# The robot's stack.
stack: small   # its name
bse: debian-bokworm
target:
  platfrom: linux/amd64
  gpu: [h1000]   # in the rack
python: '3.12'
libraries:
  # the newest
  torch: 2.10
  six: { version: auto, form: source } # pure
pakages: [git]
";

const RIGHT: &str = "\
# The robot's stack.
stack: small   # its name
base: debian-bookworm
target:
  platform: linux/amd64
  gpu: [h100]   # in the rack
python: '3.11'
libraries:
  # the newest
  torch: \"2.10\"
  six: { version: auto, from: source } # pure
packages: [git]
";

fn written(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path("s.yaml")).unwrap()
}

#[test]
fn every_definite_advice_is_written_and_comments_stay() {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", WRONG);
    let run = sandbox.run(&["check", "--fix", "s.yaml"]);
    insta::assert_snapshot!(format!("exit {}\n{}{}", run.code, run.stdout, run.stderr));
    assert_eq!(written(&sandbox), RIGHT);
    let again = sandbox.run(&["check", "--fix", "s.yaml"]);
    assert_eq!(again.code, run.code);
    assert_eq!(written(&sandbox), RIGHT);
}

#[test]
fn a_finding_says_that_it_can_be_written_and_how() {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", WRONG);
    let run = sandbox.run(&["check", "s.yaml"]);
    let hint = "`stackforge check --fix s.yaml` writes it into the stack.";
    assert!(run.stderr.contains(hint), "{}", run.stderr);
    let run = sandbox.run(&["check", "--json", "s.yaml"]);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    let fix = &document["diagnostics"][0]["fix"];
    assert_eq!(fix["do"], "replace");
    assert_eq!((&fix["from"], &fix["to"]), (&"bse".into(), &"base".into()));
    assert_eq!(written(&sandbox), WRONG);
}

#[test]
fn the_document_lists_what_was_written_whether_the_rest_is_good_or_not() {
    let sandbox = Sandbox::new();
    let good = std::fs::read_to_string(project("examples/tiny.yaml")).unwrap();
    let misspelt = good.replace("base:", "bse:");
    let bad = misspelt.replace("h100", "nothing-like-it");
    for (text, is_good, fixed) in [(&good, true, 0), (&misspelt, true, 1), (&bad, false, 1)] {
        sandbox.write("s.yaml", text);
        let run = sandbox.run(&["check", "--fix", "--json", "s.yaml"]);
        let document = support::document(&run);
        assert_eq!(document["ok"], is_good, "{document:#}");
        assert_eq!(
            document["fixed"].as_array().unwrap().len(),
            fixed,
            "{document:#}"
        );
    }
}

#[test]
fn what_is_only_text_stays_as_it_is() {
    let sandbox = Sandbox::new();
    // H10 may be an A10 or an H100.
    let guessed = RIGHT.replace("h100", "h10");
    for text in [
        "",
        "just text\n",
        "stack: [\n",
        "stack: s\nbase: voodoo\n",
        &guessed,
    ] {
        sandbox.write("s.yaml", text);
        let run = sandbox.run(&["check", "--fix", "s.yaml"]);
        assert_ne!(run.code, 0);
        assert!(run.stderr.contains("nothing"), "{}", run.stderr);
        assert_eq!(written(&sandbox), text);
    }
    let run = sandbox.run(&["check", "--fix", "none.yaml"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("SF0018"), "{}", run.stderr);
}

#[test]
fn libraries_of_another_cuda_that_a_lock_found_missing_are_told_before_a_build() {
    let sandbox = Sandbox::new();
    let stack = RIGHT.replace("  torch: \"2.10\"", "  onnxruntime-gpu: \"1.18.0\"");
    let stack = stack.replace("  six: { version: auto, from: source } # pure\n", "");
    sandbox.write("s.yaml", &stack);
    let wheel = "onnxruntime_gpu-1.18.0-cp311-cp311-manylinux_2_28_x86_64.whl";
    let mut lock = support::verdict::locked(&stack, &[wheel]);
    lock.platforms[0].lacking = vec![stackforge_stack::lock::LackingLock {
        name: "onnxruntime-gpu".to_owned(),
        needs: vec!["libcublas.so.11".to_owned(), "libcudart.so.11.0".to_owned()],
        extras: Vec::new(),
    }];
    sandbox.write("s.lock", &lock.to_toml().unwrap());
    let run = sandbox.run(&["plan", "s.yaml"]);
    insta::assert_snapshot!(format!("exit {}\n{}", run.code, run.stderr));
}

#[test]
fn libraries_that_are_in_no_package_are_told_before_a_build() {
    let sandbox = Sandbox::new();
    let stack = RIGHT.replace("  torch: \"2.10\"", "  pyqt6-sql: auto");
    let stack = stack.replace("  six: { version: auto, from: source } # pure\n", "");
    sandbox.write("s.yaml", &stack);
    let wheel = "pyqt6_sql-6.10.0-cp311-cp311-manylinux_2_28_x86_64.whl";
    let mut lock = support::verdict::locked(&stack, &[wheel]);
    lock.platforms[0].lacking = vec![stackforge_stack::lock::LackingLock {
        name: "pyqt6-sql".to_owned(),
        needs: vec!["libfbclient.so.3".to_owned(), "libmimerapi.so".to_owned()],
        extras: Vec::new(),
    }];
    sandbox.write("s.lock", &lock.to_toml().unwrap());
    let run = sandbox.run(&["plan", "s.yaml"]);
    insta::assert_snapshot!(format!("exit {}\n{}", run.code, run.stderr));
}

#[test]
fn extras_that_a_lock_found_missing_are_written() {
    let sandbox = Sandbox::new();
    let stack = RIGHT.replace(
        "  torch: \"2.10\"",
        "  Onnxruntime_GPU[azure]: \"1.23.*\"  # fast",
    );
    let stack = stack.replace("  six: { version: auto, from: source } # pure\n", "");
    sandbox.write("s.yaml", &stack);
    let lacking = stackforge_stack::lock::LackingLock {
        name: "onnxruntime-gpu".to_owned(),
        needs: vec!["libcudnn.so.9".to_owned()],
        extras: vec!["cuda".to_owned(), "cudnn".to_owned()],
    };
    let wheel = "onnxruntime_gpu-1.23.0-cp311-cp311-manylinux_2_28_x86_64.whl";
    let mut lock = support::verdict::locked(&stack, &[wheel]);
    lock.platforms[0].lacking = vec![lacking];
    sandbox.write("s.lock", &lock.to_toml().unwrap());
    let refused = sandbox.run(&["plan", "s.yaml"]);
    insta::assert_snapshot!(format!("exit {}\n{}", refused.code, refused.stderr));
    let run = sandbox.run(&["check", "--fix", "s.yaml"]);
    assert!(run.stderr.contains("SF0202"), "{}", run.stderr);
    let expected = stack.replace(
        "  Onnxruntime_GPU[azure]:",
        "  \"Onnxruntime_GPU[azure,cuda,cudnn]\":",
    );
    assert_eq!(written(&sandbox), expected);
}
