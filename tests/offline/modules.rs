//! A module imports only modules above it in ARCHITECTURE.md's table.

use std::path::Path;

/// Modules that use nothing else of the program.
const LEAVES: &[&str] = &["device", "diag", "labels", "validate"];

fn sources(path: &Path, out: &mut Vec<std::path::PathBuf>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            sources(&entry.unwrap().path(), out);
        }
    } else if path.extension().is_some_and(|e| e == "rs") {
        out.push(path.to_owned());
    }
}

#[test]
fn modules_import_only_what_is_above_them() {
    let table = std::fs::read_to_string(crate::support::project("ARCHITECTURE.md")).unwrap();
    let (table, _) = table.split_once("## Libraries").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let order: Vec<&str> = rows
        .filter_map(|row| Some(row.split_once('`')?.0))
        .collect();
    let place = |m: &str| order.iter().position(|o| *o == m);
    let mut files = Vec::new();
    sources(&crate::support::project("src"), &mut files);
    let root = crate::support::project("src");
    for file in files {
        let inside = file.strip_prefix(&root).unwrap();
        let first = inside
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_str()
            .unwrap();
        let module = first.trim_end_matches(".rs");
        let Some(own) = place(module) else {
            assert!(
                ["lib", "main"].contains(&module),
                "{module} is not in the order"
            );
            continue;
        };
        let text = std::fs::read_to_string(&file).unwrap();
        for used in text.split("crate::").skip(1) {
            let used: String = used
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let Some(other) = place(&used) else { continue };
            assert!(
                other <= own,
                "{}: {module} imports {used}",
                inside.display()
            );
            assert!(
                used == module || !LEAVES.contains(&module),
                "{}: the leaf {module} imports {used}",
                inside.display()
            );
        }
    }
}

/// Text that is printed elsewhere would not be made printable.
#[test]
fn only_the_output_layer_prints() {
    let mut files = Vec::new();
    sources(&crate::support::project("src"), &mut files);
    for library in std::fs::read_dir(crate::support::project("crates")).unwrap() {
        sources(&library.unwrap().path().join("src"), &mut files);
    }
    // What somebody asked to have in `/dev/stdout` goes there as it is.
    let own = ["cli/output.rs", "store/save.rs"];
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
