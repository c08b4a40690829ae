//! Programs in namespaces, on a root of busybox: as root, and as an ordinary user with and
//! without subordinate ids, by the real binary.
//!
//! Each check runs once in this process as root, and again as an ordinary user: this program
//! starts itself with another user id. Everything is made below a directory that both may use.

mod calls;
mod machine;
mod world;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stackforge_sandbox::{
    ChangeKind, End, Identity, Limits, Memory, Mount, Network, Root, SandboxError, User, Writes,
    changes,
};
use support::left_out;
use world::{World, both};

#[test]
fn output_and_exit_code_come_back() {
    both("output_and_exit_code_come_back", |w| {
        let ran = w.shell("echo out; echo err >&2; printf '\\377\\376 no end'; exit 7");
        assert_eq!(ran.outcome.end, End::Exited(7));
        assert_eq!(ran.stdout, [&b"out"[..], b"\xff\xfe no end"]);
        assert_eq!(ran.stderr, [b"err"]);
        let ran = w.shell("kill -TERM $$");
        assert_eq!(ran.outcome.end, End::Signalled(15));
        assert_eq!(ran.outcome.code(), 143);
    });
}

#[test]
fn the_program_gets_its_input_environment_and_directory() {
    both(
        "the_program_gets_its_input_environment_and_directory",
        |w| {
            let mut sandbox = w.sandbox("cat; pwd; env; id -u; hostname");
            sandbox.stdin = b"typed\n".to_vec();
            sandbox.cwd = "/srv".into();
            sandbox.env.insert("ONLY".into(), "this".into());
            let out = w.run(&sandbox).text();
            assert!(out.starts_with("typed\n/srv\n"), "{out}");
            assert!(
                out.contains("ONLY=this\n") && !out.contains("CARGO"),
                "{out}"
            );
            assert!(out.ends_with("\n0\nstackforge"), "{out}");
        },
    );
}

#[test]
fn nothing_of_the_caller_is_there() {
    both("nothing_of_the_caller_is_there", |w| {
        let out = w.shell("ls /proc/self/fd; ls / | tr '\\n' ' '; ps | wc -l; cat /proc/1/cmdline | tr '\\0' ' '; ls -l /proc/1/exe 2>/dev/null; wc -c < /proc/kallsyms; echo x > /proc/sys/kernel/hostname || echo fixed; touch /sys/x || echo fixed; mount -t tmpfs t /srv || echo refused; mknod /srv/n c 1 3 || echo refused; cat /dev/kmsg || echo none; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status").text();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(
            &lines[..4],
            ["0", "1", "2", "3"],
            "the fourth is ls's own: {out}"
        );
        assert!(lines[4].starts_with("bin dev etc proc srv sys"), "{out}");
        assert!(
            out.contains("\n0\nfixed\nfixed\nrefused\nrefused\nnone\n"),
            "{out}"
        );
        assert!(
            !out.contains("->"),
            "process 1's executable is hidden: {out}"
        );
        assert!(out.contains("CapEff:\t00000000800405fb\n"), "{out}");
        assert!(out.contains("NoNewPrivs:\t1\nSeccomp:\t2"), "{out}");
    });
}

/// The network interfaces of this machine.
fn interfaces() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/net/dev").unwrap();
    let names = text.lines().skip(2);
    names
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect()
}

#[test]
fn no_network_has_loopback_alone() {
    both("no_network_has_loopback_alone", |w| {
        let out = w.shell("ls /sys/class/net >/dev/null; cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '; ping -c 1 -W 1 127.0.0.1 >/dev/null 2>&1; ifconfig lo | grep -o 'UP LOOPBACK RUNNING'").text();
        assert_eq!(out, "lo\nUP LOOPBACK RUNNING");
        let mut sandbox = w.sandbox("cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '");
        sandbox.network = Network::Host;
        // Containers of other tests come and go, and their interfaces with them.
        let before = interfaces();
        let seen = w.run(&sandbox).text();
        let seen: BTreeSet<&str> = seen.lines().collect();
        let lasting: Vec<String> = before.intersection(&interfaces()).cloned().collect();
        assert!(lasting.contains(&"lo".to_owned()), "{lasting:?}");
        for name in lasting {
            assert!(seen.contains(name.as_str()), "{name} is not in {seen:?}");
        }
    });
}

#[test]
fn binds_are_read_only_and_leave_no_stub() {
    both("binds_are_read_only_and_leave_no_stub", |w| {
        std::fs::write(w.path("given"), "text").unwrap();
        std::fs::create_dir(w.path("folder")).unwrap();
        std::fs::write(w.path("folder/inside"), "deep").unwrap();
        let mut sandbox = w.sandbox("cat /etc/new/given /folder/inside /link/inside; echo; echo x > /etc/new/given || echo ro; touch /folder/x || echo ro; echo y > /out/written; echo > /scratch/s && echo tmp; chmod 700 /srv; touch /etc/mine");
        std::fs::create_dir(w.path("out")).unwrap();
        sandbox.mounts = vec![
            Mount::read_only(w.path("given"), "/etc/new/given"),
            Mount::read_only(w.path("folder"), "/folder"),
            Mount::Bind {
                source: w.path("out"),
                target: "/out".into(),
                writable: true,
            },
            Mount::Tmpfs {
                target: "/scratch".into(),
                size: Some(1 << 20),
            },
            Mount::Link {
                target: "/link".into(),
                to: "/folder".into(),
            },
        ];
        let out = w.run(&sandbox).text();
        assert_eq!(out, "textdeepdeep\nro\nro\ntmp");
        assert_eq!(std::fs::read(w.path("out/written")).unwrap(), b"y\n");
        assert_eq!(w.changed(), ["etc/", "etc/mine", "srv/"]);
    });
}

#[test]
fn a_run_that_writes_nothing_changes_nothing() {
    both("a_run_that_writes_nothing_changes_nothing", |w| {
        let mut sandbox = w.sandbox("cat /etc/a/b/c");
        std::fs::write(w.path("c"), "c").unwrap();
        sandbox.mounts = vec![Mount::read_only(w.path("c"), "/etc/a/b/c")];
        assert_eq!(w.run(&sandbox).text(), "c");
        assert!(w.changed().is_empty(), "{:?}", w.changed());
    });
}

#[test]
fn what_a_run_changed_is_told() {
    both("what_a_run_changed_is_told", |w| {
        w.layer(
            "1",
            &[
                ("data/kept", "k"),
                ("data/gone", "g"),
                ("tree/a", "a"),
                ("tree/sub/b", "b"),
            ],
        );
        let mut sandbox = w.sandbox("rm /data/gone; rm -r /tree && mkdir /tree && echo n > /tree/new; echo more >> /data/kept; ln /data/kept /data/same; ln -s nowhere /data/link; mkfifo /fifo");
        sandbox.root.layers.push(w.path("1"));
        assert_eq!(w.run(&sandbox).outcome.end, End::Exited(0));
        let all = changes(&w.path("upper")).unwrap();
        let kind = |path: &str| &all.iter().find(|c| c.path == Path::new(path)).unwrap().kind;
        assert_eq!(*kind("data/gone"), ChangeKind::Whiteout);
        assert_eq!(*kind("tree"), ChangeKind::Directory { opaque: true });
        assert_eq!(*kind("tree/new"), ChangeKind::File { size: 2 });
        assert_eq!(*kind("data"), ChangeKind::Directory { opaque: false });
        assert_eq!(*kind("data/kept"), ChangeKind::File { size: 6 });
        assert_eq!(*kind("data/same"), ChangeKind::HardLink("data/kept".into()));
        assert_eq!(*kind("data/link"), ChangeKind::Symlink("nowhere".into()));
        assert_eq!(*kind("fifo"), ChangeKind::Fifo);
        assert!(all.iter().all(|c| c.attributes.is_empty()), "{all:?}");
        assert_eq!(
            std::fs::read(w.path("1/data/kept")).unwrap(),
            b"k",
            "the layer"
        );
        // The next run goes on from there.
        let mut again = w.sandbox("ls /data /tree");
        again.root.layers.push(w.path("1"));
        assert_eq!(
            w.run(&again).text(),
            "/data:\nkept\nlink\nsame\n\n/tree:\nnew"
        );
    });
}

#[test]
fn many_layers_lie_over_each_other() {
    both("many_layers_lie_over_each_other", |w| {
        let mut sandbox = w.sandbox("cat /who; ls /each | wc -l");
        for n in 0..399 {
            let name = format!("a layer, with a name: {n} {}", "x".repeat(60));
            w.layer(
                &name,
                &[("who", &format!("{n}")), (&format!("each/{n}"), "")],
            );
            sandbox.root.layers.push(w.path(&name));
        }
        assert_eq!(w.run(&sandbox).text(), "398399");
        sandbox.root.layers.push(w.path("busybox"));
        assert!(matches!(w.fails(&sandbox), SandboxError::Invalid { .. }));
    });
}

#[test]
fn a_directory_stays_as_it_is_unless_written_in_place() {
    both("a_directory_stays_as_it_is_unless_written_in_place", |w| {
        w.copy_root("own");
        let mut sandbox = w.sandbox("echo x > /srv/x; cat /srv/x");
        sandbox.root = Root::directory(w.path("own"));
        assert_eq!(w.run(&sandbox).text(), "x");
        assert!(!w.path("own/srv/x").exists());
        sandbox.root.writes = Writes::InPlace;
        sandbox.mounts = vec![Mount::read_only(w.path("own/bin"), "/made/for/it")];
        assert_eq!(w.run(&sandbox).text(), "x");
        assert!(w.path("own/srv/x").exists() && !w.path("own/made").exists());
    });
}

#[test]
fn this_machines_own_root_can_be_used() {
    both("this_machines_own_root_can_be_used", |w| {
        let mut sandbox = w.sandbox("");
        sandbox.root = Root::directory("/");
        sandbox.command = [
            "/bin/sh",
            "-c",
            "mkdir /stackforge-was-here 2>/dev/null; ls -d /etc/passwd && cat /proc/1/comm",
        ]
        .map(Into::into)
        .into();
        let out = w.run(&sandbox).text();
        assert!(out.starts_with("/etc/passwd\n"), "{out}");
        assert!(!Path::new("/stackforge-was-here").exists());
    });
}

#[test]
fn a_missing_program_and_a_foreign_one_are_named() {
    both("a_missing_program_and_a_foreign_one_are_named", |w| {
        let mut sandbox = w.sandbox("");
        for (program, expected) in [
            ("no-such-program", "is not in the root"),
            ("/srv", "cannot be run"),
            ("foreign", "not a program for this processor"),
        ] {
            w.layer("extra", &[("bin/foreign", "\u{7f}ELF\u{2}\u{1}nonsense")]);
            w.executable("extra/bin/foreign");
            sandbox.root.layers = vec![w.path("busybox"), w.path("extra")];
            sandbox.command = vec![program.into()];
            let error = w.fails(&sandbox);
            assert!(matches!(&error, SandboxError::Program { .. }), "{error:?}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    });
}

#[test]
fn cancelling_ends_a_tree_of_sleepers() {
    both("cancelling_ends_a_tree_of_sleepers", |w| {
        let sandbox = w.sandbox("trap '' TERM INT HUP; (setsid sleep 98765 &); (sleep 98765 & sleep 98765) & echo ready; sleep 98765");
        let (result, took) = w.cancel_when_ready(&sandbox);
        assert!(matches!(result, Err(SandboxError::Cancelled)), "{result:?}");
        // Far below what it would take if anything waited for the sleepers.
        assert!(took.as_secs() < 60, "{took:?}");
        assert!(!machine::runs("98765"), "a process is left");
    });
}

#[test]
fn the_caller_ending_ends_the_sandbox() {
    both("the_caller_ending_ends_the_sandbox", |w| {
        w.drop_when_ready(&w.sandbox("echo ready; sleep 87654"));
        assert!(machine::within_a_while(|| !machine::runs("87654")));
        let work = w.path("upper.work");
        assert!(machine::within_a_while(|| !work.exists()), "tidied up");
    });
}

#[test]
fn background_processes_end_with_the_program() {
    both("background_processes_end_with_the_program", |w| {
        let ran = w.shell("setsid sleep 76543 & setsid sleep 76543 & exit 3");
        assert_eq!(ran.outcome.end, End::Exited(3));
        assert!(!machine::runs("76543"));
    });
}

#[test]
fn memory_that_runs_out_is_told() {
    both("memory_that_runs_out_is_told", |w| {
        let mut sandbox =
            w.sandbox("head -c 300000000 /dev/zero | tail -c 300000000 | wc -c; kill -KILL $$");
        sandbox.limits = Limits {
            memory: Some(64 << 20),
            pids: Some(100),
            cpus: Some(1.0),
        };
        let outcome = w.run(&sandbox).outcome;
        if outcome.limits.memory {
            assert_eq!(outcome.memory, Memory::KilledFor, "{outcome:?}")
        } else {
            assert!(outcome.limits.reason.is_some());
            assert_eq!(outcome.memory, Memory::MaybeKilledFor, "{outcome:?}");
        }
        assert!(!machine::control_group_left());
    });
}

#[test]
fn processes_are_limited_where_groups_can_be_made() {
    both("processes_are_limited_where_groups_can_be_made", |w| {
        let mut sandbox = w.sandbox(
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1 & done 2>&1 | head -n 1; echo end",
        );
        sandbox.limits.pids = Some(8);
        let ran = w.run(&sandbox);
        if ran.outcome.limits.pids {
            assert!(ran.all().contains("fork"), "{}", ran.all())
        } else {
            assert!(ran.outcome.limits.reason.is_some())
        }
    });
}

#[test]
fn nothing_stays_mounted_and_no_work_directory() {
    both("nothing_stays_mounted_and_no_work_directory", |w| {
        let before = machine::mounts();
        w.shell("echo x > /srv/x");
        assert_eq!(machine::mounts(), before);
        assert!(!w.path("upper.work").exists());
        assert_eq!(w.changed(), ["srv/", "srv/x"]);
    });
}

#[test]
fn links_in_the_root_lead_nowhere_else() {
    both("links_in_the_root_lead_nowhere_else", |w| {
        let outside = w.path("outside");
        std::fs::create_dir(&outside).unwrap();
        let out = outside.to_str().unwrap();
        for (name, to) in [
            ("dev", "/etc"),
            ("proc", "../../../../../../etc"),
            ("etc/up", "../../../../../../.."),
            ("abs", out),
            ("dangling", "/nowhere/at/all"),
        ] {
            let mut sandbox = w.sandbox("");
            w.copy_root("hostile");
            let link = w.path("hostile").join(name);
            let _ = std::fs::remove_dir(&link);
            std::os::unix::fs::symlink(to, &link).unwrap();
            std::fs::write(w.path("c"), "c").unwrap();
            sandbox.root = Root::layers(vec![w.path("hostile")], w.path("upper-hostile"));
            sandbox.mounts = vec![Mount::read_only(w.path("c"), format!("/{name}/in/c"))];
            sandbox.command = ["/bin/busybox", "sh", "-c", "echo ran; ls /dev/null"]
                .map(Into::into)
                .into();
            // It runs, or is refused; in no case is anything made outside.
            match w.try_run(&sandbox) {
                Ok(ran) => assert!(ran.text().starts_with("ran"), "{name}: {}", ran.all()),
                Err(e) => assert!(matches!(e, SandboxError::Setup { .. }), "{name}: {e:?}"),
            }
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{name}");
            assert!(
                !Path::new("/etc/in").exists() && !Path::new("/etc/null").exists(),
                "{name}"
            );
            assert!(
                !Path::new("/in").exists() && !Path::new("/nowhere").exists(),
                "{name}"
            );
            std::fs::remove_dir_all(w.path("hostile")).unwrap();
            w.remove("upper-hostile");
        }
    });
}

#[test]
fn targets_with_dots_are_refused() {
    both("targets_with_dots_are_refused", |w| {
        for target in ["/a/../../b", "relative", "/"] {
            let mut sandbox = w.sandbox("true");
            sandbox.mounts = vec![Mount::read_only("/etc", PathBuf::from(target))];
            assert!(matches!(w.fails(&sandbox), SandboxError::Invalid { .. }));
        }
    });
}

#[test]
fn ids_change_or_are_pretended_to() {
    both("ids_change_or_are_pretended_to", |w| {
        let ran = w.shell("touch /srv/f && chown 33:33 /srv/f && chgrp 5 /srv/f && echo done");
        assert_eq!(ran.text(), "done", "{}", ran.all());
        let owners = w.shell("stat -c %u:%g /srv/f").text();
        match ran.outcome.identity {
            Identity::Single => assert_eq!(owners, "0:0"),
            _ => assert_eq!(owners, "33:5"),
        }
    });
}

#[test]
fn a_user_who_is_not_root_has_its_ids_and_no_capability() {
    both(
        "a_user_who_is_not_root_has_its_ids_and_no_capability",
        |w| {
            let mut sandbox = w.sandbox(
            "id -u; id -g; grep -E '^(CapEff|CapPrm|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status; \
             mount -t tmpfs t /srv || echo no mount; cat /proc/1/environ 2>/dev/null || echo no reading; \
             kill -TERM 1; echo still here",
        );
            sandbox.user = Some(User {
                uid: 1000,
                gid: 1001,
                groups: vec![1001, 44],
            });
            let out = w.run(&sandbox).text();
            let none = "0000000000000000";
            let expected = format!(
                "1000\n1001\nCapPrm:\t{none}\nCapEff:\t{none}\nCapAmb:\t{none}\nNoNewPrivs:\t1\nSeccomp:\t2\nno mount\nno reading\nstill here"
            );
            assert_eq!(out, expected);
        },
    );
}

#[test]
fn subordinate_ids_are_used_where_newuidmap_is() {
    if !machine::is_root() {
        return left_out("sandboxes with subordinate ids: only root can give some");
    }
    let world = World::new();
    world.as_user_with_ids("ids_change_or_are_pretended_to", "subordinate");
    world.as_user_with_ids("what_a_run_changed_is_told", "subordinate");
    world.as_user_with_ids(
        "a_user_who_is_not_root_has_its_ids_and_no_capability",
        "subordinate",
    );
    world.as_user_with_ids(
        "locked_directories_of_other_ids_can_be_removed",
        "subordinate",
    );
}

#[test]
fn locked_directories_of_other_ids_can_be_removed() {
    both("locked_directories_of_other_ids_can_be_removed", |w| {
        w.shell("mkdir /srv/d && touch /srv/d/f && chown 33 /srv/d && chmod 0 /srv/d");
        w.remove("upper");
        assert!(!w.path("upper").exists());
    });
}

#[test]
fn the_probe_agrees_with_what_runs() {
    both("the_probe_agrees_with_what_runs", |w| {
        let found = w.probe();
        assert!(found.works, "{found:?}");
        assert_eq!(found.identity, w.shell("true").outcome.identity);
        if let Ok(expected) = std::env::var(world::IDENTITY) {
            let identity = serde_json::to_value(found.identity).unwrap();
            assert_eq!(identity, expected.as_str());
        }
    });
}
