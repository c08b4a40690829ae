//! Byte code of what is installed: it is loaded and nothing is compiled again, both engines make it, and it is the
//! same from an emulator.

use super::{ok, out};
use serde_json::Value;
use std::process::Command;
use support::exported::{exported, unexplained};
use support::{CleanUp, Run, Sandbox, left_out};

const NAME: &str = "stackforge-test-bytecode";

/// A wheel of templates that no Python 3 compiles beside modules that it does, and one without any.
const STACK: &str = "\
stack: stackforge-test-bytecode
base: debian-bookworm
target: { platform: linux/amd64, gpu: [h100] }
python: \"3.11\"
libraries: { six: \"1.17.0\", setuptools: \"65.5.0\", cookiecutter: \"2.6.0\" }
jit: false
";

fn stack(text: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", text);
    let locked = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(locked.code, 0, "{}", locked.stderr);
    sandbox
}

fn byte_code(image: &str) -> Vec<String> {
    let files = exported(image).into_keys();
    files
        .filter(|path| path.starts_with("opt/venv/") && path.ends_with(".pyc"))
        .collect()
}

/// What Python says of the modules that it imports.
fn imported(image: &str, modules: &str) -> String {
    let import = format!("import {modules}");
    let run = Command::new("docker")
        .args(["run", "--rm", image, "python", "-v", "-c", &import])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{said}");
    said
}

#[test]
fn containers_load_byte_code_and_compile_nothing() {
    let _clean = CleanUp::of(&[NAME]);
    let sandbox = stack(STACK);
    let (native, docker) = (format!("{NAME}:native"), format!("{NAME}:docker"));
    let build = |engine: &str, tag: &str, more: &[&str]| -> Value {
        let args = ["build", "s.yaml", "--json", "--engine", engine, "-t", tag];
        ok(&sandbox.run(&[&args[..], more].concat()))
    };
    let built = build("native", &native, &["-o", "docker"]);
    let steps = built["steps"].as_array().unwrap().iter();
    let steps: Vec<&str> = steps.filter_map(|step| step["id"].as_str()).collect();
    assert!(
        steps.iter().any(|id| id.starts_with("bytecode:")),
        "{steps:?}"
    );
    let made = byte_code(&native);
    assert!(made.len() > 100, "{made:?}");

    // All of it is used, and what it says is the path in the image.
    let said = imported(&native, "six, setuptools, cookiecutter.main");
    let site = "/opt/venv/lib/python3.11/site-packages/";
    let is_compiled =
        |line: &&str| line.starts_with("# code object from '/") && !line.contains("__pycache__");
    assert_eq!(said.lines().find(is_compiled), None);
    assert!(said.contains(&format!("# {site}__pycache__/six.cpython-311.pyc matches")));
    let script = "import six; print(six.add_metaclass.__code__.co_filename)";
    let file = out("docker", &["run", "--rm", &native, "python", "-c", script]);
    assert_eq!(
        String::from_utf8_lossy(&file).trim(),
        format!("{site}six.py")
    );

    // Made again it is the same, and so is Docker's, in its normal form.
    let again = build("native", &native, &["--no-cache"]);
    assert_eq!(built["image"]["id"], again["image"]["id"]);
    build("docker", &docker, &[]);
    let differ = unexplained(&exported(&docker), &exported(&native));
    assert!(differ.is_empty(), "{differ:#?}");

    // Without it nothing else differs.
    sandbox.write("s.yaml", &format!("{STACK}bytecode: false\n"));
    let less = build("native", &native, &["-o", "docker"]);
    assert_eq!(byte_code(&native), [""; 0]);
    assert_ne!(built["image"]["key"], less["image"]["key"]);
    let others = |built: &Value| {
        let mut all = layers(built);
        all.retain(|(about, _)| !about.starts_with("byte code"));
        all
    };
    assert_eq!(others(&built), others(&less), "wheels stay where they are");
    build("docker", &docker, &[]);
    assert_eq!(byte_code(&docker), [""; 0]);
}

/// The layers of an image, by what they say of themselves.
fn layers(built: &Value) -> Vec<(String, String)> {
    let layers = built["image"]["layers"].as_array().unwrap().iter();
    let text = |layer: &Value, key: &str| layer[key].as_str().unwrap().to_owned();
    layers
        .map(|layer| (text(layer, "about"), text(layer, "digest")))
        .collect()
}

/// The byte code of wheels. That of Python's own library also has files of a processor's settings.
fn of_byte_code(built: &Value) -> Vec<(String, String)> {
    let mut all = layers(built);
    all.retain(|(about, _)| about.starts_with("byte code of wheel"));
    all
}

#[test]
fn another_platforms_byte_code_is_the_same_or_is_said_to_be_missing() {
    let text = STACK.replace("cookiecutter: \"2.6.0\"", "idna: \"3.10\"");
    let text = text.replace("setuptools: \"65.5.0\"", "packaging: \"24.2\"");
    let here = stack(&text);
    let there = stack(&text.replace("amd64", "arm64").replace("h100", "thor"));
    let args = [
        "build",
        "s.yaml",
        "--json",
        "--engine",
        "native",
        "-t",
        NAME,
        "-o",
        "oci:layout",
    ];
    // A PATH without emulators: uv needs a Python.
    let none = there.path("none");
    std::fs::create_dir(&none).unwrap();
    std::os::unix::fs::symlink("/usr/bin/python3", none.join("python3")).unwrap();
    let none = [("PATH", none.to_str().unwrap())];
    let run: Run = there.run_with(&args, &none);
    let registered = std::path::Path::new("/proc/sys/fs/binfmt_misc/qemu-aarch64").exists();
    if !registered {
        let built = ok(&run);
        assert_eq!(of_byte_code(&built), []);
        let why = "the image has no byte code of its Python files: no program of linux/arm64 runs on this machine";
        assert_eq!(run.stderr.matches(why).count(), 1, "{}", run.stderr);
        let image = format!("oci:{}:latest", there.path("layout").display());
        let inspect = ["--override-arch", "arm64", "inspect", &image];
        let said: Value = serde_json::from_slice(&out("skopeo", &inspect)).unwrap();
        assert_eq!(said["Labels"]["io.stackforge.bytecode"], "none", "{said}");
        assert_eq!(ok(&there.run_with(&args, &none))["cached"], true);
        let plan = there.run_with(&["plan", "s.yaml"], &none);
        assert!(
            plan.stdout.contains("none: no program of linux/arm64"),
            "{}",
            plan.stdout
        );
    }
    let built = ok(&there.run(&args));
    let made = of_byte_code(&built);
    if made.is_empty() {
        left_out("byte code of another platform: install qemu-user-static");
        return;
    }
    assert_eq!(made, of_byte_code(&ok(&here.run(&args))));
}
