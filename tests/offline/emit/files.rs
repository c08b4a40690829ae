//! Where a pipeline goes, and where templates come from.

use super::{FORMATS, emit, emitted, single, small, with};
use std::process::Command;
use support::{Sandbox, project};

#[test]
fn a_file_is_written_over_only_if_it_was_written_so() {
    for format in FORMATS {
        let sandbox = with("small", &small());
        let write = || sandbox.run(&["matrix", "small.yaml", "--emit", format, "-o", "file"]);
        let read = || std::fs::read_to_string(sandbox.path("file")).unwrap();
        let run = write();
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (0, "file: written\n"),
            "{}",
            run.stderr
        );
        assert_eq!(read(), emitted("small", &small(), format));
        sandbox.write("small.yaml", &small().replace(", \"12.8\"", ""));
        assert_eq!(write().code, 0, "{format}: again");
        assert!(!read().contains("12_8"));
        sandbox.write("file", "# mine\n");
        let run = write();
        assert_eq!(run.code, 2);
        assert!(
            run.stderr
                .contains("an existing one is overwritten only if"),
            "{}",
            run.stderr
        );
        assert_eq!(read(), "# mine\n");
    }
}

#[test]
fn a_stack_without_a_lock_is_told() {
    let sandbox = Sandbox::new();
    sandbox.write("small.yaml", &small());
    let run = emit(&sandbox, "small.yaml", "github");
    assert_eq!(run.code, 0);
    assert_eq!(
        run.stderr,
        "small.yaml has no lock yet: run `stackforge lock small.yaml` before this runs\n"
    );
}

#[test]
fn a_directory_beside_the_stack_has_templates_of_its_own() {
    let sandbox = with("small", &small());
    sandbox.write(
        ".stackforge/templates/ci/slurm.sh.hbs",
        "#!/bin/sh\n{{#each groups}}# {{count}} for {{arch}}\n{{/each}}",
    );
    let run = emit(&sandbox, "small.yaml", "slurm");
    let mark = "# Written by `stackforge matrix small.yaml --emit slurm`.";
    let expected = format!("#!/bin/sh\n{mark}\n# 2 for amd64\n# 2 for arm64\n");
    assert_eq!((run.code, run.stdout), (0, expected), "{}", run.stderr);
}

#[test]
fn the_example_is_what_is_written() {
    let out = Command::new(env!("CARGO_BIN_EXE_stackforge"))
        .args(["matrix", "examples/tiny.yaml", "--emit", "github"])
        .current_dir(project(""))
        .output()
        .unwrap();
    let example = std::fs::read_to_string(project("examples/ci/github.yml")).unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), example);
}

/// A pod would not have the file.
#[test]
fn files_beside_the_stack_reach_no_pod() {
    let stack = format!("{}constraints: [c.txt]\n", single());
    let sandbox = with("single", &single());
    sandbox.write("single.yaml", &stack);
    sandbox.write("c.txt", "six<2\n");
    let lock = std::fs::read_to_string(sandbox.path("single.lock")).unwrap();
    let lock = lock.replace("[inputs]\n", "[inputs]\nconstraints = \"six<2\"\n");
    sandbox.write("single.lock", &lock);
    let run = emit(&sandbox, "single.yaml", "kubernetes");
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("needs c.txt"), "{}", run.stderr);
    assert_eq!(emit(&sandbox, "single.yaml", "gitlab").code, 0);
}
