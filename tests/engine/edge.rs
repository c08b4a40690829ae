//! The update of an edge device, with a real engine and a real registry: taken when it is good,
//! refused when it does not validate, rolled back when the service is not well with it.

use serde_json::Value;
use server::{Kind, Server};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{self, server};
use support::{Sandbox, project, remove, schemas};

fn docker(args: &[&str]) -> String {
    let out = Command::new("docker").args(args).output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "docker {args:?}: {error}");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

struct Device {
    sandbox: Sandbox,
    server: Server,
    image: String,
    current: String,
}

impl Drop for Device {
    fn drop(&mut self) {
        // A validation whose update was killed leaves its container.
        let label = format!("label={}", self.label());
        let left = docker(&["ps", "--all", "--quiet", "--filter", &label]);
        for container in left.lines() {
            docker(&["rm", "--force", container]);
        }
        for suffix in ["", "-next", "-before"] {
            remove(&format!("{}{suffix}", self.current));
        }
        // The newest first: what others were made from stays as long as they are there.
        let repository = self.image.trim_end_matches(":stable");
        let list = ["images", "--format", "{{.Repository}}:{{.Tag}}", repository];
        let named = Command::new("docker").args(list).output();
        let named = named.map(|out| out.stdout).unwrap_or_default();
        for image in String::from_utf8_lossy(&named).lines() {
            if !image.ends_with(":good") {
                remove(image);
            }
        }
        let prune = ["image", "prune", "--force", "--filter", &label];
        let _ = Command::new("docker").args(prune).output();
        remove(&format!("{repository}:good"));
    }
}

impl Device {
    fn new() -> Self {
        let server = Server::start(Kind::Open);
        let sandbox = Sandbox::new();
        let port = server.host.rsplit(':').next().unwrap().to_owned();
        let device = Self {
            image: format!("{}/edge:stable", server.host),
            current: format!("stackforge-edge-{port}:current"),
            server,
            sandbox,
        };
        // Services that the update would restart: what it asks for is written down.
        let systemctl = "case $1 in\n\
                         show) cat \"$UNIT\" ;;\n\
                         reset-failed) ;;\n\
                         *) echo \"$1 $3\" >> \"$SERVICES\"\n\
                         [ ! -e \"$UNIT-hangs\" ] || { rm \"$UNIT-hangs\"; sleep 1000; } ;;\n\
                         esac";
        device.sandbox.program("bin", "systemctl", systemctl);
        device.unit("active", 0);
        device
    }

    /// What systemd says of the unit from now on.
    fn unit(&self, active: &str, restarts: u32) {
        let text = format!("ActiveState={active}\nNRestarts={restarts}\n");
        self.sandbox.write("unit", &text);
    }

    /// Of every image that is made here.
    fn label(&self) -> String {
        format!("stackforge.test={}", self.current)
    }

    fn settings(&self, more: &str) {
        self.settings_for(&self.image, &format!("docker:{}", self.current), more);
    }

    fn settings_for(&self, image: &str, place: &str, more: &str) {
        let service = if more.contains("pause") {
            ""
        } else {
            "service: { unit: app.service }\n"
        };
        let health = if more.contains("health") {
            ""
        } else {
            "health: { active: 0s }\n"
        };
        let state = self.sandbox.path("state").display().to_string();
        let validate = if more.contains("validate") {
            ""
        } else {
            "validate: { gpu: false }\n"
        };
        let text = format!(
            "image: {image}\nplace: {place}\nstate: {state}\n{validate}{service}{health}{more}\n"
        );
        self.sandbox.write("edge.yaml", &text);
    }

    /// Exit code, and what was said.
    fn update(&self) -> (i32, String) {
        self.ran(&mut self.command(&[]))
    }

    fn ran(&self, command: &mut Command) -> (i32, String) {
        let out = command.output().unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let output = text(&out.stdout) + &text(&out.stderr);
        // Lines of a diagnostic end where the terminal does.
        let output = output.replace("\n  │ ", " ");
        (out.status.code().unwrap_or(-1), output)
    }

    fn status(&self) -> (i32, Value) {
        let out = self.command(&["--status", "--json"]).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        schemas::check(&["update", "--status", "--json"], &text, "");
        let document = serde_json::from_str(&text).unwrap_or_default();
        (out.status.code().unwrap_or(-1), document)
    }

    fn state(&self) -> Value {
        let text = std::fs::read(self.sandbox.path("state/state.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut path = vec![self.sandbox.path("bin")];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_stackforge"));
        command
            .arg("update")
            .arg(self.sandbox.path("edge.yaml"))
            .args(more)
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("SERVICES", self.sandbox.path("services"))
            .env("UNIT", self.sandbox.path("unit"))
            .env("STACKFORGE_STORE", self.sandbox.path("store"));
        command
    }

    /// An update whose validation hangs, once the service is stopped for it. The leader of a
    /// process group of its own.
    fn hung(&self) -> Child {
        let mut command = self.command(&[]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let update = command.process_group(0).spawn().unwrap();
        let paused = self.sandbox.path("services");
        while !std::fs::read_to_string(&paused).is_ok_and(|text| text.contains("stop")) {
            std::thread::sleep(Duration::from_millis(50));
        }
        update
    }

    /// A stack of two wheels on a base of Debian packages, made by stackforge itself.
    fn build(&self, name: &str) {
        for name in ["tiny.yaml", "tiny.lock"] {
            let text = std::fs::read_to_string(project(&format!("examples/{name}"))).unwrap();
            self.sandbox.write(name, &text);
        }
        self.sandbox.warm("store");
        let build = ["build", "tiny.yaml", "--engine", "native", "--tag", name];
        let run = self
            .sandbox
            .run(&[&build[..], &["--output", "docker"]].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
    }

    fn current(&self) -> String {
        docker(&["image", "inspect", "--format", "{{.Id}}", &self.current])
    }

    fn services(&self) -> Vec<String> {
        let path = self.sandbox.path("services");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        text.lines().map(str::to_owned).collect()
    }

    /// What the publisher's tag names from now on: the good image, changed by lines of a Dockerfile.
    fn publish(&self, good: &str, lines: &str) {
        let context = self.sandbox.path("context");
        let _ = std::fs::create_dir_all(&context);
        std::fs::write(
            context.join("Dockerfile"),
            format!("FROM {good}\nLABEL {}\n{lines}\n", self.label()),
        )
        .unwrap();
        let context = context.display().to_string();
        docker(&["build", "--quiet", "--tag", &self.image, &context]);
        docker(&["push", "--quiet", &self.image]);
        remove(&self.image);
    }
}

/// Lines of a Dockerfile for an image that lacks what it promises.
const BROKEN: &str = "RUN rm -r /opt/venv/lib/python3*/site-packages/six*";
/// And for one whose validation does not end.
const HANGS: &str = "RUN for d in /opt/venv/lib/python3*/site-packages; do \
                     rm \"$d\"/__pycache__/six.*; \
                     echo 'import time; time.sleep(1000)' > \"$d/six.py\"; done";
/// A health check with which power fails.
const POWER_FAILS: &str = "health: { command: 'kill -9 $PPID' }";

#[test]
fn a_device_takes_what_is_good_and_keeps_what_it_has() {
    if !support::has_turn("updates of a service with an engine", 0, 2) {
        return;
    }
    let device = Device::new();
    let good = format!("{}/edge:good", device.server.host);
    device.build(&good);
    let key = device.sandbox.run(&["sign", "--generate-key", "publisher"]);
    assert_eq!(key.code, 0, "{}", key.stderr);
    let key = device.sandbox.path("publisher.pub").display().to_string();
    let verify = format!("verify: {{ key: {key} }}");
    let sign = |time: &str| {
        let sign = ["sign", &device.image, "--key", "publisher.key"];
        let run = (device.sandbox).run_with(&sign, &[("SOURCE_DATE_EPOCH", time)]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    };

    // Nobody signed the first one.
    device.publish(&good, "LABEL version=1");
    device.settings(&verify);
    assert_eq!(device.status().0, 3, "nothing has run yet");
    let (code, output) = device.update();
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("SF1104"), "{output}");
    assert_eq!(device.status().0, 1);
    sign("1000");
    let (code, output) = device.update();
    assert_eq!(code, 0, "{output}");
    let first = device.current();
    assert_eq!(device.services(), ["restart app.service"]);
    let (code, output) = device.update();
    assert_eq!((code, device.current()), (0, first.clone()), "{output}");
    assert!(output.contains("up to date"), "{output}");
    assert!(device.services().is_empty());
    let (code, status) = device.status();
    assert_eq!(code, 0, "{status}");
    assert_eq!(status["state"]["last"]["outcome"], "up_to_date");

    // The registry shows one that was signed before.
    device.publish(&good, "LABEL version=0");
    sign("999");
    let (code, output) = device.update();
    assert_eq!((code, device.current()), (1, first.clone()), "{output}");
    assert!(output.contains("SF1009"), "{output}");

    // It lacks what it promises.
    device.settings("service: { unit: app.service, pause: true }");
    device.publish(&good, BROKEN);
    let (code, output) = device.update();
    assert_eq!((code, device.current()), (1, first.clone()), "{output}");
    assert!(output.contains("does not validate"), "{output}");
    assert_eq!(device.services(), ["stop app.service", "start app.service"]);
    let report = std::fs::read_to_string(device.sandbox.path("state/report.json")).unwrap();
    assert!(report.contains("six"), "{report}");
    let (code, output) = device.update();
    assert_eq!((code, device.current()), (1, first.clone()), "{output}");
    assert!(output.contains("refused before"), "{output}");
    assert!(device.services().is_empty());
    // Refused only as long as nobody asks again.
    let (code, output) = device.ran(&mut device.command(&["--retry"]));
    assert!(
        code == 1 && output.contains("does not validate"),
        "{output}"
    );
    device.services();

    // It validates, and the service is not well with it.
    for (health, active, why) in [
        (
            "health: { command: 'false', within: 1s }",
            "active",
            "does not succeed",
        ),
        (
            "health: { http: 'http://127.0.0.1:9/', within: 1s }",
            "active",
            "127.0.0.1:9",
        ),
        (
            "health: { active: 0s, within: 1s }",
            "activating",
            "stay active",
        ),
        ("health: { active: 1s, within: 9s }", "failed", "has failed"),
    ] {
        device.unit(active, 0);
        device.settings(health);
        device.publish(&good, &format!("LABEL version=\"{why}\""));
        let (code, output) = device.update();
        assert_eq!(device.current(), first, "{output}");
        // With the image before it is not well either: no image is blamed.
        assert_eq!(code, 4, "{output}");
        assert!(output.contains(why), "{output}");
        assert_eq!(device.status().0, 4);
        assert_eq!(device.services(), ["restart app.service"; 2]);
    }
    device.unit("active", 0);
    let once = device.sandbox.path("once").display().to_string();
    device.settings(&format!(
        "health: {{ command: 'test -e {once} || {{ touch {once}; sleep 2; false; }}', within: 1s }}"
    ));
    device.publish(&good, "LABEL version=2");
    let (code, output) = device.update();
    assert_eq!((code, device.current()), (1, first.clone()), "{output}");
    assert!(output.contains("going back"), "{output}");
    assert_eq!(device.status().0, 1);
    device.services();

    // It does not even start, and never says so.
    device.settings("health: { active: 0s, within: 3s }");
    device.sandbox.write("unit-hangs", "");
    device.publish(&good, "LABEL version=2.1");
    let (code, output) = device.update();
    assert_eq!((code, device.current()), (1, first.clone()), "{output}");
    assert!(output.contains("has not started within 3s"), "{output}");

    // Its validation crashes: it is tried three times, then refused.
    device.settings("service: { unit: app.service, pause: true }");
    device.publish(&good, "RUN rm /opt/venv/bin/python3* /usr/bin/python3*");
    device.services();
    for n in 1..=3 {
        let (code, output) = device.update();
        assert_eq!((code, device.current()), (3, first.clone()), "{output}");
        let state = device.state();
        let counted = state["interrupted"].as_object().unwrap();
        assert!(counted.values().any(|times| *times == n), "{state}");
        assert_eq!(device.services(), ["stop app.service", "start app.service"]);
    }
    let (code, output) = device.update();
    assert!(
        code == 1 && output.contains("three times"),
        "{code} {output}"
    );

    // Power fails before it is known whether the service is well.
    device.settings(POWER_FAILS);
    device.publish(&good, "LABEL version=3");
    let (code, output) = device.update();
    assert_eq!(code, -1, "{output}");
    assert_ne!(device.current(), first, "the tag had moved");
    let (code, status) = device.status();
    assert_eq!((code, &status["state"]["step"]["at"]), (3, &"trial".into()));
    // Without a network too, what ran before comes back first.
    let place = format!("docker:{}", device.current);
    device.settings_for(&format!("{}/edge:gone", device.server.host), &place, "");
    let (code, output) = device.update();
    assert_eq!((code, device.current()), (3, first), "{output}");
    assert!(output.contains("interrupted"), "{output}");
}

#[test]
fn whatever_stops_an_update_the_service_runs_again() {
    if !support::has_turn("updates that are stopped", 1, 2) {
        return;
    }
    let device = Device::new();
    let good = format!("{}/edge:good", device.server.host);
    device.build(&good);
    device.settings("");
    device.publish(&good, "LABEL version=1");
    let (code, output) = device.update();
    assert_eq!(code, 0, "{output}");
    let first = device.current();
    device.services();
    let pause = "service: { unit: app.service, pause: true }";

    // The unit is stopped while a validation hangs.
    device.settings(pause);
    device.publish(&good, HANGS);
    let mut update = device.hung();
    let signal = |pid: u32, name: &str| {
        let kill = ["-s", name, "--", &format!("-{pid}")];
        assert!(Command::new("kill").args(kill).status().unwrap().success());
    };
    assert_eq!(device.status().0, 5, "one is under way");
    assert_eq!(device.update().0, 5);
    signal(update.id(), "TERM");
    assert_eq!(update.wait().unwrap().code(), Some(130));
    assert_eq!(device.services(), ["stop app.service", "start app.service"]);
    assert_eq!(device.current(), first);
    assert_eq!(device.status().0, 3);

    // Power fails in a validation, three times with one image.
    for n in 0..3 {
        let mut update = device.hung();
        signal(update.id(), "KILL");
        update.wait().unwrap();
        let stopped = device.services();
        let starts = stopped.iter().filter(|s| s.starts_with("start")).count();
        assert_eq!(starts, usize::from(n > 0), "what power stopped is started");
        assert_eq!(stopped.last().unwrap(), "stop app.service");
    }
    let (code, output) = device.update();
    assert_eq!((code, device.current()), (1, first.clone()), "{output}");
    assert!(output.contains("three times"), "{output}");
    assert_eq!(device.services(), ["start app.service"]);

    // A validation without an end is the image's fault.
    device.settings(&format!("{pause}\nvalidate: {{ gpu: false, within: 2s }}"));
    device.publish(&good, &format!("{HANGS}\nLABEL version=3"));
    let (code, output) = device.update();
    assert!(
        code == 1 && output.contains("did not end"),
        "{code} {output}"
    );
    assert_eq!(device.services(), ["stop app.service", "start app.service"]);

    // Two refusals in a row: the image of a service without a container is still there.
    assert_eq!(device.current(), first);

    // The unit is stopped while nobody knows yet whether the service is well.
    device.settings("health: { command: 'sleep 1000' }");
    device.publish(&good, "LABEL version=3.1");
    let mut update = device.command(&[]).process_group(0).spawn().unwrap();
    while device.current() == first {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(device.state()["step"]["at"], "trial");
    signal(update.id(), "TERM");
    assert_eq!(update.wait().unwrap().code(), Some(130));
    assert_eq!(device.current(), first);
    let state = device.state();
    assert_eq!(state["step"]["at"], "idle");
    assert_eq!(
        state["interrupted"],
        serde_json::json!({}),
        "nobody is blamed"
    );
    device.services();

    // Power fails there, and the engine does not answer when it is back.
    device.settings(POWER_FAILS);
    device.publish(&good, "LABEL version=3.2");
    assert_eq!(device.update().0, -1);
    let mut command = device.command(&[]);
    let (code, output) = device.ran(command.env("DOCKER_HOST", "unix:///nowhere"));
    assert_eq!(
        (code, &device.state()["step"]["at"]),
        (3, &"back".into()),
        "{output}"
    );
    let gone = format!("{}/edge:gone", device.server.host);
    let place = format!("docker:{}", device.current);
    device.settings_for(&gone, &place, "");
    let (code, output) = device.update();
    assert_eq!((code, device.current()), (3, first.clone()), "{output}");

    // Somebody moves the tag while an update is on trial.
    device.settings(POWER_FAILS);
    device.publish(&good, "LABEL version=3.3");
    assert_eq!(device.update().0, -1);
    docker(&["tag", &good, &device.current]);
    let own = device.current();
    device.settings_for(&gone, &place, "");
    let (_, output) = device.update();
    assert_eq!(device.current(), own, "{output}");
    docker(&["tag", &first, &device.current]);
    device.services();

    // The image before is gone when the tag has to go back.
    device.settings(POWER_FAILS);
    device.publish(&good, "LABEL version=4");
    assert_eq!(device.update().0, -1);
    let fourth = device.current();
    remove(&format!("{}-before", device.current));
    docker(&["image", "rm", "--force", &first]);
    device.settings("");
    let (code, output) = device.update();
    assert_eq!((code, device.current()), (4, fourth.clone()), "{output}");
    assert!(output.contains("is gone"), "{output}");
    let (code, output) = device.update();
    assert_eq!((code, device.current()), (0, fourth), "{output}");
    device.publish(&good, "LABEL version=5");
    let (code, output) = device.update();
    assert_eq!(code, 0, "{output}");
    let before = format!("{}-before", device.current);
    docker(&["image", "inspect", "--format", "{{.Id}}", &before]);
}

/// The same for the files of an image, and for a layout.
#[test]
fn a_service_without_an_engine_is_updated_too() {
    if !support::has_turn("updates of a service without an engine", 1, 2) {
        return;
    }
    let device = Device::new();
    let good = format!("{}/edge:good", device.server.host);
    device.build(&good);
    let dir = |name: &str| device.sandbox.path(name).display().to_string();
    for (place, file) in [
        (format!("rootfs:{}", dir("root")), "root/version"),
        (format!("oci:{}", dir("layout")), "layout/index.json"),
    ] {
        let holds = || std::fs::read_to_string(device.sandbox.path(file)).unwrap_or_default();
        let settings = |more: &str| device.settings_for(&device.image, &place, more);
        let publish =
            |version: &str| device.publish(&good, &format!("RUN echo {version} > /version"));
        let _ = std::fs::remove_dir_all(device.sandbox.path("state"));
        // What is refused when nothing was there before leaves nothing there.
        settings("health: { command: 'false', within: 1s }");
        publish("0");
        let (code, output) = device.update();
        let content = holds();
        assert_eq!(code, 1, "{output}");
        assert!(
            content.is_empty() || content.contains(r#""manifests":[]"#),
            "{content}"
        );
        settings("");
        publish("1");
        let (code, output) = device.update();
        assert_eq!(code, 0, "{output}");
        assert_eq!(device.update().0, 0, "up to date");
        let first = holds();
        assert!(!first.is_empty());
        publish("2");
        let (code, output) = device.update();
        assert_eq!(code, 0, "{output}");
        let second = holds();
        assert_ne!(first, second);
        // The service is not well with the third, and well with the second.
        let once = dir("once");
        settings(&format!(
            "health: {{ command: 'test -e {once} || {{ touch {once}; sleep 2; false; }}', within: 1s }}"
        ));
        publish("3");
        let (code, output) = device.update();
        assert_eq!((code, holds()), (1, second.clone()), "{output}");
        std::fs::remove_file(device.sandbox.path("once")).unwrap();
        device.publish(&good, BROKEN);
        let (code, output) = device.update();
        assert_eq!((code, holds()), (1, second.clone()), "{output}");
        assert!(output.contains("does not validate"), "{output}");
        // No program of it starts: it is tried three times, then refused.
        device.publish(&good, "RUN rm /opt/venv/bin/python3* /usr/bin/python3*");
        for _ in 0..3 {
            let (code, output) = device.update();
            assert_eq!((code, holds()), (3, second.clone()), "{output}");
        }
        let (code, output) = device.update();
        assert_eq!((code, holds()), (1, second.clone()), "{output}");
        assert!(output.contains("three times"), "{output}");
        settings(POWER_FAILS);
        publish("4");
        assert_eq!(device.update().0, -1);
        assert_ne!(holds(), second, "it was switched");
        let gone = format!("{}/edge:gone", device.server.host);
        device.settings_for(&gone, &place, "");
        let (code, output) = device.update();
        assert_eq!((code, holds()), (3, second), "{output}");
        settings("");
        assert_eq!(
            device.update().0,
            0,
            "one power cut is no reason to refuse it"
        );
        device.services();
    }
    // What stackforge did not write is not replaced.
    let own = device.sandbox.path("own");
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("file"), "own").unwrap();
    let _ = std::fs::remove_dir_all(device.sandbox.path("state"));
    device.settings_for(&device.image, &format!("rootfs:{}", own.display()), "");
    let (code, output) = device.update();
    assert_eq!(code, 3, "{output}");
    assert!(output.contains("SF1005"), "{output}");
    assert_eq!(std::fs::read_to_string(own.join("file")).unwrap(), "own");
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    let sandbox = Sandbox::new();
    let mut output = String::new();
    for text in [
        "image: a/b\n",
        "image: a/b\nplace: docker:b\nkey: x\n",
        "image: a/b\nplace: rootfs:b\n",
        "image: a/b\nplace: docker:b\nservice: { unit: '--force' }\n",
        "image: a/b\nplace: docker:b\nhealth: { within: soon }\n",
    ] {
        sandbox.write("edge.yaml", text);
        for more in [&[][..], &["--status"]] {
            let run = sandbox.run(&[&["update", "edge.yaml"], more].concat());
            assert_eq!(run.code, 2, "{text}{}", run.stderr);
            output += &run.stderr;
        }
    }
    let run = sandbox.run(&["update", "gone.yaml"]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    insta::assert_snapshot!("settings", output + &run.stderr);
    let example = sandbox.path("state").display().to_string();
    let text = std::fs::read_to_string(project("examples/edge/edge.yaml")).unwrap();
    sandbox.write(
        "edge.yaml",
        &text.replace("/var/lib/stackforge-edge", &example),
    );
    let run = sandbox.run(&["update", "edge.yaml", "--status"]);
    assert_eq!(run.code, 3, "no update has run: {}", run.stderr);
}

/// By systemd's own program.
#[test]
fn systemd_takes_the_units() {
    let sandbox = Sandbox::new();
    let program = env!("CARGO_BIN_EXE_stackforge");
    let units = ["stackforge-edge.service", "stackforge-edge.timer"];
    for unit in units {
        let text = std::fs::read_to_string(project(&format!("examples/edge/{unit}"))).unwrap();
        // Its program lies elsewhere here.
        let text = text.replace("/usr/local/bin/stackforge", program);
        sandbox.write(unit, &text);
    }
    let judge = |unit: &str| {
        let mut command = Command::new("systemd-analyze");
        let command = command.args(["verify", "--man=no"]).arg(sandbox.path(unit));
        let out = command
            .output()
            .expect("`scripts/setup.sh tests` installs systemd-analyze");
        let output = String::from_utf8_lossy(&out.stderr).into_owned();
        let own = output
            .lines()
            .filter(|line| line.contains("stackforge-edge"));
        own.map(str::to_owned).collect::<Vec<_>>()
    };
    for unit in units {
        assert!(judge(unit).is_empty(), "{:?}", judge(unit));
    }
    let security = ["security", "--offline=true", "--threshold=45", "--no-pager"];
    let mut command = Command::new("systemd-analyze");
    let exposed = command.args(security).arg(sandbox.path(units[0]));
    let exposed = exposed.output().unwrap();
    let output = String::from_utf8_lossy(&exposed.stdout);
    assert!(exposed.status.success(), "{output}");
    let text = std::fs::read_to_string(sandbox.path(units[0])).unwrap();
    sandbox.write(
        "stackforge-edge-wrong.service",
        &text.replace("Type=", "Typ="),
    );
    assert!(!judge("stackforge-edge-wrong.service").is_empty());
}
