//! Only the output layer prints.

use std::path::Path;

fn sources(path: &Path, out: &mut Vec<std::path::PathBuf>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            sources(&entry.unwrap().path(), out);
        }
    } else if path.extension().is_some_and(|e| e == "rs") {
        out.push(path.to_owned());
    }
}

/// Text that is printed elsewhere would not be made printable.
#[test]
fn only_the_output_layer_prints() {
    let mut files = Vec::new();
    sources(&support::project("src"), &mut files);
    for library in std::fs::read_dir(support::project("crates")).unwrap() {
        sources(&library.unwrap().path().join("src"), &mut files);
    }
    // What somebody asked to have in `/dev/stdout` goes there as it is, and so does what the program of `run`
    // writes. A build script speaks to cargo.
    let own = [
        "cli/output.rs",
        "run/api.rs",
        "store/save.rs",
        "stack/build.rs",
        "sandbox/src/linux/attach.rs",
        "sandbox/src/linux/outputs.rs",
        "sandbox/src/linux/terminal.rs",
    ];
    for file in files.iter().filter(|f| !own.iter().any(|o| f.ends_with(o))) {
        let text = std::fs::read_to_string(file).unwrap();
        for call in ["print!(", "println!(", "io::stdout()", "dbg!("] {
            // `is_terminal` is all that others ask of stderr and stdout.
            let mut calls = text.match_indices(call).map(|(at, _)| &text[at..]);
            let asks = |call: &str| call.starts_with("io::stdout().is_terminal()");
            assert!(calls.all(asks), "{} calls {call}", file.display());
        }
        let mut errors = text
            .match_indices("io::stderr()")
            .map(|(at, _)| &text[at..]);
        let asks = |call: &str| call.starts_with("io::stderr().is_terminal()");
        assert!(errors.all(asks), "{} writes to stderr", file.display());
    }
}
