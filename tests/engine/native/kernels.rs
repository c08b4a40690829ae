//! Native builds on kernels that lack system calls give the same image. What cannot run there is left out, and the
//! report says so.

use super::ok;
use serde_json::Value;
use support::process::without;
use support::{Run, Sandbox, schemas};

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

fn locked(stack: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", stack);
    let locked = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(locked.code, 0, "{}", locked.stderr);
    sandbox
}

fn run(sandbox: &Sandbox, args: &[&str], missing: &[libc::c_long]) -> Run {
    let mut command = sandbox.command();
    command.args(args);
    without(&mut command, missing);
    let out = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let run = Run {
        code: out.status.code().unwrap_or(-1),
        stdout: text(out.stdout),
        stderr: text(out.stderr),
    };
    schemas::check(args, &run.stdout, &run.stderr);
    run
}

fn build(sandbox: &Sandbox, store: &str, missing: &[libc::c_long]) -> Value {
    sandbox.warm(store);
    // The build has to unpack the layers again.
    let unpacked = sandbox.path(store).join("unpacked");
    std::fs::remove_dir_all(unpacked).unwrap();
    build_in(sandbox, store, missing)
}

fn build_in(sandbox: &Sandbox, store: &str, missing: &[libc::c_long]) -> Value {
    let store = sandbox.path(store).display().to_string();
    let image = format!("oci:{store}-image");
    let args = [
        "build", "s.yaml", "--json", "--engine", "native", "--store", &store, "-o", &image,
    ];
    ok(&run(sandbox, &args, missing))
}

fn statuses(built: &Value) -> Vec<&str> {
    let checks = built["validation"]["checks"].as_array().unwrap();
    checks
        .iter()
        .map(|check| check["status"].as_str().unwrap())
        .collect()
}

const BEFORE_5_12: [libc::c_long; 1] = [libc::SYS_mount_setattr];
const BEFORE_5_6: [libc::c_long; 3] = [
    libc::SYS_mount_setattr,
    libc::SYS_close_range,
    libc::SYS_openat2,
];
const BEFORE_5_2: [libc::c_long; 10] = [
    libc::SYS_mount_setattr,
    libc::SYS_close_range,
    libc::SYS_openat2,
    libc::SYS_clone3,
    libc::SYS_pidfd_open,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
];

#[test]
fn old_kernels_make_the_same_image() {
    if !support::has_turn("the system calls of old kernels", 1, 2) {
        return;
    }
    let sandbox = locked(STACK);
    let whole = build(&sandbox, "whole", &[]);

    // No kernel lacks just these two. Sandboxes start without them.
    let few = [libc::SYS_openat2, libc::SYS_close_range];
    let walked = build(&sandbox, "walked", &few);
    assert_eq!(walked["image"]["id"], whole["image"]["id"]);
    assert_eq!(statuses(&walked), statuses(&whole));
    assert!(statuses(&walked).contains(&"passed"), "{walked:#}");

    for (store, missing) in [
        ("5.10", &BEFORE_5_12[..]),
        ("5.4", &BEFORE_5_6),
        ("4.18", &BEFORE_5_2),
    ] {
        let old = build(&sandbox, store, missing);
        assert_eq!(old["image"]["id"], whole["image"]["id"], "{store}");
        let all_not_run = statuses(&old).iter().all(|status| *status == "not-run");
        assert!(all_not_run, "{store}: {old:#}");
        let reason = old["validation"]["checks"][0]["reason"].as_str().unwrap();
        assert!(
            reason.contains("Linux 5.12 or newer is needed"),
            "{store}: {reason}"
        );
        let doctor = run(&sandbox, &["doctor", "--json"], missing);
        let doctor: Value = serde_json::from_str(&doctor.stdout).unwrap();
        let answers = &doctor["live"]["sandbox"];
        assert_eq!(answers["works"], false, "{store}: {answers:#}");
        assert_eq!(
            answers["namespaces"]["help"], "Linux 5.12 or newer is needed",
            "{store}: {answers:#}"
        );
    }
}

#[test]
fn what_an_old_kernel_could_not_validate_is_validated_by_a_new_one() {
    let sandbox = locked(STACK);
    let old = build(&sandbox, "kept", &BEFORE_5_12);
    assert!(!statuses(&old).contains(&"passed"), "{old:#}");
    let again = build_in(&sandbox, "kept", &BEFORE_5_12);
    assert_eq!(again["cached"], true);

    let store = sandbox.path("kept").display().to_string();
    let to_do = |missing: &[libc::c_long]| {
        let args = [
            "plan", "s.yaml", "--json", "--engine", "native", "--store", &store,
        ];
        let plan = ok(&run(&sandbox, &args, missing));
        let steps = plan["variants"][0]["steps"].as_array().unwrap();
        let left = steps.iter().filter(|step| step["cached"] == false);
        left.map(|step| step["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(to_do(&BEFORE_5_12), [""; 0]);
    assert_eq!(to_do(&[]), ["validate", "image"]);

    let new = build_in(&sandbox, "kept", &[]);
    assert!(statuses(&new).contains(&"passed"), "{new:#}");
    assert_eq!(new["image"]["id"], old["image"]["id"]);
    assert_eq!(to_do(&[]), [""; 0]);
    let again = build_in(&sandbox, "kept", &[]);
    assert_eq!(again["cached"], true);
    assert_eq!(statuses(&again), statuses(&new));
}

#[test]
fn an_old_kernel_leaves_byte_code_out() {
    let sandbox = locked(&STACK.replace("bytecode: false", "bytecode: true"));
    let old = build(&sandbox, "old", &BEFORE_5_12);
    assert!(
        statuses(&old).iter().all(|status| *status == "not-run"),
        "{old:#}"
    );
}
