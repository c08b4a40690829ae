//! A service: the user's own files and configuration over the Python environment, from both engines.

use super::{exported, ok, out};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use support::{CleanUp, Run, Sandbox};

const STACK: &str = "stackforge-test-service";

fn stack() -> String {
    format!(
        r#"stack: {STACK}
base: debian-bookworm
target: {{ platform: linux/amd64, gpu: [h100] }}
python: "3.11"
libraries: {{ six: "1.17.0" }}
jit: false
app: {{ source: ., requirements: requirements.txt }}
image:
  entrypoint: [python, -m, service]
  cmd: [--port, 8000]
  env: {{ LOG_LEVEL: info, TEXT: 'a "b" $HOME \ c' }}
  user: app
  ports: [8000, 9000/udp]
  volumes: [/data]
  labels: {{ team: 'a "b" $c' }}
  stop_signal: INT
  health: {{ cmd: [python, -c, "print(\"x\")"], interval: 5s, timeout: 1500ms, start_period: 2s, retries: 2 }}
  files: {{ /etc/service/service.conf: service.conf, /usr/local/bin/hello: hello.sh }}
validate:
  imports: [service]
  run: [{{ cmd: [python, -m, service, --self-test], timeout: 30s }}]
"#
    )
}

const MAIN: &str = "import sys, os, idna, six\nassert 'fail' not in open('mode.txt').read(), 'told to fail'\nprint('ran in', os.getcwd())\n";

fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.warm("store");
    sandbox.write("s.yaml", &stack());
    sandbox.write("requirements.txt", "idna==3.10  # names\n");
    sandbox.write("service/__init__.py", "");
    sandbox.write("service/__main__.py", MAIN);
    sandbox.write("mode.txt", "pass");
    sandbox.write("service.conf", "a=b\n");
    sandbox.write("notes.md", "not for the image");
    sandbox.write(".dockerignore", "*.md\n");
    sandbox.write("hello.sh", "#!/bin/sh\necho hello\n");
    let executable = Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("hello.sh"), executable).unwrap();
    sandbox
}

fn build(sandbox: &Sandbox, engine: &str, tag: &str) -> Run {
    sandbox.run(&["build", "s.yaml", "--engine", engine, "-t", tag, "--json"])
}

/// The configuration of an image in Docker, without what only one engine's tools write.
fn config(image: &str) -> Value {
    let text = out(
        "docker",
        &["inspect", "--format", "{{json .Config}}", image],
    );
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    let keys = config.as_object_mut().unwrap();
    keys.remove("ArgsEscaped");
    keys.remove("OnBuild");
    config
}

fn step<'a>(document: &'a Value, id: &str) -> &'a Value {
    let mut steps = document["steps"].as_array().unwrap().iter();
    steps.find(|step| step["id"] == id).unwrap()
}

#[test]
fn a_service_is_the_same_from_both_engines() {
    const NAME: &str = "stackforge-test-service-same";
    const BY_DOCKER: &str = "stackforge-test-service-same-docker";
    let _clean = CleanUp::of(&[NAME, BY_DOCKER]);
    let sandbox = project();
    let built = ok(&build(&sandbox, "native", NAME));
    let app = &built["validation"]["checks"];
    let app = app
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["name"] == "app")
        .unwrap();
    assert_eq!(app["status"], "passed", "{app:#}");
    assert_eq!(app["results"].as_array().unwrap().len(), 2);
    ok(&build(&sandbox, "docker", BY_DOCKER));
    assert_eq!(config(NAME), config(BY_DOCKER));
    assert_eq!(
        config(NAME)["Labels"]["io.stackforge.key"],
        built["image"]["key"]
    );
    assert_eq!(config(NAME)["User"], "1000:1000");

    // Owners, modes and content of all that the stack adds.
    let own = |image: &str| {
        let mut all = exported(image);
        let starts = [
            "app",
            "data",
            "etc/service",
            "etc/passwd",
            "etc/group",
            "home/",
            "usr/local/bin",
        ];
        all.retain(|path, _| starts.iter().any(|start| path.starts_with(start)));
        all
    };
    let files = own(NAME);
    assert_eq!(files, own(BY_DOCKER));
    let names: Vec<&str> = files
        .keys()
        .map(String::as_str)
        .filter(|p| p.starts_with("app"))
        .collect();
    assert_eq!(
        names,
        [
            "app",
            "app/.dockerignore",
            "app/hello.sh",
            "app/mode.txt",
            "app/requirements.txt",
            "app/service",
            "app/service.conf",
            "app/service/__init__.py",
            "app/service/__main__.py",
        ]
    );
    let of = |path: &str| (files[path].1, files[path].2);
    assert_eq!(
        (of("data"), of("app/hello.sh")),
        ((0o755, 1000), (0o755, 0))
    );

    // It runs, as the user.
    for image in [NAME, BY_DOCKER] {
        let text = out("docker", &["run", "--rm", image]);
        assert_eq!(String::from_utf8_lossy(&text), "ran in /app\n");
        let args = ["run", "--rm", "--entrypoint", "id", image, "-un"];
        assert_eq!(String::from_utf8_lossy(&out("docker", &args)), "app\n");
    }
}

#[test]
fn a_changed_line_makes_the_last_layer_anew_and_nothing_else() {
    const NAME: &str = "stackforge-test-service-line";
    let _clean = CleanUp::of(&[NAME]);
    let sandbox = project();
    let before = ok(&build(&sandbox, "native", NAME));
    sandbox.write("service/__main__.py", &MAIN.replace("ran in", "runs in"));
    let after = ok(&build(&sandbox, "native", NAME));
    let layers = |document: &Value| document["image"]["layers"].as_array().unwrap().clone();
    let (before, now) = (layers(&before), layers(&after));
    let last = now.len() - 1;
    assert_eq!(before[..last], now[..last]);
    assert_ne!(before[last]["digest"], now[last]["digest"]);
    for done in after["steps"].as_array().unwrap() {
        let is_own = ["app", "service"].iter().any(|id| done["id"] == *id);
        assert_eq!(done["cached"], !is_own, "{done}");
    }
    // Configuration alone makes no layer.
    sandbox.write(
        "s.yaml",
        &stack().replace("LOG_LEVEL: info", "LOG_LEVEL: debug"),
    );
    let after = ok(&build(&sandbox, "native", NAME));
    assert_eq!(layers(&after), now);
    assert_eq!(step(&after, "app")["cached"], true);
    assert_eq!(ok(&build(&sandbox, "native", NAME))["cached"], true);
    // What went back is found.
    sandbox.write("s.yaml", &stack());
    assert_eq!(ok(&build(&sandbox, "native", NAME))["cached"], true);
}

#[test]
fn a_failed_check_of_the_app_leaves_the_image_without_a_name() {
    const NAME: &str = "stackforge-test-service-failed";
    const BY_DOCKER: &str = "stackforge-test-service-failed-docker";
    let _clean = CleanUp::of(&[NAME, BY_DOCKER]);
    let sandbox = project();
    ok(&build(&sandbox, "native", NAME));
    sandbox.write("mode.txt", "fail");
    for (engine, tag) in [("native", NAME), ("docker", BY_DOCKER)] {
        let run = build(&sandbox, engine, tag);
        assert_eq!(run.code, 1, "{}", run.stderr);
        let document: Value = serde_json::from_str(&run.stdout).unwrap();
        let checks = document["validation"]["checks"].as_array().unwrap();
        let app = checks.iter().find(|c| c["name"] == "app").unwrap();
        let reason = app["results"][1]["reason"].as_str().unwrap();
        assert!(
            reason.contains("exit status 1") && reason.contains("told to fail"),
            "{reason}"
        );
    }
    let images = out("docker", &["images", "--quiet", BY_DOCKER]);
    assert!(images.is_empty());
}

#[test]
fn a_user_or_a_path_that_the_base_has_otherwise_is_refused() {
    const NAME: &str = "stackforge-test-service-refused";
    const BY_DOCKER: &str = "stackforge-test-service-refused-docker";
    let _clean = CleanUp::of(&[NAME, BY_DOCKER]);
    let sandbox = project();
    for (from, to, code) in [
        (
            "user: app",
            "user: { name: daemon, uid: 77 }",
            "has the numbers 1:1",
        ),
        (
            "user: app",
            "user: { name: app, uid: 1 }",
            "`daemon` has the number 1",
        ),
        ("/etc/service/service.conf", "/bin/service.conf", "`/bin`"),
    ] {
        sandbox.write("s.yaml", &stack().replace(from, to));
        for (engine, tag) in [("native", NAME), ("docker", BY_DOCKER)] {
            let run = build(&sandbox, engine, tag);
            assert_eq!(run.code, 1, "{}", run.stderr);
            assert!(
                run.stdout.contains("SF0431") && run.stdout.contains(code),
                "{}",
                run.stdout
            );
        }
    }
}

/// A project of one package, with a program and a library that it needs.
const PROJECT: &str = "[project]\nname = \"my-service\"\nversion = \"1.0\"\nrequires-python = \">=3.9\"\n\
                       dependencies = [\"idna==3.10\"]\n[project.scripts]\nmy-service = \"my_service:main\"\n";

/// A stack that installs the project beside it.
fn installing(system: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.warm("store");
    let stack = "stack: NAME\nbase: debian-bookworm\ntarget: { platform: linux/amd64, gpu: [h100] }\npython: \"3.11\"\n\
                 libraries: { six: \"1.17.0\" }\njit: false\napp: { source: . }\nimage: { entrypoint: [my-service], user: app }\n\
                 validate:\n  imports: [my_service]\n  run: [{ cmd: [my-service] }, { cmd: [sh, -c, 'test \"$(id -un) $HOME\" = \"app /home/app\"'] }]\n";
    sandbox.write("s.yaml", &stack.replace("NAME", STACK));
    sandbox.write("pyproject.toml", &format!("{system}{PROJECT}"));
    sandbox.write("src/my_service/__init__.py", RUNS);
    sandbox
}

const RUNS: &str = "import idna\ndef main():\n    print('runs from', __file__)\n";

#[test]
fn a_project_is_built_and_installed_by_both_engines() {
    const NAME: &str = "stackforge-test-service-project";
    const BY_DOCKER: &str = "stackforge-test-service-project-docker";
    let _clean = CleanUp::of(&[NAME, BY_DOCKER]);
    let sandbox = installing(
        "[build-system]\nrequires = [\"setuptools>=77\"]\nbuild-backend = \"setuptools.build_meta\"\n",
    );
    let built = ok(&build(&sandbox, "native", NAME));
    let ids = |document: &Value| -> Vec<String> {
        let steps = document["steps"].as_array().unwrap().iter();
        steps
            .map(|s| s["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let order = ids(&built);
    assert_eq!(order[order.len() - 3..], ["project", "app", "service"]);
    // Each engine builds it by itself.
    let other = sandbox.run(&[
        "build", "s.yaml", "--engine", "docker", "-t", BY_DOCKER, "--json", "--store", "other",
    ]);
    let other = ok(&other);
    assert_eq!(step(&other, "project")["cached"], false);
    assert_eq!(config(NAME), config(BY_DOCKER));
    let own = |image: &str| {
        let mut all = exported(image);
        all.retain(|path, _| path.contains("my_service") || path.contains("my-service"));
        all
    };
    let files = own(NAME);
    assert_eq!(files, own(BY_DOCKER));
    let site = "opt/venv/lib/python3.11/site-packages";
    for path in [
        format!("{site}/my_service/__init__.py"),
        format!("{site}/my_service-1.0.dist-info/RECORD"),
        "opt/venv/bin/my-service".to_owned(),
    ] {
        assert!(files.contains_key(&path), "{path}");
    }
    for image in [NAME, BY_DOCKER] {
        let text = out("docker", &["run", "--rm", image]);
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(text, format!("runs from /{site}/my_service/__init__.py\n"));
    }

    // A changed line: the wheel and the layer above, nothing else.
    sandbox.write("src/my_service/__init__.py", &RUNS.replace("runs", "ran"));
    let after = ok(&build(&sandbox, "native", NAME));
    for done in after["steps"].as_array().unwrap() {
        let is_own = ["project", "app", "service"]
            .iter()
            .any(|id| done["id"] == *id);
        assert_eq!(done["cached"], !is_own, "{done}");
    }
    // What comes back is found.
    sandbox.write("src/my_service/__init__.py", RUNS);
    let again = ok(&build(&sandbox, "native", NAME));
    assert_eq!(again["image"]["digest"], built["image"]["digest"]);
    assert_eq!(again["cached"], true);
}

#[test]
fn backends_that_people_use_build_projects() {
    const NAME: &str = "stackforge-test-service-backends";
    let _clean = CleanUp::of(&[NAME]);
    let own = "import zipfile\ndef build_wheel(to, settings=None, metadata=None):\n    name = 'my_service-1.0-py3-none-any.whl'\n    info = 'my_service-1.0.dist-info/'\n    with zipfile.ZipFile(to + '/' + name, 'w') as z:\n        z.write('src/my_service/__init__.py', 'my_service/__init__.py')\n        z.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: my-service\\nVersion: 1.0\\nRequires-Dist: idna\\n')\n        z.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n        z.writestr(info + 'entry_points.txt', '[console_scripts]\\nmy-service = my_service:main\\n')\n        z.writestr(info + 'RECORD', '')\n    return name\n";
    let sandbox = installing("");
    for (requires, backend, more) in [
        (
            "\"hatchling\", \"hatch-vcs\"",
            "hatchling.build",
            "[tool.hatch.build.targets.wheel]\npackages = [\"src/my_service\"]\n",
        ),
        (
            "\"flit_core>=3.11\"",
            "flit_core.buildapi",
            "[tool.flit.module]\nname = \"my_service\"\n",
        ),
        (
            "\"poetry-core>=2\"",
            "poetry.core.masonry.api",
            "[tool.poetry]\npackages = [{ include = \"my_service\", from = \"src\" }]\n",
        ),
        ("\"pdm-backend\"", "pdm.backend", ""),
        ("\"uv_build\"", "uv_build", ""),
        (
            "\"setuptools\", \"setuptools-scm\"",
            "setuptools.build_meta",
            "",
        ),
        ("", "own_backend", "backend-path = [\"tools\"]\n"),
    ] {
        let system =
            format!("[build-system]\nrequires = [{requires}]\nbuild-backend = \"{backend}\"\n");
        // What belongs into the table of the build system stands before other tables.
        let project = PROJECT.replace("[project]\n", "[project]\ndescription = \"x\"\n");
        sandbox.write("pyproject.toml", &format!("{system}{more}{project}"));
        sandbox.write("tools/own_backend.py", own);
        let run = build(&sandbox, "native", NAME);
        assert_eq!(run.code, 0, "{backend}: {}\n{}", run.stdout, run.stderr);
    }
}

#[test]
fn a_project_that_cannot_be_installed_says_why() {
    const NAME: &str = "stackforge-test-service-unfit";
    const BY_DOCKER: &str = "stackforge-test-service-unfit-docker";
    let _clean = CleanUp::of(&[NAME, BY_DOCKER]);
    let system =
        "[build-system]\nrequires = [\"setuptools\"]\nbuild-backend = \"setuptools.build_meta\"\n";
    let refused = |sandbox: &Sandbox, engine: &str| {
        let run = build(sandbox, engine, BY_DOCKER);
        assert_ne!(run.code, 0, "{}", run.stdout);
        let text = run.stdout.clone() + &run.stderr;
        // The environment is built by then; no image has the name.
        let images = out("docker", &["images", "--quiet", BY_DOCKER]);
        assert!(images.is_empty(), "{text}");
        text
    };
    for engine in ["native", "docker"] {
        // Its build needs what its metadata does not say.
        let sandbox = installing(system);
        sandbox.write("setup.py", "import numpy\n");
        assert!(refused(&sandbox, engine).contains("No module named 'numpy'"));
        // It reaches for the network.
        sandbox.write(
            "setup.py",
            "import urllib.request as u\nu.urlopen('https://pypi.org/', timeout=5)\n",
        );
        let text = refused(&sandbox, engine);
        assert!(text.contains("urlopen error"), "{text}");
        // The wheel needs what no lock has.
        sandbox.write(
            "setup.py",
            "from setuptools import setup\nsetup(install_requires=['never-locked'])\n",
        );
        let dynamic = PROJECT.replace(
            "dependencies = [\"idna==3.10\"]",
            "dynamic = [\"dependencies\"]",
        );
        sandbox.write("pyproject.toml", &format!("{system}{dynamic}"));
        let text = refused(&sandbox, engine);
        assert!(text.contains("requires `never-locked`"), "{text}");
    }
    let sandbox = installing(&system.replace("\"setuptools\"", "\"six\""));
    assert!(refused(&sandbox, "native").contains("`setuptools.build_meta` cannot be imported"));
}
