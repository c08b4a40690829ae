//! Native builds on kernels that lack system calls give the same image. What cannot run there is left out, and said.

use super::ok;
use crate::support::process::without;
use crate::support::{Run, Sandbox};
use serde_json::Value;

const STACK: &str = "\
stack: stackforge-test-kernels
base: debian-bookworm
target: { platform: linux/amd64, gpu: [h100] }
python: \"3.11\"
libraries: { six: \"1.17.0\" }
packages: [tree]
jit: false
bytecode: false
";

fn build(sandbox: &Sandbox, store: &str, missing: &[libc::c_long]) -> Value {
    sandbox.warm(store);
    // What is unpacked there has to be unpacked again.
    let unpacked = sandbox.path(store).join("unpacked");
    std::fs::remove_dir_all(unpacked).unwrap();
    let mut command = sandbox.command();
    let store = sandbox.path(store).display().to_string();
    let image = format!("oci:{store}-image");
    command.args([
        "build", "s.yaml", "--json", "--engine", "native", "--store", &store, "-o", &image,
    ]);
    without(&mut command, missing);
    let out = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    ok(&Run {
        code: out.status.code().unwrap_or(-1),
        stdout: text(out.stdout),
        stderr: text(out.stderr),
    })
}

fn statuses(built: &Value) -> Vec<&str> {
    let checks = built["validation"]["checks"].as_array().unwrap();
    checks
        .iter()
        .map(|check| check["status"].as_str().unwrap())
        .collect()
}

#[test]
fn old_kernels_make_the_same_image() {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", STACK);
    let locked = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(locked.code, 0, "{}", locked.stderr);
    let whole = build(&sandbox, "whole", &[]);

    // Before Linux 5.6.
    let walked = build(&sandbox, "walked", &[libc::SYS_openat2]);
    assert_eq!(walked["image"]["id"], whole["image"]["id"]);
    assert_eq!(statuses(&walked), statuses(&whole));
    assert!(statuses(&walked).contains(&"passed"), "{walked:#}");

    // Before Linux 5.12 no sandbox starts.
    let old = [libc::SYS_openat2, libc::SYS_mount_setattr];
    let old = build(&sandbox, "old", &old);
    assert_eq!(old["image"]["id"], whole["image"]["id"]);
    assert!(
        statuses(&old).iter().all(|status| *status == "not-run"),
        "{old:#}"
    );
    let reason = old["validation"]["checks"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("Linux 5.12 or newer is needed"), "{reason}");
}
