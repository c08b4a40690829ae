//! `update` of a service, killed at its system calls: the service runs the new image or the one before, and
//! the next update ends what was begun.

use super::kill::{self, End};
use super::layers::Member::{self, File, Folder, Link, Program};
use super::layers::image;
use super::server::{Kind, Server};
use std::process::{Command, Stdio};
use support::Sandbox;

/// In the place of Python: the report of a validation that passes.
const PYTHON: &[u8] = b"#!/bin/sh\necho '{\"schema\":1,\"ok\":true,\"checks\":[]}'\n";
/// In the place of systemd: what runs is what the place held when it was started.
const SYSTEMCTL: &str = "case $1 in\n\
    show) printf 'ActiveState=active\\nNRestarts=0\\n' ;;\n\
    stop) rm -f \"$TOP/running\" ;;\n\
    start|restart) cat \"$TOP/srv/version\" > \"$TOP/running\" ;;\n\
    esac";

struct Stage {
    server: Server,
    base: Sandbox,
}

impl Stage {
    /// A service that runs `one`, and a registry that shows `two`.
    fn new() -> Self {
        let stage = Self {
            server: Server::start(Kind::Open),
            base: Sandbox::new(),
        };
        let busybox: &'static [u8] = std::fs::read("/bin/busybox").unwrap().leak();
        for version in ["one", "two"] {
            let layers: [&[Member]; 2] = [
                &[
                    Folder("bin"),
                    Program("bin/busybox", busybox),
                    Link("bin/sh", "busybox"),
                    Link("bin/echo", "busybox"),
                ],
                &[Program("bin/python3", PYTHON), File("version", version)],
            ];
            image(&stage.base.path(&format!("images/{version}")), &layers);
        }
        stage.base.program("bin", "systemctl", SYSTEMCTL);
        stage.publish("one");
        stage.settings(&stage.base, "stable");
        assert_eq!(stage.update(&stage.base), 0);
        assert_eq!(Self::running(&stage.base).as_deref(), Some("one"));
        stage.publish("two");
        stage
    }

    fn publish(&self, version: &str) {
        let source = format!("oci:images/{version}:v1");
        let to = format!("{}/app:stable", self.server.host);
        let run = self.base.run(&["push", &source, &to]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }

    fn settings(&self, sandbox: &Sandbox, tag: &str) {
        let path = |name: &str| sandbox.path(name).display().to_string();
        let text = format!(
            "image: {}/app:{tag}\nplace: rootfs:{}\nstate: {}\nvalidate: {{ gpu: false }}\n\
             service: {{ unit: app.service, pause: true }}\nhealth: {{ active: 0s }}\n",
            self.server.host,
            path("srv"),
            path("state"),
        );
        sandbox.write("edge.yaml", &text);
    }

    fn command(sandbox: &Sandbox) -> Command {
        let mut path = vec![sandbox.path("bin")];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        let mut command = sandbox.command();
        command
            .args(["update", "edge.yaml"])
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("TOP", sandbox.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn update(&self, sandbox: &Sandbox) -> i32 {
        Self::command(sandbox).status().unwrap().code().unwrap()
    }

    fn running(sandbox: &Sandbox) -> Option<String> {
        std::fs::read_to_string(sandbox.path("running")).ok()
    }

    /// Updates in a copy of the base, up to the call `at`.
    fn killed(&self, at: Option<usize>) -> (Sandbox, End) {
        let copy = Sandbox::new();
        let from = self.base.path(".");
        let mut cp = Command::new("cp");
        let copied = cp.arg("-a").arg(from).arg(copy.path(".")).status();
        assert!(copied.unwrap().success());
        // A state is of one place, which is another directory here.
        let state = copy.path("state/state.json");
        let text = std::fs::read_to_string(&state).unwrap();
        let place = |sandbox: &Sandbox| sandbox.path("srv").display().to_string();
        assert!(text.contains(&place(&self.base)), "{text}");
        std::fs::write(state, text.replace(&place(&self.base), &place(&copy))).unwrap();
        self.settings(&copy, "stable");
        let end = kill::run(&mut Self::command(&copy), at);
        (copy, end)
    }
}

#[test]
fn a_service_runs_one_image_or_the_other_at_each_call() {
    let stage = Stage::new();
    let (whole, end) = stage.killed(None);
    let End::Ended(0, calls) = end else {
        panic!("{end:?}");
    };
    assert_eq!(Stage::running(&whole).as_deref(), Some("two"));
    let places = kill::points(calls.len(), 16);
    let (mut old, mut new, mut stopped) = (0, 0, 0);
    for at in &places {
        let (copy, end) = stage.killed(Some(*at));
        let case = format!("killed at call {at}, {end:?}");
        stopped += usize::from(Stage::running(&copy).is_none());
        // When power is back there is no network yet.
        stage.settings(&copy, "gone");
        let code = stage.update(&copy);
        assert_eq!(code, 3, "{case}");
        let version = std::fs::read_to_string(copy.path("srv/version")).unwrap();
        assert_eq!(Stage::running(&copy).as_ref(), Some(&version), "{case}");
        match version.as_str() {
            "one" => old += 1,
            _ => new += 1,
        }
        stage.settings(&copy, "stable");
        assert_eq!(stage.update(&copy), 0, "{case}");
        assert_eq!(Stage::running(&copy).as_deref(), Some("two"), "{case}");
        assert_eq!(stage.update(&copy), 0, "{case}: up to date");
        let verified = copy.run(&["cache", "verify"]);
        assert_eq!(verified.code, 0, "{case}: {}", verified.stderr);
    }
    println!(
        "{} calls, killed at {}: {old} old, {new} new, {stopped} while the service was stopped",
        calls.len(),
        places.len()
    );
    assert!(
        old > 0 && stopped > 0,
        "a kill while the service is stopped"
    );
}
