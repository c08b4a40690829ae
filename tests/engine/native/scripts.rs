//! Packages whose scripts are run, by both engines.

use super::{ok, out};
use support::exported::{exported, unexplained};
use support::{CleanUp, Sandbox};

const NAME: &str = "stackforge-test-scripts";

/// A stack with these OS packages and one wheel.
fn stack(packages: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write(
        "s.yaml",
        &format!(
            "stack: {NAME}\nbase: debian-bookworm\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\n\
             python: \"3.11\"\nlibraries: {{ six: \"1.17.0\" }}\npackages: [{packages}]\njit: false\n"
        ),
    );
    let locked = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(locked.code, 0, "{}", locked.stderr);
    sandbox
}

/// Services with users, keys and units, alternatives, triggers, conffiles that a script makes, one of them in
/// another order each time.
#[test]
fn packages_whose_scripts_run_are_the_same_from_both_engines() {
    if !support::has_turn("packages whose scripts run, by both engines", 0, 2) {
        return;
    }
    let _clean = CleanUp::of(&[NAME]);
    let sandbox = stack("openssh-server, nginx, sudo, vim-tiny, locales, supervisor, git-lfs");
    let docker = format!("{NAME}:docker");
    ok(&sandbox.run(&[
        "build", "s.yaml", "--json", "--engine", "docker", "-t", &docker,
    ]));
    let native = format!("{NAME}:native");
    let build = |store: &str| {
        sandbox.warm(store);
        let store = sandbox.path(store);
        let args = ["build", "s.yaml", "--json", "--engine", "native"];
        let to = [
            "-t",
            &native,
            "-o",
            "docker",
            "--store",
            store.to_str().unwrap(),
        ];
        ok(&sandbox.run(&[&args[..], &to].concat()))
    };
    let built = build("one");
    assert_eq!(built["validation"]["ok"], true);
    let (by_docker, by_native) = (exported(&docker), exported(&native));
    let differ = unexplained(&by_docker, &by_native);
    assert!(differ.is_empty(), "{differ:#?}");
    // A service's own programs run in it.
    let script = "sshd -V 2>&1; nginx -t && visudo -c && id www-data && ls /etc/ssh";
    let ran = out("docker", &["run", "--rm", &native, "sh", "-c", script]);
    let ran = String::from_utf8_lossy(&ran);
    assert!(
        ran.contains("sshd_config") && !ran.contains("ssh_host_"),
        "{ran}"
    );
    // Elsewhere, later, it is the same image.
    let again = build("other");
    assert_eq!(built["image"]["id"], again["image"]["id"]);
    assert_eq!(again["cached"], false);
}
