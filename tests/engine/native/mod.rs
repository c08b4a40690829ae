//! The native engine beside the Docker engine: the same image, file by file; and what only the
//! native engine promises: one digest from anywhere, whatever killed an earlier run.
//!
//! Needs the network, Docker, docker-registry, skopeo and umoci.

mod bytecode;
mod cache;
mod damage;
mod engine;
mod files;
mod hostile;
mod kernels;
mod locking;
mod objects;
mod options;
mod prune;
mod registry;
mod scripts;
mod sdists;
mod service;
mod steps;
mod system;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::exported::{at_rest, differences, exported, unexplained};
use support::recipe::MARKUPSAFE;
use support::{self, image_spec, server};
use support::{CleanUp, Run, Sandbox};

const NAME: &str = "stackforge-test-native";
const SLIM: &str = "stackforge-test-slim";

/// Wheels with and without programs, one that is compiled, an OS package.
const STACK: &str = "\
stack: stackforge-test-native
base: debian-bookworm
target:
  platform: linux/amd64
  gpu: [h100]
python: \"3.11\"
libraries:
  six: \"1.17.0\"
  charset-normalizer: \"3.4.4\"
  markupsafe: { version: \"3.0.3\", from: source }
packages: [tree]
jit: false
";

fn out(program: &str, args: &[&str]) -> Vec<u8> {
    let run = Command::new(program).args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{program} {args:?}: {errors}");
    run.stdout
}

fn ok(run: &Run) -> serde_json::Value {
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

fn stack() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", STACK);
    sandbox.write(".stackforge/libraries/markupsafe.yaml", MARKUPSAFE);
    let run = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    sandbox
}

/// What Docker says that an image is for and how it runs; nothing where it says nothing.
fn configuration(image: &str) -> serde_json::Value {
    let inspected = out("docker", &["image", "inspect", image]);
    let inspected: serde_json::Value = serde_json::from_slice(&inspected).unwrap();
    let mut configuration = serde_json::json!({});
    for key in ["Architecture", "Os", "Variant"] {
        configuration[key] = inspected[0][key].clone();
    }
    for (key, value) in inspected[0]["Config"].as_object().unwrap() {
        // Of a container that built it, and what Docker fills in for itself.
        let noise = ["Hostname", "Domainname", "Image", "ArgsEscaped"];
        let is_noise = noise.contains(&key.as_str());
        let empty = [
            serde_json::json!(null),
            "".into(),
            false.into(),
            serde_json::json!([]),
        ];
        if !is_noise && !empty.contains(value) {
            configuration[key] = value.clone();
        }
    }
    configuration
}

#[test]
fn both_engines_make_the_same_image() {
    if !support::has_turn("the same image from both engines", 1, 2) {
        return;
    }
    let _clean = CleanUp::of(&[NAME]);
    let sandbox = stack();
    let docker = format!("{NAME}:docker");
    let built = sandbox.run(&[
        "build", "s.yaml", "--json", "--engine", "docker", "-t", &docker,
    ]);
    let by_engine = ok(&built);
    assert_eq!(by_engine["validation"]["ok"], true);

    // With a store of its own it compiles by itself.
    let native = format!("{NAME}:native");
    let layout = format!("oci:{}", sandbox.path("layout").display());
    let build = |store: &str| {
        let store = sandbox.path(store);
        let store = store.to_str().unwrap();
        let args = ["build", "s.yaml", "--json", "--engine", "native"];
        let to = ["-t", &native, "-o", "docker", "-o", &layout];
        ok(&sandbox.run(&[&args[..], &to, &["--store", store]].concat()))
    };
    let built = build("native");
    let checks = built["validation"]["checks"].as_array().unwrap();
    assert!(!checks.is_empty());
    for check in checks {
        assert_eq!(check["status"], "passed", "{check}");
    }
    let steps: Vec<&str> = (built["steps"].as_array().unwrap().iter())
        .map(|s| s["id"].as_str().unwrap())
        .collect();
    assert!(steps.contains(&"compile:markupsafe"), "{steps:?}");

    let (by_docker, by_native) = (exported(&docker), exported(&native));
    let differ = unexplained(&by_docker, &by_native);
    assert!(differ.is_empty(), "{differ:#?}");
    // The layout has the files that the engine was given.
    let differ = differences(&by_native, &at_rest(&sandbox.path("layout")));
    assert!(differ.is_empty(), "{differ:#?}");
    let (ours, theirs) = (configuration(&native), configuration(&docker));
    assert_eq!(ours, theirs);
    let labels = ours["Labels"].as_object().unwrap();
    assert_eq!(labels["io.stackforge.base"], "debian-bookworm");
    assert!(labels.contains_key("io.stackforge.audit"), "{labels:?}");
    assert!(
        !labels.contains_key("io.stackforge.validation"),
        "{labels:?}"
    );
    // The reports say the same: the same checks of the same promise on the same machine.
    assert_eq!(built["validation"], by_engine["validation"]);
    assert_eq!(built["audit"], by_engine["audit"]);

    // The compiled extension was compared.
    let compiled = by_native
        .keys()
        .filter(|p| p.contains("markupsafe/_speedups"));
    assert!(compiled.count() > 0);

    // Elsewhere it is the same image to the last bit, compiled again.
    sandbox.warm("elsewhere");
    let again = build("elsewhere");
    assert_eq!(built["image"]["id"], again["image"]["id"]);
    assert_eq!(again["cached"], false);
    assert_eq!(build("elsewhere")["cached"], true);

    // Nor does it take root, Docker or anybody's ids to make it.
    let alone = as_an_ordinary_user(&sandbox);
    assert_eq!(built["image"]["id"], alone["image"]["id"]);
    for check in alone["validation"]["checks"].as_array().unwrap() {
        assert_eq!(check["status"], "passed", "{check}");
    }

    // Other programs take it for what it is.
    let layout = format!("{layout}:native");
    let seen: serde_json::Value =
        serde_json::from_slice(&out("skopeo", &["inspect", &layout])).unwrap();
    assert_eq!(seen["Digest"], built["image"]["id"]);
    let unpacked = sandbox.path("unpacked");
    let image = layout.strip_prefix("oci:").unwrap();
    out(
        "umoci",
        &[
            "unpack",
            "--rootless",
            "--image",
            image,
            unpacked.to_str().unwrap(),
        ],
    );
    assert!(unpacked.join("rootfs/usr/bin/tree").is_file());
    let ran = out(
        "docker",
        &["run", "--rm", &native, "normalizer", "--version"],
    );
    assert!(String::from_utf8_lossy(&ran).contains("3.4.4"));
}

/// The same by a user without subordinate ids, in an environment with Python, whose pip fetches uv, and
/// no other program: no Docker, no newuidmap. The engine is not chosen: there is one.
fn as_an_ordinary_user(stack: &Sandbox) -> serde_json::Value {
    const NOBODY: u32 = 65534;
    let home = stack.path("home");
    std::fs::create_dir_all(home.join(".stackforge/libraries")).unwrap();
    let copy = |from: &Path, name: &str| std::fs::copy(from, home.join(name)).unwrap();
    for name in ["s.yaml", "s.lock", ".stackforge/libraries/markupsafe.yaml"] {
        copy(&stack.path(name), name);
    }
    copy(Path::new(env!("CARGO_BIN_EXE_stackforge")), "stackforge");
    std::fs::create_dir(home.join("bin")).unwrap();
    // Not one of somebody's home, which that user may not enter.
    let python = Path::new("/usr/bin/python3");
    assert!(python.exists(), "the system has a Python");
    std::os::unix::fs::symlink(python, home.join("bin/python3")).unwrap();
    let mut command = Command::new(home.join("stackforge"));
    let root = rustix::process::geteuid().is_root();
    if root {
        own(&home, NOBODY);
        std::fs::set_permissions(stack.path("."), Permissions::from_mode(0o755)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let ran = command
        .args(["build", "s.yaml", "--json", "-o", "oci:layout", "-t"])
        .arg(format!("{NAME}:native"))
        .current_dir(&home)
        .env("HOME", &home)
        .env("PATH", home.join("bin"))
        .env("DOCKER_HOST", "unix:///nonexistent.sock")
        .env("STACKFORGE_STORE", home.join("store"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    serde_json::from_slice(&ran.stdout).unwrap()
}

fn own(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            own(&entry.unwrap().path(), user);
        }
    }
}

/// Every library has a warm time, and a cold one or the reason why there is none.
fn assert_start_was_measured(document: &serde_json::Value) {
    let start = &document["validation"]["start"];
    let libraries = start["libraries"].as_array().unwrap();
    assert!(!libraries.is_empty(), "{document:#}");
    for library in libraries {
        assert!(
            library["warm"]["import"].as_f64().unwrap() > 0.0,
            "{start:#}"
        );
        let is_cold = library["cold"]["import"].is_f64();
        assert_ne!(is_cold, start["cold"]["reason"].is_string(), "{start:#}");
    }
}

#[test]
fn a_base_without_a_shell_is_all_that_python_needs() {
    let _clean = CleanUp::of(&[SLIM]);
    let sandbox = Sandbox::new();
    let slim = (STACK.replace("bookworm", "trixie-slim")).replace("\"3.11\"", "\"3.13\"");
    sandbox.write("s.yaml", &slim.replace("packages: [tree]\n", ""));
    sandbox.write("shell.yaml", &slim.replace("[tree]", "[dash]"));
    sandbox.write(".stackforge/libraries/markupsafe.yaml", MARKUPSAFE);
    let image = |stack: &str, tag: &str| {
        let locked = sandbox.run(&["lock", stack]);
        assert_eq!(locked.code, 0, "{}", locked.stderr);
        let tag = format!("{SLIM}:{tag}");
        let built = ok(&sandbox.run(&["build", stack, "--json", "-t", &tag, "-o", "docker"]));
        assert_eq!(built["validation"]["ok"], true);
        assert_eq!(built["audit"]["errors"], 0, "{built:#}");
        tag
    };
    let tag = image("s.yaml", "slim");
    let files = exported(&tag);
    let programs = [
        "sh", "bash", "dash", "apt", "dpkg", "perl", "cc", "gcc", "pip",
    ];
    let is_program = |path: &&String| {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        folder.ends_with("bin") && programs.contains(&name)
    };
    assert_eq!(files.keys().find(is_program), None);
    // Scanners find what is there.
    assert!(files.contains_key("var/lib/dpkg/status.d/libc6"));
    let script = "import markupsafe._speedups, os, ssl; print(len(os.listdir(ssl.get_default_verify_paths().capath)) > 100)";
    let ran = out("docker", &["run", "--rm", &tag, "python", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&ran).trim(), "True");

    // Nor does the engine need one to validate it.
    let validated = ok(&sandbox.run(&["validate", &tag, "--json"]));
    assert_eq!(validated["validation"]["ok"], true);
    assert_start_was_measured(&validated);

    // Nor does anyone need the engine: the store has the image, and a layout is one.
    let nowhere = [("DOCKER_HOST", "tcp://127.0.0.1:9")];
    ok(&sandbox.run(&["build", "s.yaml", "--json", "-t", &tag, "-o", "oci:layout"]));
    let layout = format!("oci:layout:{tag}");
    for image in [tag.as_str(), layout.as_str(), "layout"] {
        let validated = ok(&sandbox.run_with(&["validate", image, "--json"], &nowhere));
        let checks = &validated["validation"]["checks"];
        assert_eq!(checks[0]["name"], "imports", "{validated:#}");
        assert_eq!(checks[0]["status"], "passed", "{validated:#}");
        assert_start_was_measured(&validated);
    }
    let none = sandbox.run_with(&["validate", "no-such-image"], &nowhere);
    assert_eq!(none.code, 3, "{}", none.stderr);
    // What was validated without a GPU is not good for who asks for one.
    let on_gpu = sandbox.run(&["build", "s.yaml", "--json", "-t", &tag, "--gpu"]);
    if Path::new("/dev/nvidiactl").exists() {
        assert!(ok(&on_gpu)["validation"]["device"]["gpu"].is_string())
    } else {
        assert_eq!(on_gpu.code, 1, "{}", on_gpu.stderr);
        assert!(on_gpu.stdout.contains("GPU"), "{}", on_gpu.stdout);
    }

    let refused = sandbox.run(&["build", "s.yaml", "--engine", "docker", "--no-cache"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(refused.stderr.contains("SF0309"), "{}", refused.stderr);
    let plan = sandbox.run(&["plan", "s.yaml"]);
    assert!(plan.stdout.contains("debian-trixie-slim has no shell"));

    // A package is there when it is asked for.
    let tag = image("shell.yaml", "shell");
    let output = out("docker", &["run", "--rm", &tag, "sh", "-c", "echo hello"]);
    assert_eq!(String::from_utf8_lossy(&output).trim(), "hello");
}

fn tiny() -> Sandbox {
    let sandbox = Sandbox::new();
    for file in ["tiny.yaml", "tiny.lock"] {
        let text = std::fs::read_to_string(support::project("examples").join(file)).unwrap();
        sandbox.write(file, &text);
    }
    sandbox
}

fn build_tiny(sandbox: &Sandbox, store: &Path, to: &Path) -> Command {
    let mut command = sandbox.command();
    command
        .args(["build", "tiny.yaml", "--json", "--engine", "native"])
        .arg("-o")
        .arg(format!("oci:{}", to.display()))
        .arg("--store")
        .arg(store);
    command
}

fn digest(run: &std::process::Output) -> String {
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{errors}");
    let document: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    document["image"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn killed_at_any_moment_it_comes_to_the_same_image() {
    if !support::has_turn("native builds that are killed at moments of a clock", 0, 2) {
        return;
    }
    let sandbox = tiny();
    let (store, layout) = (sandbox.path("store"), sandbox.path("layout"));
    // Packages are fetched once; all that is made of them is not there yet.
    let first = build_tiny(&sandbox, &store, &layout).output().unwrap();
    let expected = digest(&first);
    let fresh = || {
        let _ = std::fs::remove_dir_all(&layout);
        for left in ["actions", "unpacked"] {
            let _ = std::fs::remove_dir_all(store.join(left));
        }
    };
    fresh();
    let start = std::time::Instant::now();
    digest(&build_tiny(&sandbox, &store, &layout).output().unwrap());
    let whole = start.elapsed();
    fastrand::seed(20);
    for _ in 0..8 {
        if fastrand::bool() {
            fresh();
        }
        let mut child = build_tiny(&sandbox, &store, &layout)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs_f64(
            whole.as_secs_f64() * fastrand::f64(),
        ));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let again = build_tiny(&sandbox, &store, &layout).output().unwrap();
    assert_eq!(digest(&again), expected);
    let verified = sandbox.run(&["cache", "verify", "--json"]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    let name = format!("oci:{}:latest", layout.display());
    let seen: serde_json::Value =
        serde_json::from_slice(&out("skopeo", &["inspect", &name])).unwrap();
    assert_eq!(seen["Digest"], serde_json::json!(expected));
}

#[test]
fn two_builds_share_a_store() {
    let sandbox = tiny();
    let other = std::fs::read_to_string(sandbox.path("tiny.yaml")).unwrap();
    sandbox.write("other.yaml", &other.replace("stack: tiny", "stack: other"));
    let lock = std::fs::read_to_string(sandbox.path("tiny.lock")).unwrap();
    sandbox.write(
        "other.lock",
        &lock.replace("stack = \"tiny\"", "stack = \"other\""),
    );
    let build = |stack: &str, store: &str| {
        let to = format!(
            "oci:{}",
            sandbox.path(&format!("{store}-{stack}")).display()
        );
        let mut command = sandbox.command();
        command
            .args([
                "build",
                &format!("{stack}.yaml"),
                "--json",
                "--engine",
                "native",
            ])
            .args(["-o", &to, "--store"])
            .arg(sandbox.path(store))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let both = [build("tiny", "store"), build("other", "store")];
    // Read at once: one that cannot say what it does holds what the other waits for.
    let both = both.map(|child| std::thread::spawn(|| child.wait_with_output().unwrap()));
    let both = both.map(|reader| digest(&reader.join().unwrap()));
    assert_ne!(both[0], both[1]);
    for (stack, expected) in ["tiny", "other"].into_iter().zip(both) {
        let alone = build(stack, &format!("alone-{stack}"));
        assert_eq!(digest(&alone.wait_with_output().unwrap()), expected);
    }
    let verified = sandbox.run(&["cache", "verify"]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
}

#[test]
fn a_library_that_changed_makes_its_own_layers_alone() {
    let sandbox = Sandbox::new();
    let build = |version: &str| {
        // One wheel that is large enough for a layer of its own, and small ones.
        sandbox.write(
            "s.yaml",
            &format!(
                "stack: stackforge-test-rebuild\nbase: debian-bookworm\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\npython: \"3.11\"\nlibraries: {{ numpy: \"2.2.6\", six: \"{version}\", packaging: \"25.0\" }}\njit: false\n"
            ),
        );
        let locked = sandbox.run(&["lock", "s.yaml"]);
        assert_eq!(locked.code, 0, "{}", locked.stderr);
        let args = [
            "build", "s.yaml", "--json", "--engine", "native", "-o", "oci:to",
        ];
        let built = ok(&sandbox.run(&args));
        let layers = built["image"]["layers"].as_array().unwrap().clone();
        (layers, built)
    };
    let (before, _) = build("1.16.0");
    let (after, built) = build("1.17.0");
    let new: Vec<_> = after.iter().filter(|l| !before.contains(l)).collect();
    // That of the small wheels, its byte code, and what was found of the image.
    assert_eq!(new.len(), 3, "{new:#?}");
    assert!(new[0].to_string().contains("six"), "{new:#?}");
    for step in built["steps"].as_array().unwrap() {
        let id = step["id"].as_str().unwrap();
        let unchanged = ["base", "environment", "wheel:numpy", "bytecode:numpy"];
        if unchanged.contains(&id) || id == "bytecode:python3.11" {
            assert_eq!(step["cached"], true, "{step:#}");
        }
    }
}
