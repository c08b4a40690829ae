//! Where answers go: links stay, pipes get the bytes, the store holds its own files alone.

use super::{image, open};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Sandbox, project};

fn filled() -> Sandbox {
    let sandbox = Sandbox::new();
    image(&open(&sandbox.path("store")), "demo:latest", "x", b"hello");
    sandbox
}

fn is_export(sandbox: &Sandbox, file: &str) {
    let run = sandbox.run(&["cache", "import", file, "--store", "other"]);
    assert_eq!(run.code, 0, "{file}: {}", run.stderr);
    assert_eq!(open(&sandbox.path("other")).refs().unwrap().len(), 1);
    std::fs::remove_dir_all(sandbox.path("other")).unwrap();
}

fn fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[test]
fn an_export_through_a_link_or_a_pipe_is_an_export() {
    let sandbox = filled();
    std::fs::create_dir(sandbox.path("there")).unwrap();
    let target = sandbox.path("there/cache.tar");
    std::fs::write(&target, "old").unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink("there/cache.tar", sandbox.path("link")).unwrap();
    let run = sandbox.run(&["cache", "export", "link"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(sandbox.path("link").is_symlink());
    let mode = std::fs::metadata(&target).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    is_export(&sandbox, "there/cache.tar");

    fifo(&sandbox.path("pipe"));
    let pipe = sandbox.path("pipe");
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    let run = sandbox.run(&["cache", "export", "pipe"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    std::fs::write(sandbox.path("piped.tar"), reader.join().unwrap()).unwrap();
    is_export(&sandbox, "piped.tar");
    let left = std::fs::read_dir(sandbox.path("there")).unwrap().count();
    assert_eq!(left, 1, "a temporary file");
}

/// Stdout as a pipe, and as a file that something was written to before.
#[test]
fn an_export_to_stdout_is_alone_there() {
    let sandbox = filled();
    let export = || {
        let mut command = sandbox.command();
        command.args(["cache", "export", "/dev/stdout"]);
        command
    };
    let piped = export().output().unwrap();
    assert!(piped.status.success());
    let stderr = String::from_utf8_lossy(&piped.stderr);
    assert!(stderr.contains("/dev/stdout"), "{stderr}");
    std::fs::write(sandbox.path("piped.tar"), &piped.stdout).unwrap();
    is_export(&sandbox, "piped.tar");

    let path = sandbox.path("appended");
    std::fs::write(&path, "before\n").unwrap();
    let file = std::fs::File::options().append(true).open(&path).unwrap();
    let status = export().stdout(file).stderr(Stdio::null()).status();
    assert!(status.unwrap().success());
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes, [b"before\n", &piped.stdout[..]].concat());
}

#[test]
fn reports_go_where_a_link_leads_and_into_devices() {
    let sandbox = Sandbox::new();
    for file in ["tiny.yaml", "tiny.lock"] {
        std::fs::copy(project("examples").join(file), sandbox.path(file)).unwrap();
    }
    symlink("real.json", sandbox.path("link.json")).unwrap();
    let run = sandbox.run(&["sbom", "tiny.yaml", "-o", "link.json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(sandbox.path("link.json").is_symlink());
    let written = std::fs::read_to_string(sandbox.path("real.json")).unwrap();
    let run = sandbox.run(&["sbom", "tiny.yaml", "-o", "/dev/stdout"]);
    assert_eq!(run.stdout, written);
    assert!(run.stderr.contains("written"), "{}", run.stderr);
    let run = sandbox.run(&["sbom", "tiny.yaml", "-o", "/dev/null"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let full = sandbox.run(&["sbom", "tiny.yaml", "-o", "/dev/full"]);
    assert_eq!(full.code, 3, "{}", full.stderr);
}

#[test]
fn no_output_goes_into_the_store() {
    let sandbox = filled();
    symlink("store", sandbox.path("link")).unwrap();
    for args in [
        &["build", "none.yaml", "-o", "oci:store"][..],
        &["build", "none.yaml", "-o", "oci-archive:link/x.tar"],
        &["pull", "localhost:1/x", "-o", "oci:link/blobs/x"],
        &["pull", "localhost:1/x", "-o", "rootfs:store/../store/x"],
        &["cache", "export", "store/tmp/x.tar"],
        &["cache", "export", "link/"],
    ] {
        let run = sandbox.run(args);
        let why = run.stderr.contains("is in the store") && run.stderr.contains("SF0014");
        assert!(run.code == 2 && why, "{args:?}: {}", run.stderr);
    }
    assert_eq!(sandbox.run(&["cache", "verify"]).code, 0);
}

#[test]
fn names_in_a_damaged_index_are_given_back() {
    let sandbox = filled();
    let store = open(&sandbox.path("store"));
    let first = store.refs().unwrap();
    image(&store, "second:latest", "x", b"second");
    image(&store, "third:latest", "x", b"third");
    let path = sandbox.path("store/index.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let torn = &text[..text.find("third:latest").unwrap()];
    std::fs::write(&path, torn).unwrap();
    let found = sandbox.run(&["cache", "verify"]);
    assert_eq!(found.code, 1, "{}", found.stdout);
    let run = sandbox.run(&["cache", "verify", "--repair"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    insta::assert_snapshot!("repaired_index", run.stdout);
    let kept = std::fs::read_to_string(sandbox.path("store/index.json.damaged-1")).unwrap();
    assert_eq!(kept, torn);
    let refs = store.refs().unwrap();
    assert!(
        refs.len() == 2 && first.iter().all(|image| refs.contains(image)),
        "{refs:?}"
    );
    assert_eq!(sandbox.run(&["cache", "verify"]).code, 0);
}
