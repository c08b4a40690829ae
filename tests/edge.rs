//! The update of an edge device, with a real engine and a real registry: taken when it is good,
//! refused when it does not validate, rolled back when the service is not well with it.

#[path = "registry/server.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod server;
mod support;

use server::{Kind, Server};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::Duration;
use support::{Sandbox, project, remove};

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
        remove(&self.current);
        remove(&format!("{}-before", self.current));
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
        let label = format!("label={}", self.label());
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
        // Services that the script would restart: what it asks for is written down.
        device
            .sandbox
            .program("bin", "systemctl", "echo \"$@\" >> \"$STATE/services\"");
        device
    }

    /// Of every image that is made here.
    fn label(&self) -> String {
        format!("stackforge.test={}", self.current)
    }

    fn settings(&self, more: &str) {
        let text = format!(
            "IMAGE={}\nCURRENT={}\nSERVICE=app.service\nVALIDATE=\nSTATE={}\nexport STATE\n{more}\n",
            self.image,
            self.current,
            self.sandbox.path("state").display()
        );
        self.sandbox.write("edge.conf", &text);
    }

    /// Exit code, and what was said.
    fn update(&self) -> (i32, String) {
        let out = self.command().output().unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let said = text(&out.stdout) + &text(&out.stderr);
        (out.status.code().unwrap_or(-1), said)
    }

    fn command(&self) -> Command {
        let own = std::path::Path::new(env!("CARGO_BIN_EXE_stackforge"));
        let mut path = vec![self.sandbox.path("bin"), own.parent().unwrap().to_owned()];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        let mut command = Command::new(project("examples/edge/update"));
        command
            .arg(self.sandbox.path("edge.conf"))
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("STACKFORGE_STORE", self.sandbox.path("store"));
        command
    }

    /// An update whose validation hangs, once the service is stopped for it. The leader of a
    /// process group of its own.
    fn hung(&self) -> Child {
        let real = env!("CARGO_BIN_EXE_stackforge");
        let hang = format!("[ \"$1\" != validate ] || exec sleep 1000\nexec {real} \"$@\"");
        self.sandbox.program("bin", "stackforge", &hang);
        let update = self.command().process_group(0).spawn().unwrap();
        let paused = self.sandbox.path("state/services");
        while !std::fs::read_to_string(&paused).is_ok_and(|text| text.contains("stop")) {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::fs::remove_file(self.sandbox.path("bin/stackforge")).unwrap();
        update
    }

    /// A stack of two wheels on a base of Debian packages, made by stackforge itself.
    fn build(&self, name: &str) {
        for name in ["tiny.yaml", "tiny.lock"] {
            let text = std::fs::read_to_string(project(&format!("examples/{name}"))).unwrap();
            self.sandbox.write(name, &text);
        }
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
        let path = self.sandbox.path("state/services");
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

#[test]
fn a_device_takes_what_is_good_and_keeps_what_it_has() {
    let device = Device::new();
    let good = format!("{}/edge:good", device.server.host);
    device.build(&good);
    let key = device.sandbox.run(&["sign", "--generate-key", "publisher"]);
    assert_eq!(key.code, 0, "{}", key.stderr);
    let key = device.sandbox.path("publisher.pub").display().to_string();
    let with_key = format!("KEY={key}");
    let sign = || {
        let run = (device.sandbox).run(&["sign", &device.image, "--key", "publisher.key"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    };

    // Nobody signed the first one.
    device.publish(&good, "LABEL version=1");
    device.settings(&with_key);
    let (code, said) = device.update();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("SF1104"), "{said}");
    sign();
    let (code, said) = device.update();
    assert_eq!(code, 0, "{said}");
    let first = device.current();
    assert_eq!(device.services(), ["restart app.service"]);
    let (code, said) = device.update();
    assert_eq!((code, device.current()), (0, first.clone()), "{said}");
    assert!(said.contains("up to date"), "{said}");
    assert!(device.services().is_empty());

    // It lacks what it promises.
    device.settings("PAUSE=yes");
    device.publish(&good, "RUN rm -r /opt/venv/lib/python3*/site-packages/six*");
    let (code, said) = device.update();
    assert_eq!((code, device.current()), (1, first.clone()), "{said}");
    assert!(said.contains("does not validate"), "{said}");
    assert_eq!(device.services(), ["stop app.service", "start app.service"]);
    let report = std::fs::read_to_string(device.sandbox.path("state/report.json")).unwrap();
    assert!(report.contains("six"), "{report}");
    let (code, said) = device.update();
    assert_eq!((code, device.current()), (0, first.clone()), "{said}");
    assert!(said.contains("refused before"), "{said}");
    assert!(device.services().is_empty());

    // It validates, and the service is not well with it.
    device.settings("HEALTH=false");
    device.publish(&good, "LABEL version=2");
    let (code, said) = device.update();
    assert_eq!((code, device.current()), (1, first.clone()), "{said}");
    assert!(said.contains("rolling back"), "{said}");
    assert_eq!(
        device.services(),
        ["restart app.service", "restart app.service"]
    );
    assert!(!device.sandbox.path("state/trial").exists());

    // Power fails before it is known whether the service is well.
    device.settings("HEALTH='kill -9 $PPID'");
    device.publish(&good, "LABEL version=3");
    let (code, said) = device.update();
    assert_eq!(code, -1, "{said}");
    assert_ne!(device.current(), first, "the tag had moved");
    // Without a network too, what ran before comes back first.
    device.settings(&format!("IMAGE={}/edge:gone", device.server.host));
    let (code, said) = device.update();
    assert_eq!((code, device.current()), (3, first), "{said}");
    assert!(said.contains("interrupted"), "{said}");
}

#[test]
fn whatever_stops_an_update_the_service_runs_again() {
    let device = Device::new();
    let good = format!("{}/edge:good", device.server.host);
    device.build(&good);
    device.settings("");
    device.publish(&good, "LABEL version=1");
    let (code, said) = device.update();
    assert_eq!(code, 0, "{said}");
    let first = device.current();
    device.services();

    // The unit is stopped while a validation hangs.
    device.settings("PAUSE=yes");
    device.publish(&good, "LABEL version=2");
    let mut update = device.hung();
    let signal = |pid: u32, name: &str| {
        let kill = ["-s", name, "--", &format!("-{pid}")];
        assert!(Command::new("kill").args(kill).status().unwrap().success());
    };
    signal(update.id(), "TERM");
    assert_eq!(update.wait().unwrap().code(), Some(143));
    assert_eq!(device.services(), ["stop app.service", "start app.service"]);
    assert_eq!(device.current(), first);

    // Power fails in a validation, three times with one image.
    for _ in 0..3 {
        let mut update = device.hung();
        signal(update.id(), "KILL");
        update.wait().unwrap();
        let stopped = device.services();
        assert_eq!(stopped.last().unwrap(), "stop app.service");
    }
    let (code, said) = device.update();
    assert_eq!((code, device.current()), (1, first.clone()), "{said}");
    assert!(said.contains("three times"), "{said}");
    assert_eq!(device.services(), ["start app.service"]);

    // A validation without an end is the image's fault.
    device.settings("PAUSE=yes\nLIMIT=1s");
    device.publish(&good, "LABEL version=3");
    let mut update = device.hung();
    assert_eq!(update.wait().unwrap().code(), Some(1));
    assert_eq!(device.services(), ["stop app.service", "start app.service"]);

    // Two refusals in a row: the image of a service without a container is still there.
    assert_eq!(device.current(), first);

    // The unit is stopped while nobody knows yet whether the service is well.
    device.settings("HEALTH='sleep 1000'");
    device.publish(&good, "LABEL version=3.1");
    let mut update = device.command().process_group(0).spawn().unwrap();
    let trial = device.sandbox.path("state/trial");
    while !trial.exists() || device.current() == first {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(500));
    signal(update.id(), "TERM");
    assert_eq!(update.wait().unwrap().code(), Some(143));
    assert_eq!(device.current(), first);
    assert!(!trial.exists());
    let blamed = std::fs::read_to_string(device.sandbox.path("state/interrupted")).unwrap();
    assert_eq!(blamed.lines().count(), 3, "{blamed}");
    device.services();

    // Power fails there, and the engine does not answer when it is back.
    device.settings("HEALTH='kill -9 $PPID'");
    device.publish(&good, "LABEL version=3.2");
    assert_eq!(device.update().0, -1);
    device.sandbox.program("bin", "docker", "exit 1");
    let (code, said) = device.update();
    assert!(code == 3 && trial.exists(), "{code} {said}");
    std::fs::remove_file(device.sandbox.path("bin/docker")).unwrap();
    device.settings(&format!("IMAGE={}/edge:gone", device.server.host));
    let (code, said) = device.update();
    assert_eq!((code, device.current()), (3, first.clone()), "{said}");

    // Somebody moves the tag while an update is on trial.
    device.settings("HEALTH='kill -9 $PPID'");
    device.publish(&good, "LABEL version=3.3");
    assert_eq!(device.update().0, -1);
    docker(&["tag", &good, &device.current]);
    let own = device.current();
    device.settings(&format!("IMAGE={}/edge:gone", device.server.host));
    let (_, said) = device.update();
    assert_eq!(device.current(), own, "{said}");
    docker(&["tag", &first, &device.current]);
    device.services();

    // The image before is gone when the tag has to go back.
    device.settings("HEALTH='kill -9 $PPID'");
    device.publish(&good, "LABEL version=4");
    assert_eq!(device.update().0, -1);
    let fourth = device.current();
    remove(&format!("{}-before", device.current));
    docker(&["image", "rm", "--force", &first]);
    device.settings("");
    let (code, said) = device.update();
    assert_eq!((code, device.current()), (4, fourth.clone()), "{said}");
    assert!(said.contains("is gone"), "{said}");
    let (code, said) = device.update();
    assert_eq!((code, device.current()), (0, fourth), "{said}");
    device.publish(&good, "LABEL version=5");
    let (code, said) = device.update();
    assert_eq!(code, 0, "{said}");
    let interrupted = device.sandbox.path("state/interrupted");
    let interrupted = std::fs::read_to_string(interrupted).unwrap();
    assert!(!interrupted.contains(&device.current()), "{interrupted}");
}

#[test]
fn settings_that_say_too_little_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("edge.conf", "IMAGE=a/b\n");
    for file in ["edge.conf", "gone.conf"] {
        let out = Command::new(project("examples/edge/update"))
            .arg(sandbox.path(file))
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(2), "{file}");
    }
}

/// By systemd's own program.
#[test]
fn systemd_takes_the_units() {
    let sandbox = Sandbox::new();
    let program = project("examples/edge/update").display().to_string();
    let units = ["stackforge-edge.service", "stackforge-edge.timer"];
    for unit in units {
        let text = std::fs::read_to_string(project(&format!("examples/edge/{unit}"))).unwrap();
        // Its program lies elsewhere here, and there need not be a Docker for systemd.
        let text = text.replace("/usr/local/lib/stackforge/update", &program);
        sandbox.write(unit, &text.replace("Requires=docker.service\n", ""));
    }
    let judge = |unit: &str| {
        let mut command = Command::new("systemd-analyze");
        let command = command.args(["verify", "--man=no"]).arg(sandbox.path(unit));
        let out = command
            .output()
            .expect("`scripts/setup.sh tests` installs systemd-analyze");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let own = said.lines().filter(|line| line.contains("stackforge-edge"));
        own.map(str::to_owned).collect::<Vec<_>>()
    };
    for unit in units {
        assert!(judge(unit).is_empty(), "{:?}", judge(unit));
    }
    let security = ["security", "--offline=true", "--threshold=45", "--no-pager"];
    let mut command = Command::new("systemd-analyze");
    let exposed = command.args(security).arg(sandbox.path(units[0]));
    let exposed = exposed.output().unwrap();
    let said = String::from_utf8_lossy(&exposed.stdout);
    assert!(exposed.status.success(), "{said}");
    let text = std::fs::read_to_string(sandbox.path(units[0])).unwrap();
    sandbox.write(
        "stackforge-edge-wrong.service",
        &text.replace("Type=", "Typ="),
    );
    assert!(!judge("stackforge-edge-wrong.service").is_empty());
}
