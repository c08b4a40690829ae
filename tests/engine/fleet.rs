//! `build --all-variants` on several Docker Engines of loopback, one of which is killed; BuildKit's own
//! cache through a registry; an engine that pushes what it built.
//!
//! Needs the network, root, dockerd, docker-registry and skopeo.

use daemon::Daemon;
use serde_json::Value;
use server::{Kind, Server};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use support::recipe::MARKUPSAFE;
use support::{self, daemon, server};
use support::{Run, Sandbox, schemas};

const STACK: &str = "\
stack: stackforge-test-fleet
base: debian-bookworm
target:
  platform: linux/amd64
matrix:
  sm: [\"8.0\", \"9.0\", \"10.0\", \"12.0\"]
python: \"3.11\"
libraries:
  six: \"1.17.0\"
  markupsafe: { version: \"3.0.3\", from: source }
jit: false
bytecode: false
";

fn sandbox(config: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", STACK);
    sandbox.write(".stackforge/libraries/markupsafe.yaml", MARKUPSAFE);
    sandbox.write("config.yaml", config);
    sandbox
}

fn locked(config: &str) -> Sandbox {
    let sandbox = sandbox(config);
    let run = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    sandbox
}

fn build(sandbox: &Sandbox, args: &[&str]) -> Run {
    let config = sandbox.path("config.yaml").display().to_string();
    let all = [&["build", "s.yaml", "--json"], args].concat();
    // An engine that the environment names would come before the builders.
    let named = [("STACKFORGE_CONFIG", config.as_str()), ("DOCKER_HOST", "")];
    sandbox.run_with(&all, &named)
}

fn document(run: &Run) -> Value {
    serde_json::from_str(&run.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}\n{}", run.stdout, run.stderr))
}

fn skopeo(args: &[&str]) -> Value {
    let out = Command::new("skopeo").args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "skopeo {args:?}: {errors}");
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn variants_are_spread_over_engines_and_survive_the_loss_of_one() {
    if !support::has_turn("variants spread over engines", 1, 2) {
        return;
    }
    let registry = Server::start(Kind::Open);
    let (steady, mut mortal) = (Daemon::start(), Daemon::start());
    let nobody = "tcp://127.0.0.1:9";
    let host = &registry.host;
    let config = format!(
        "cache: {{ registry: {host}/team/cache }}\nbuilders: {{ linux/amd64: ['{}', '{}', '{nobody}'] }}\n",
        steady.address, mortal.address
    );
    let sandbox = locked(&config);
    let index = format!("{host}/team/stack:1");
    let mut child = sandbox
        .command()
        .args(["build", "s.yaml", "--all-variants", "--json"])
        .args(["--push", &index, "--index"])
        .env("STACKFORGE_CONFIG", sandbox.path("config.yaml"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One engine is lost while it builds: when it runs a step.
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let stdout = std::thread::spawn({
        let mut stdout = child.stdout.take().unwrap();
        move || std::io::read_to_string(&mut stdout).unwrap()
    });
    let (mut killed, mut log) = (false, String::new());
    for line in stderr.lines() {
        let line = line.unwrap();
        log += &line;
        log.push('\n');
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        if !killed
            && event["event"] == "step_started"
            && event["builder"] == mortal.address.as_str()
        {
            mortal.kill();
            killed = true;
        }
    }
    let status = child.wait().unwrap();
    let stdout = stdout.join().unwrap();
    schemas::check(&["build", "--all-variants", "--json"], &stdout, &log);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert!(killed, "the second engine got nothing to do: {log}");
    assert_eq!(status.code(), Some(0), "{report:#}\n{log}");

    let variants = report["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 4);
    for variant in variants {
        assert_eq!(variant["ok"], true, "{variant:#}");
        assert_eq!(variant["builder"], steady.address.as_str());
    }
    let lost = report["lost"].as_array().unwrap();
    let lost: BTreeSet<&str> = lost
        .iter()
        .map(|l| l["builder"].as_str().unwrap())
        .collect();
    assert_eq!(lost, BTreeSet::from([nobody, mortal.address.as_str()]));

    // Each is in the engine, and by its id in the index.
    let of = format!("docker://{index}");
    let listed = skopeo(&["inspect", "--raw", "--tls-verify=false", &of]);
    let entries = listed["manifests"].as_array().unwrap();
    assert_eq!(entries.len(), 4, "{listed:#}");
    for variant in variants {
        let name = variant["name"].as_str().unwrap();
        let id = variant["image"]["id"].as_str().unwrap();
        let ids = steady.docker(&["images", "--no-trunc", "--quiet", name]);
        assert_eq!(ids.trim(), id);
        let entry = entries
            .iter()
            .find(|e| e["annotations"]["io.stackforge.variant"] == name)
            .unwrap();
        let of = format!(
            "docker://{host}/team/stack@{}",
            entry["digest"].as_str().unwrap()
        );
        let manifest = skopeo(&["inspect", "--raw", "--tls-verify=false", &of]);
        assert_eq!(manifest["config"]["digest"], id);
    }

    // Once more there is nothing to do.
    let run = build(&sandbox, &["--all-variants"]);
    let again = document(&run);
    assert_eq!(run.code, 0, "{again:#}\n{}", run.stderr);
    for (before, now) in variants.iter().zip(again["variants"].as_array().unwrap()) {
        assert_eq!(now["cached"], true, "{now:#}");
        assert_eq!(now["image"]["id"], before["image"]["id"]);
    }
    // Nothing was asked of the others.
    assert_eq!(again["lost"], serde_json::json!([]));

    // An engine that has an image keeps the variant, however little another has to do.
    let fresh = Daemon::start();
    let both = format!(
        "builders: {{ linux/amd64: ['{}', '{}'] }}\n",
        fresh.address, steady.address
    );
    sandbox.write("config.yaml", &both);
    let run = build(&sandbox, &["--all-variants"]);
    let again = document(&run);
    assert_eq!(run.code, 0, "{again:#}\n{}", run.stderr);
    for (before, now) in variants.iter().zip(again["variants"].as_array().unwrap()) {
        assert_eq!(now["cached"], true, "{now:#}");
        assert_eq!(now["builder"], before["builder"]);
        assert_eq!(now["image"]["id"], before["image"]["id"]);
    }

    // A machine that never built it gets wheels and layers from the registry.
    let lock = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    let config = format!(
        "cache: {{ registry: {host}/team/cache }}\nbuilders: {{ linux/amd64: ['{}'] }}\n",
        fresh.address
    );
    let other = self::sandbox(&config);
    other.write("s.lock", &lock);
    let name = variants[0]["name"].as_str().unwrap();
    let run = build(&other, &["--variant", name, "--engine", "docker"]);
    let built = document(&run);
    assert_eq!(run.code, 0, "{built:#}\n{}", run.stderr);
    let steps = built["steps"].as_array().unwrap();
    for id in ["compile:markupsafe", "wheels:libraries"] {
        let step = steps.iter().find(|s| s["id"] == id).unwrap();
        assert_eq!(step["cached"], true, "{steps:#?}\n{}", run.stderr);
    }

    // Without an engine for the platform nothing is built, and that is said of each.
    drop(fresh);
    let run = build(&other, &["--all-variants"]);
    let none = document(&run);
    assert_eq!(run.code, 3, "{none:#}");
    assert_eq!(none["diagnostics"][0]["code"], "SF0310");
    for variant in none["variants"].as_array().unwrap() {
        assert_eq!(variant["reason"], "no engine for linux/amd64 is left");
    }
}

#[test]
fn what_is_for_one_image_alone_is_refused() {
    let sandbox = sandbox("{}");
    for (args, word) in [
        (["-t", "x"], "--tag"),
        (["-o", "oci:x"], "--push REF --index"),
        (["--push", "localhost:1/x:1"], "--push REF --index"),
        (["--variant", "x"], "--variant"),
    ] {
        let run = build(&sandbox, &[&["--all-variants"], &args[..]].concat());
        assert_eq!(run.code, 2, "{}", run.stderr);
        assert!(run.stderr.contains(word), "{}", run.stderr);
    }
}
