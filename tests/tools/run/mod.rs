//! `run` without an engine, by the real binary: an image of busybox, as root and as an ordinary user.

mod places;
mod terminal;
mod world;

use std::io::Write as _;
use std::net::TcpListener;
use std::process::Stdio;
use support::left_out;
use world::{World, each};

#[test]
fn the_programs_exit_status_is_ours() {
    each(|w| {
        for (script, code) in [
            ("exit 0", 0),
            ("exit 7", 7),
            ("kill -TERM $$", 143),
            ("kill -KILL $$", 137),
        ] {
            assert_eq!(w.shell(script).code, code, "{script}");
        }
        let missing = w.run(&["no-such-program"]);
        assert_eq!(missing.code, 127, "{}", missing.stderr);
        assert!(missing.stderr.contains("SF0333"), "{}", missing.stderr);
        let plain = w.run(&["/etc/passwd"]);
        assert_eq!(plain.code, 126, "{}", plain.stderr);
        let folder = w.run(&["/srv"]);
        assert_eq!(folder.code, 126, "{}", folder.stderr);
    });
}

#[test]
fn the_program_gets_what_the_image_says() {
    each(|w| {
        let ran = w.image(&[]);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(
            lines,
            [
                "entry",
                "of the image",
                "/made/for/it",
                "1000 1001",
                "from the image",
                "/srv/app"
            ],
            "{}",
            ran.stderr
        );
        let ran = w.image(&["asked", "for"]);
        assert_eq!(
            ran.stdout.lines().take(2).collect::<Vec<_>>(),
            ["entry", "asked for"]
        );
        let ran = w.with(&["--entrypoint", "id", "-e", "A=b"], &["-u"]);
        assert_eq!(ran.stdout, "1000\n", "{}", ran.stderr);
    });
}

#[test]
fn a_user_who_is_not_root_has_no_power() {
    each(|w| {
        let ran = w.shell("grep -E '^(CapEff|CapPrm|NoNewPrivs|Seccomp):' /proc/self/status; touch /etc/x || echo no; mount -t tmpfs t /srv || echo no");
        assert!(
            ran.stdout.starts_with(
                "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2"
            ),
            "{}",
            ran.stdout
        );
        // Every file belongs to the only ID of an ordinary user.
        let refused = if w.is_ordinary() {
            "\nno\n"
        } else {
            "no\nno\n"
        };
        assert!(ran.stdout.ends_with(refused), "{}", ran.stdout);
    });
}

#[test]
fn variables_and_volumes_that_were_asked_for_are_there() {
    each(|w| {
        w.write("data/in", "text");
        w.open("data");
        let data = format!("{}:/data", w.path("data").display());
        let fixed = format!("{}:/fixed:ro", w.path("data").display());
        let options = [
            "-e", "A=x y", "-e", "PASSED", "--volume", &data, "--volume", &fixed,
        ];
        let ran = w.with(&options, &["sh", "-c", "echo $A $PASSED $GONE; cat /data/in; echo out > /data/out; touch /fixed/x || echo fixed"]);
        assert_eq!(ran.stdout, "x y along\ntextfixed\n", "{}", ran.stderr);
        assert_eq!(
            std::fs::read_to_string(w.path("data/out")).unwrap(),
            "out\n"
        );
    });
}

#[test]
fn models_are_shared_where_the_user_keeps_them() {
    each(|w| {
        w.write("models/kept", "model");
        w.open("models");
        let models = w.path("models").display().to_string();
        let ran = w.with(
            &["--model-cache", &models],
            &[
                "sh",
                "-c",
                "echo $HF_HOME; cat $HF_HOME/kept; echo n > $HF_HOME/new",
            ],
        );
        assert_eq!(
            ran.stdout, "/var/cache/models/huggingface\nmodel",
            "{}",
            ran.stderr
        );
        assert!(w.path("models/new").exists());
    });
}

#[test]
fn input_is_passed_and_output_can_be_opened_again() {
    each(|w| {
        let mut child = w.command(
            &[],
            &[
                "sh",
                "-c",
                "cat; echo more > /dev/stdout; echo err > /dev/stderr",
            ],
        );
        let log = std::fs::File::create(w.path("log")).unwrap();
        let mut child = child
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"typed\n").unwrap();
        let out = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), "typed\nmore\n");
        assert_eq!(std::fs::read_to_string(w.path("log")).unwrap(), "err\n");
    });
}

#[test]
fn one_file_for_both_outputs_keeps_their_order() {
    each(|w| {
        let log = std::fs::File::create(w.path("log")).unwrap();
        let mut command = w.command(
            &[],
            &[
                "sh",
                "-c",
                "for i in 1 2 3; do echo out; echo err >&2; done",
            ],
        );
        command.stdout(log.try_clone().unwrap()).stderr(log);
        assert!(command.status().unwrap().success());
        let text = std::fs::read_to_string(w.path("log")).unwrap();
        assert_eq!(text, "out\nerr\n".repeat(3));
    });
}

#[test]
fn what_the_program_writes_is_gone_at_the_end() {
    each(|w| {
        let run = |script: &str| {
            let mut command = w.program();
            command.args(["run", "oci:own:v1", "--", "sh", "-c", script]);
            world::finish(command)
        };
        let wrote = run("id -u; echo x > /tmp/x && cat /tmp/x");
        assert_eq!(wrote.stdout, "0\nx\n", "{}", wrote.stderr);
        assert_eq!(run("ls /tmp").stdout, "");
        assert_eq!(std::fs::read_dir(w.path("store/tmp")).unwrap().count(), 0);
    });
}

#[test]
fn signals_reach_the_program() {
    each(|w| {
        for (signal, plain) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
            let ran = w.signalled("echo ready; sleep 98123", signal);
            assert_eq!(ran.code, plain, "{signal}: {}", ran.stderr);
            let script = format!(
                "trap 'echo got {signal}; exit 9' {signal}; echo ready; while :; do sleep 0.1; done"
            );
            let ran = w.signalled(&script, signal);
            assert_eq!(
                (ran.code, ran.stdout.as_str()),
                (9, format!("got {signal}\n").as_str()),
                "{}",
                ran.stderr
            );
        }
        assert!(!world::runs("98123"), "a process is left");
    });
}

#[test]
fn a_run_that_is_killed_takes_its_program_with_it() {
    each(|w| {
        let ran = w.signalled("echo ready; (setsid sleep 97123 &); sleep 97123", "KILL");
        assert_eq!(ran.code, -1);
        assert!(world::within_a_while(|| !world::runs("97123")));
    });
}

#[test]
fn the_network_is_the_hosts() {
    each(|w| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream
                .write_all(b"HTTP/1.0 200 OK\r\n\r\nfrom the host")
                .unwrap();
        });
        let address = format!("http://127.0.0.1:{port}/");
        let ran = w.run(&["wget", "-q", "-O", "-", &address]);
        assert_eq!(ran.stdout, "from the host", "{}", ran.stderr);
        answers.join().unwrap();
    });
}

#[test]
fn a_port_that_is_in_use_is_told_before() {
    let w = World::new(world::Who::Here);
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let ran = w.with(&["-p", &port], &["true"]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    insta::assert_snapshot!(ran.stderr.replace(&port, "[PORT]"));
    drop(listener);
    assert_eq!(w.with(&["-p", &port], &["true"]).code, 0);
}

#[test]
fn reasons_are_told_on_request() {
    let w = World::new(world::Who::Here);
    let ran = w.with(&["-v", "--gpus", "none"], &["true"]);
    let reasons: Vec<&str> = ran
        .stderr
        .lines()
        .filter(|l| !l.contains("DEBUG"))
        .collect();
    insta::assert_snapshot!(reasons.join("\n"));
    let ran = w.with(&["--gpus", "7"], &["true"]);
    if ran.stderr.contains("no device file") {
        assert_eq!(ran.code, 3);
        insta::assert_snapshot!("a_gpu_of_a_machine_without", ran.stderr);
    } else {
        left_out("the answer for a GPU of a machine without one: this one has some");
    }
}
