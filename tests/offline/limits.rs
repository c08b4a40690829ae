//! `validate --limits`: files that cannot be meant are refused before anything runs.

use support::Sandbox;

fn refused(text: &str) -> String {
    let sandbox = Sandbox::new();
    sandbox.write("limits.yaml", text);
    let run = sandbox.run(&["validate", "rootfs:nowhere", "--limits", "limits.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{}", run.stderr);
    format!("{text}\n{}\n", run.stderr)
}

#[test]
fn what_cannot_be_meant_is_underlined() {
    let all: String = [
        "import:\n  torch: { warm: fast, cold: 0s }\nkernel: { warm: 25h }\n",
        "import:\n  torch: { warm: 3, cold: 12s }\n",
        "import:\n  torch: 3s\n",
        "imports:\n  torch: { warm: 3s }\n",
        "kernel: { hot: 3s }\n",
        "kernel: { cold: { required: false } }\n",
        "kernel: { cold: { at_most: 3s, require: false } }\n",
        "kernel: { warm: 1s, warm: 2s }\n",
        "kernel: { warm: [\n",
        "{}\n",
    ]
    .map(refused)
    .concat();
    insta::assert_snapshot!(all);
}

#[test]
fn limits_need_a_measurement_and_a_file() {
    let sandbox = Sandbox::new();
    let of = |args: &[&str]| {
        let run = sandbox.run(&[&["validate", "rootfs:nowhere"], args].concat());
        format!("{args:?}: exit {}\n{}\n", run.code, run.stderr)
    };
    let all = [
        &["--limits", "gone.yaml"][..],
        &["--limits", "x", "--no-start"],
    ]
    .map(of);
    insta::assert_snapshot!(all.concat());
}
