//! What the program may ask of the kernel, call by call, with Docker's default profile as yardstick.

use super::machine;
use super::world::{World, both};
use std::process::Command;
use support::left_out;

/// Puts a static program into the root.
fn compile(world: &World) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/sandbox/calls.c");
    let to = world.path("busybox/bin/calls");
    let made = Command::new("cc")
        .args(["-static", "-o"])
        .arg(&to)
        .arg(source)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{stderr}");
}

#[test]
fn calls_that_dockers_profile_refuses_are_refused() {
    both(
        "calls::calls_that_dockers_profile_refuses_are_refused",
        |w| {
            compile(w);
            let out = w.shell("calls").text();
            let (refused, rest) = out.split_once("refused above\n").expect(&out);
            let (missing, allowed) = rest.split_once("missing above\n").expect(&out);
            let none = |text: &str, errno: &str| {
                assert!(text.lines().count() > 1, "{text}");
                for line in text.lines() {
                    assert!(line.ends_with(errno), "{line}, not{errno}");
                }
            };
            none(refused, " 1");
            none(missing, " 38");
            none(allowed, " 0");
        },
    );
}

#[test]
fn the_program_has_a_user_namespace_of_its_own() {
    both("calls::the_program_has_a_user_namespace_of_its_own", |w| {
        let here = std::fs::read_link("/proc/self/ns/user").unwrap();
        let mut sandbox = w.sandbox("cat /proc/self/uid_map; ls -l /proc/self/ns/user; id -u");
        sandbox.env.insert("LC_ALL".into(), "C".into());
        let out = w.run(&sandbox).text();
        assert!(!out.contains(here.to_str().unwrap()), "{out}");
        assert!(out.ends_with("\n0"), "{out}");
        if machine::is_root() {
            // The ids are those of the machine, so that files keep their owners.
            let map: Vec<&str> = out.lines().next().unwrap().split_whitespace().collect();
            assert_eq!(map[0], map[1], "{out}");
        }
    });
}

#[test]
fn a_set_uid_bit_has_no_effect() {
    // An ordinary user without further ids has nobody else to be.
    if !machine::is_root() {
        return left_out("set-uid bits in a sandbox: only root has other users");
    }
    let world = World::new();
    compile(&world);
    let run = world.shell(
        "cat /bin/calls > /srv/calls && chmod 4755 /srv/calls && chmod 755 /srv && calls drop",
    );
    assert_eq!(run.text(), "65534", "{}", run.all());
}
