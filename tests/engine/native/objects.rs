//! Objects of a compile that the next one takes, with either engine: of the same library, after a kill, and never
//! of another library.

use super::out;
use super::server::{Kind, Server};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use support::recipe::MARKUPSAFE;
use support::{CleanUp, Run, Sandbox};

const NAME: &str = "stackforge-test-objects";

/// Four objects and one of another language; `HOLD` seconds before the wheel is built.
const COMMANDS: &str = r#"
  commands:
    - "for n in 1 2 3 4; do echo \"int f$n(void) { return $n; }\" > f$n.c; gcc -O2 -c f$n.c -o f$n.o; done"
    - "echo 'int g() { return 5; }' > g.cc; g++ -O2 -c g.cc -o g.o; gcc -march=native -c f1.c -o n.o; echo all five objects; sleep $HOLD"
    - "/dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python wheel --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels ."
"#;

/// The recipe of a library that is built in seconds, with commands.
fn recipe(library: &str, commands: &str) -> String {
    let recipe = MARKUPSAFE
        .trim_end()
        .replace("markupsafe._speedups", library);
    recipe.replace("markupsafe", library) + commands
}

struct Compiles {
    sandbox: Sandbox,
    engine: &'static str,
    /// Of the image: tests with one engine run side by side.
    tag: String,
    _clean: CleanUp,
}

impl Compiles {
    fn with(engine: &'static str) -> Self {
        let sandbox = Sandbox::new();
        sandbox.warm("store");
        sandbox.write(
            ".stackforge/libraries/toolz.yaml",
            &recipe("toolz", COMMANDS),
        );
        let tag = format!("{NAME}-{}", std::process::id());
        let compiles = Self {
            sandbox,
            engine,
            _clean: CleanUp::of(&[&tag]),
            tag,
        };
        compiles.stack("toolz", "0.12.1", 0, "first");
        assert_eq!(compiles.sandbox.run(&["lock", "s.yaml"]).code, 0);
        compiles
    }

    /// A stack that compiles one library. Its step was never done where `case` is new.
    fn stack(&self, library: &str, version: &str, hold: u32, case: &str) {
        let text = format!(
            "stack: {NAME}\nbase: debian-bookworm\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\n\
             python: \"3.11\"\nlibraries:\n  {library}:\n    version: \"{version}\"\n    from: source\n    \
             env: {{ HOLD: \"{hold}\", TEST_CASE: \"{case}-{}\" }}\njit: false\nbytecode: false\n",
            std::process::id()
        );
        self.sandbox.write("s.yaml", &text);
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let to: &[&str] = match self.engine {
            "native" => &["-o", "oci:layout"],
            _ => &["-t", &self.tag],
        };
        let build = ["build", "s.yaml", "--json", "--engine", self.engine];
        [&build[..], to, more].concat()
    }

    fn build(&self, more: &[&str]) -> Run {
        let run = self.sandbox.run(&self.args(more));
        assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
        run
    }

    /// The objects are whole, and another store gets them by a signed export.
    fn carried(&self, all: u64) {
        let run = |args: &[&str]| {
            let run = self.sandbox.run(args);
            assert_eq!(run.code, 0, "{args:?}\n{}\n{}", run.stdout, run.stderr);
            serde_json::from_str::<Value>(&run.stdout).unwrap_or_default()
        };
        let verified = run(&["cache", "verify", "--json"]);
        assert_eq!(verified["damaged_objects"].as_array().unwrap().len(), 0);
        let objects_of_store = verified["objects"].as_u64().unwrap();
        assert!(objects_of_store >= all, "{verified}");
        run(&["sign", "--generate-key", "team"]);
        let to = ["--stack", "s.yaml", "--key", "team.key", "--json"];
        let exported = run(&[&["cache", "export", "all.tar"], &to[..]].concat());
        assert_eq!(exported["objects"], objects_of_store);
        let other = self.sandbox.path("other-store").display().to_string();
        let from = ["--verify", "team.pub", "--store", &other, "--json"];
        let imported = run(&[&["cache", "import", "all.tar"], &from[..]].concat());
        assert_eq!(imported["objects"], objects_of_store);
        self.stack("toolz", "0.12.1", 0, "carried");
        let there = self.build(&["--store", &other]);
        assert_eq!(objects(&there), Some((all, all)));
    }

    fn start(&self) -> Child {
        let mut command = self.sandbox.command();
        command.args(self.args(&[])).stdout(Stdio::null());
        command.stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// The objects that the compile asked for and those that it got; `None` where it asked no cache.
fn objects(run: &Run) -> Option<(u64, u64)> {
    let events = run.stderr.lines();
    let mut events = events.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let event = events.find(|e| e["event"] == "objects")?;
    let number = |name: &str| event[name].as_u64().unwrap();
    assert_eq!((number("device"), number("cached_device")), (0, 0));
    Some((number("objects"), number("cached")))
}

fn an_object_is_compiled_once(engine: &'static str) {
    let compiles = Compiles::with(engine);
    // With Docker, tests before this one may have filled the engine's own cache of the library.
    let (all, _) = objects(&compiles.build(&[])).unwrap();
    assert_eq!(all, 5, "what is compiled for this very machine is not kept");
    compiles.stack("toolz", "0.12.1", 0, "again");
    assert_eq!(objects(&compiles.build(&[])), Some((all, all)));

    if engine == "native" {
        compiles.carried(all);
    }

    compiles.stack("toolz", "0.12.1", 0, "without");
    assert_eq!(objects(&compiles.build(&["--no-compile-cache"])), None);
    compiles.stack("toolz", "0.12.1", 0, "by configuration");
    compiles
        .sandbox
        .write("config.yaml", "compile_cache: false\n");
    let config = compiles.sandbox.path("config.yaml").display().to_string();
    let args = compiles.args(&[]);
    let run = compiles
        .sandbox
        .run_with(&args, &[("STACKFORGE_CONFIG", &config)]);
    assert_eq!((run.code, objects(&run)), (0, None), "{}", run.stderr);

    // A compile that ends before its end has kept what it made. Each of its objects is one that no other has.
    let unlike = COMMANDS.replace(
        "return $n;",
        &format!("return $n + {};", std::process::id()),
    );
    compiles.sandbox.write(
        ".stackforge/libraries/toolz.yaml",
        &recipe("toolz", &unlike),
    );
    compiles.stack("toolz", "0.12.1", 600, "killed");
    let mut child = compiles.start();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let seen = lines.any(|line| line.unwrap().contains("\"all five objects\""));
    assert!(seen, "the compile came to its last object");
    match engine {
        "native" => child.kill().unwrap(),
        // A Docker engine's step ends with the client's request.
        _ => assert!(
            std::process::Command::new("kill")
                .args(["-INT", &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        ),
    }
    child.wait().unwrap();
    compiles.stack("toolz", "0.12.1", 0, "killed");
    assert_eq!(objects(&compiles.build(&[])), Some((all, all)));
}

#[test]
fn the_native_engine_compiles_an_object_once() {
    if !support::has_turn("kept objects, by the native engine", 1, 2) {
        return;
    }
    an_object_is_compiled_once("native");
}

#[test]
fn the_docker_engine_compiles_an_object_once() {
    if !support::has_turn("kept objects, by the Docker engine", 0, 2) {
        return;
    }
    an_object_is_compiled_once("docker");
}

/// The kernel kills a compiler where memory is short; here the first that compiles ends itself as if it did.
const KILLED: &str = r#"
  commands:
    - |
      mkdir near
      real=$(gcc -print-prog-name=cc1)
      cat >near/cc1 <<END
      #!/bin/sh
      case " \$* " in
        *" -E "*) ;;
        *) mkdir /tmp/was-killed 2>/dev/null && kill -9 \$\$ ;;
      esac
      exec $real "\$@"
      END
      chmod +x near/cc1
      for n in 1 2; do echo "int f$n(void) { return $n; }" >f$n.c; done
      for n in 1 2; do COMPILER_PATH=$PWD/near gcc -O1 -c f$n.c -o f$n.o; done
    - "/dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python wheel --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels ."
"#;

#[test]
fn of_a_compile_that_ran_out_of_memory_one_object_is_compiled_again() {
    let compiles = Compiles::with("native");
    let path = ".stackforge/libraries/toolz.yaml";
    compiles.sandbox.write(path, &recipe("toolz", KILLED));
    compiles.stack("toolz", "0.12.1", 0, "killed once");
    let run = compiles.build(&[]);
    assert!(
        run.stderr.contains("it runs again, alone"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("1 ran again"), "{}", run.stderr);
    assert!(!run.stderr.contains("\"retry\""), "{}", run.stderr);
}

#[test]
fn of_two_builds_at_once_one_compiles() {
    let compiles = Compiles::with("native");
    compiles.stack("toolz", "0.12.1", 8, "at once");
    let mut first = compiles.start();
    let mut lines = BufReader::new(first.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("\"all five objects\"")));
    let args = ["build", "s.yaml", "--json", "--engine", "native"];
    let second = compiles
        .sandbox
        .run(&[&args[..], &["-o", "oci:other"]].concat());
    assert_eq!(second.code, 0, "{}\n{}", second.stdout, second.stderr);
    assert!(second.stderr.contains("\"waiting\""), "{}", second.stderr);
    let steps: Value = serde_json::from_str(&second.stdout).unwrap();
    let mut steps = steps["steps"].as_array().unwrap().iter();
    let compile = steps.find(|s| s["id"] == "compile:toolz").unwrap();
    assert_eq!(compile["cached"], true);
    assert!(lines.all(|line| line.is_ok()));
    assert!(first.wait().unwrap().success());
}

/// Three objects that depend on the instruction set, in a wheel that depends on the SM too.
const IN_VARIANTS: &str = r#"
  arch: [{ variable: ARCHS, format: digits }]
  commands:
    - "for n in 1 2 3; do echo \"int f$n(void) { return $n; }\" > f$n.c; gcc -O2 $CFLAGS -c f$n.c -o f$n.o; done"
    - "/dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python wheel --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels ."
"#;

#[test]
fn of_a_matrix_some_variants_compile_what_the_others_find() {
    let sandbox = Sandbox::new();
    sandbox.warm("store");
    sandbox.write(
        ".stackforge/libraries/toolz.yaml",
        &recipe("toolz", IN_VARIANTS),
    );
    let stack = format!(
        "stack: {NAME}\nbase: debian-bookworm\ntarget: {{ platform: linux/amd64 }}\npython: \"3.11\"\n\
         matrix: {{ sm: [\"8.0\", \"9.0\"], isa: [avx, avx2] }}\n\
         libraries: {{ toolz: {{ version: \"0.12.1\", from: source }} }}\njit: false\nbytecode: false\n"
    );
    sandbox.write("s.yaml", &stack);
    assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
    let matrix: Value =
        serde_json::from_str(&sandbox.run(&["matrix", "s.yaml", "--json"]).stdout).unwrap();
    assert_eq!(matrix["filling"], 2, "{matrix:#}");

    let run = sandbox.run(&[
        "build",
        "s.yaml",
        "--all-variants",
        "--engine",
        "native",
        "--json",
    ]);
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    let events = run.stderr.lines();
    let events = events.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let compiled: Vec<_> = events
        .filter(|e| e["event"] == "objects")
        .map(|e| {
            (
                e["variant"].clone(),
                e["objects"].clone(),
                e["cached"].clone(),
            )
        })
        .collect();
    let order = matrix["order"].as_array().unwrap();
    let expected: Vec<_> = (order.iter().zip([0, 0, 3, 3]))
        .map(|(variant, cached)| (variant.clone(), Value::from(3), Value::from(cached)))
        .collect();
    assert_eq!(compiled, expected);
}

/// An object with the content of a file that the preprocessor does not see, as tools that embed data make them.
const EMBEDS: &str = r#"
  commands:
    - "echo data of $HOLD > data; echo '__asm__(\".incbin \\\"data\\\"\");' > e.c; gcc -c e.c -o e.o; gcc -pipe -c e.c -o p.o"
    - "for object in e.o p.o; do grep -q \"data of $HOLD\" $object || { echo $object is stale; exit 1; }; done"
    - "/dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python wheel --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels ."
"#;

fn nothing_is_kept_of_what_embeds_files(engine: &'static str) {
    let compiles = Compiles::with(engine);
    // Not the library of the other tests, whose objects in the Docker engine would be gone.
    compiles
        .sandbox
        .write(".stackforge/libraries/six.yaml", &recipe("six", EMBEDS));
    for (hold, case) in [(1, "one"), (2, "two"), (3, "three")] {
        compiles.stack("six", "1.17.0", hold, case);
        compiles.build(&[]);
    }
}

#[test]
fn the_native_engine_keeps_nothing_of_what_embeds_files() {
    if !support::has_turn("compiles that embed files, by the native engine", 0, 2) {
        return;
    }
    nothing_is_kept_of_what_embeds_files("native");
}

#[test]
fn the_docker_engine_keeps_nothing_of_what_embeds_files() {
    if !support::has_turn("compiles that embed files, by the Docker engine", 1, 2) {
        return;
    }
    nothing_is_kept_of_what_embeds_files("docker");
}

#[test]
fn what_one_machine_made_another_takes() {
    if !support::has_turn("objects of another machine", 0, 2) {
        return;
    }
    let server = Server::start(Kind::Open);
    let compiles = Compiles::with("native");
    let sandbox = &compiles.sandbox;
    for name in ["team", "other"] {
        let run = sandbox.run(&["sign", "--generate-key", name]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    let file = |name: &str| sandbox.path(name).display().to_string();
    // Each machine has a store of its own, and a step that no other has done.
    let machine = |store: &str, case: &str, keys: &str| {
        sandbox.warm(store);
        let place = format!("registry: {}/team/cache", server.host);
        sandbox.write("config.yaml", &format!("cache: {{ {place}{keys} }}\n"));
        compiles.stack("toolz", "0.12.1", 0, case);
        let store = file(store);
        let args = compiles.args(&["--store", &store]);
        let run = sandbox.run_with(&args, &[("STACKFORGE_CONFIG", &file("config.yaml"))]);
        assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
        (objects(&run).unwrap(), run.stderr)
    };
    let ((all, cached), _) = machine("first", "a", "");
    assert_eq!(cached, 0);
    assert_eq!(machine("second", "b", "").0, (all, all));
    // It adds nothing that is there, and takes nothing that it has.
    let tags = || {
        let image = format!("docker://{}/team/cache:objects-amd64-toolz", server.host);
        let raw = out(
            "skopeo",
            &["inspect", "--raw", "--tls-verify=false", &image],
        );
        serde_json::from_slice::<Value>(&raw).unwrap()
    };
    let before = tags();
    assert_eq!(before["layers"].as_array().unwrap().len(), 1, "{before}");
    machine("second", "c", "");
    assert_eq!(tags(), before);

    // Who wants a signature takes nothing that has none, and pushes its own.
    let (team, other) = (file("team.pub"), file("other.pub"));
    let keys = format!(", verify: {team}, key: {}", file("team.key"));
    let (found, stderr) = machine("careful", "d", &keys);
    assert_eq!(found, (all, 0));
    assert!(stderr.contains("has no usable objects"), "{stderr}");
    assert_eq!(
        machine("trusting", "e", &format!(", verify: {team}")).0,
        (all, all)
    );
    let (found, _) = machine("foreign", "f", &format!(", verify: {other}"));
    assert_eq!(found, (all, 0));
    // Another library's objects under this one's name are not taken.
    let repository = format!("docker://{}/team/cache", server.host);
    let elsewhere = format!("{repository}:objects-amd64-six");
    let own = format!("{repository}:objects-amd64-toolz");
    let copy = [
        "copy",
        "-q",
        "--src-tls-verify=false",
        "--dest-tls-verify=false",
    ];
    out("skopeo", &[&copy[..], &[&own, &elsewhere]].concat());
    sandbox.write(
        "config.yaml",
        &format!("cache: {{ registry: {}/team/cache }}\n", server.host),
    );
    sandbox.write(".stackforge/libraries/six.yaml", &recipe("six", ""));
    compiles.stack("six", "1.17.0", 0, "another library");
    let run = sandbox.run_with(
        &compiles.args(&[]),
        &[("STACKFORGE_CONFIG", &file("config.yaml"))],
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stderr.contains("names something else"),
        "{}",
        run.stderr
    );
}

/// What a compile does that would give its own objects to others.
const HOSTILE: &str = r#"schema: 1
library: six
distribution: six
about: test
imports: [six]
wheels: index
sources: [test]
build:
  source: sdist
  requires: [setuptools, wheel]
  jobs: { variable: MAX_JOBS, memory_gb: 0.1, source: test }
  metadata: { "*": { requires_python: ">=3.9", requires_dist: [] } }
  commands:
    - "echo own > /dev/stackforge/objects/planted; ln -s / /dev/stackforge/objects/root"
    - "for to in $(find / -xdev -type d -name 'objects*' ! -path '/proc/*') $(find / -type d -name 'toolz*' ! -path '/proc/*'); do echo planted > $to/planted || true; done"
    - "mkdir -p /dev/stackforge/objects/../objects/toolz; echo x > /dev/stackforge/objects/../planted || true"
    - "/dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python wheel --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels ."
"#;

#[test]
fn no_library_writes_into_anothers_objects() {
    let compiles = Compiles::with("native");
    let (all, _) = objects(&compiles.build(&[])).unwrap();
    let layout = compiles.sandbox.path("layout");
    let honest = std::fs::read_to_string(layout.join("index.json")).unwrap();
    let objects_of = |library: &str| {
        let folder = compiles.sandbox.path("store/objects/amd64").join(library);
        let files = std::process::Command::new("find")
            .arg(folder)
            .args(["-type", "f", "-exec", "sha256sum", "{}", "+"])
            .output()
            .unwrap();
        String::from_utf8(files.stdout).unwrap()
    };
    let before = objects_of("toolz");
    assert!(before.lines().count() >= 5, "{before}");

    compiles
        .sandbox
        .write(".stackforge/libraries/six.yaml", HOSTILE);
    compiles.stack("six", "1.17.0", 0, "hostile");
    compiles.build(&[]);
    assert!(objects_of("six").contains("planted"));
    assert_eq!(objects_of("toolz"), before);

    // Its own folder may hold anything: it is listed, weighed and removed, and leads nowhere.
    let listed = compiles.sandbox.run(&["cache", "ls", "--json"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    assert!(listed.stdout.contains("six for amd64"), "{}", listed.stdout);

    // What is compiled then is what was compiled before.
    compiles.stack("toolz", "0.12.1", 0, "first");
    let run = compiles.build(&["--no-cache"]);
    assert_eq!(objects(&run), Some((all, all)));
    assert_eq!(
        std::fs::read_to_string(layout.join("index.json")).unwrap(),
        honest
    );
    let done = compiles.sandbox.run(&["cache", "gc", "--max-size", "1B"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(objects_of("six"), "");
}
