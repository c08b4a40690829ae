//! First stacks of requirements whose pins are older than the base's Python.

use serde_json::{Value, json};
use support::Sandbox;

/// Releases of three kinds: with wheels for older Pythons only, source only, and with a wheel for any Python.
const REQUIREMENTS: &str = "numpy==1.21.0\nscikit-learn<1.1\ntermcolor==1.1.0\nsix==1.16.0\n";

#[test]
fn pins_without_a_wheel_become_the_next_release_that_has_one() {
    let sandbox = Sandbox::new();
    sandbox.write("requirements.txt", REQUIREMENTS);
    let init = |arguments: &[&str]| {
        let all = [
            "init",
            "--from",
            "requirements.txt",
            "--gpu",
            "a100",
            "--json",
            "--force",
            "-o",
            "s.yaml",
        ];
        let run = sandbox.run(&[&all[..], arguments].concat());
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        let document: Value = serde_json::from_str(&run.stdout).unwrap();
        let text = std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
        (document["instead"].clone(), text)
    };
    let (instead, text) = init(&["--base", "debian-bookworm"]);
    let moved = json!([
        { "library": "numpy", "asked": "==1.21.0", "version": "1.23.2" },
        { "library": "scikit-learn", "asked": "<1.1", "version": "1.1.3" },
    ]);
    assert_eq!(instead, moved, "{text}");
    let numpy = "  numpy: \"1.23.2\"  # requirements.txt:1 asks for ==1.21.0, which has no wheel for Python 3.11\n";
    assert!(text.contains(numpy), "{text}");
    for kept in ["  termcolor: \"1.1.0\"\n", "  six: \"1.16.0\"\n"] {
        assert!(text.contains(kept), "{text}");
    }
    // The stack can be locked as it is.
    let run = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);

    let (instead, text) = init(&["--base", "debian-bookworm", "--offline"]);
    assert_eq!(instead, json!([]));
    assert!(text.contains("  numpy: \"1.21.0\"\n"), "{text}");

    // Any base: one whose Python has wheels of more of it.
    let (instead, text) = init(&[]);
    assert!(instead.as_array().unwrap().len() < 2, "{instead} {text}");
}

/// Makes a stack of requirements, which is locked. Returns what has another version, with what was asked for, and the stack.
fn started(requirements: &str) -> (Vec<(String, String)>, String) {
    let sandbox = Sandbox::new();
    sandbox.write("requirements.txt", requirements);
    let init = ["init", "--from", "requirements.txt", "--gpu", "a100"];
    let to = ["--base", "debian-bookworm", "--json", "-o", "s.yaml"];
    let run = sandbox.run(&[&init[..], &to].concat());
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    let text = std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
    let run = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(run.code, 0, "{text}{}{}", run.stdout, run.stderr);
    let moved = document["instead"].as_array().unwrap().iter();
    let field = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
    let moved = moved.map(|entry| (field(entry, "library"), field(entry, "asked")));
    (moved.collect(), text)
}

fn moved(library: &str, asked: &str) -> Vec<(String, String)> {
    vec![(library.to_owned(), asked.to_owned())]
}

#[test]
fn pins_that_do_not_go_together_are_loosened() {
    // transformers 4.19.2 needs a tokenizers whose newest release with a fitting wheel is too new for it.
    let (loosened, text) = started("transformers==4.19.2\nsix==1.16.0\nidna\n");
    assert_eq!(loosened, moved("transformers", "==4.19.2"));
    let why =
        "# requirements.txt:1 asks for ==4.19.2, which does not go with the rest on Python 3.11\n";
    assert!(text.contains(why), "{text}");
    assert!(text.contains("  six: \"1.16.0\"\n  idna: auto\n"), "{text}");
}

#[test]
fn a_pin_that_nothing_else_goes_with_is_loosened() {
    // torchvision has no source, and no wheel for 3.11 that takes torch 1. The antlr4-python3-runtime of hydra-core is source:
    // its newer release that is not final, which needs another one, is not taken for that.
    let (loosened, _) = started("torch==1.13.1\ntorchvision\nhydra-core==1.3.0\n");
    assert_eq!(loosened, moved("torch", "==1.13.1"));
}

#[test]
fn ranges_are_loosened_where_pins_are_not_enough() {
    // streamlit 1.32 requires packaging<24.
    let (loosened, text) = started("streamlit~=1.32.0\npackaging==24.0\nidna>=2,<4\n");
    assert_eq!(loosened, moved("streamlit", "~=1.32.0"));
    assert!(
        text.contains("  packaging: \"24.0\"\n  idna: \">=2,<4\"\n"),
        "{text}"
    );
}

#[test]
fn bounds_are_loosened_where_nothing_older_goes_with_the_rest() {
    // pydantic 2.9 requires typing-extensions>=4.6.1.
    let (loosened, _) = started("pydantic>=2.9.2\ntyping-extensions<4\n");
    assert_eq!(loosened, moved("typing-extensions", "<4"));
}

#[test]
fn a_release_that_the_index_no_longer_has_becomes_the_next_one() {
    let (loosened, text) = started("ccxt==1.66.32\n");
    assert_eq!(loosened, moved("ccxt", "==1.66.32"));
    let why = "# requirements.txt:1 asks for ==1.66.32, which is not in the index\n";
    assert!(text.contains(why), "{text}");
}
