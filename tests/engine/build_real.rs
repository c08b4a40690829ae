//! The main job through the real engine, on stacks small enough to fail in every way.
//!
//! One test, in order: each scenario starts from what the one before left in the engine's
//! cache. Images are tagged `stackforge-test-*` and removed at the end.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use support::{CleanUp, Run, Sandbox};

const STACK: &str = "\
stack: stackforge-test-small
base: debian-bookworm
target:
  platform: linux/amd64
  gpu: [h100]
python: \"3.11\"
libraries:
  six: \"1.17.0\"
  markupsafe: { version: \"3.0.3\", from: source }
packages: [tree]
jit: false
";

/// Recipes of the test: six with its imports, markupsafe compiled by `commands`.
fn recipes(sandbox: &Sandbox, six_imports: &str, commands: &str) {
    sandbox.write(
        ".stackforge/libraries/six.yaml",
        &format!(
            "schema: 1\nlibrary: six\ndistribution: six\nabout: test\nimports: {six_imports}\nwheels: index\nsources: [test]\n"
        ),
    );
    sandbox.write(
        ".stackforge/libraries/markupsafe.yaml",
        &format!(
            "schema: 1\nlibrary: markupsafe\ndistribution: markupsafe\nabout: test\n\
             imports: [markupsafe, markupsafe._speedups]\nwheels: index\nsources: [test]\n\
             build:\n  source: sdist\n  requires: [setuptools, wheel]\n  \
             jobs: {{ variable: MAX_JOBS, memory_gb: 0.1, source: test }}\n  \
             metadata: {{ \"*\": {{ requires_python: \">=3.9\", requires_dist: [] }} }}\n  commands: {commands}\n"
        ),
    );
}

const COMPILE: &str = "[\"/dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python wheel --no-cache-dir --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels .\"]";

fn docker(args: &[&str]) -> String {
    let out = Command::new("docker").args(args).output().unwrap();
    assert!(
        out.status.success(),
        "docker {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn tagged(image: &str) -> bool {
    let out = Command::new("docker")
        .args(["image", "inspect", image])
        .output()
        .unwrap();
    out.status.success()
}

fn json(run: &Run) -> serde_json::Value {
    serde_json::from_str(&run.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}\n{}", run.stdout, run.stderr))
}

const IMAGE: &str = "stackforge-test-small:latest";

#[test]
fn the_main_job_and_its_failures() {
    let _clean = CleanUp::of(&["stackforge-test-small"]);
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", STACK);

    recipes(&sandbox, "[six]", COMPILE);
    let run = sandbox.run(&["build", "s.yaml", "--locked"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("SF0201") && run.stderr.contains("stackforge lock s.yaml"));

    let run = sandbox.run(&["lock", "s.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lock = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    for foreign in ["http://", "https://", "pypi", "debian.org"] {
        assert!(
            !lock.contains(foreign),
            "a lock names no host, this one has {foreign}"
        );
    }

    a_failing_compile_shows_its_log_and_the_stacks_line(&sandbox);
    a_failing_import_keeps_the_tag_away(&sandbox);
    a_killed_compile_is_retried_with_half_the_jobs(&sandbox);
    a_wrong_hash_is_refused(&sandbox, &lock);
    the_engine_may_go_away(&sandbox);
    ctrl_c_stops_the_engines_work(&sandbox);

    // And at last all is well, with a secret that must stay out of every layer.
    recipes(&sandbox, "[six]", COMPILE);
    let run = the_build_keeps_no_secret(&sandbox);
    let document = json(&run);
    assert_eq!(document["ok"], true);
    assert_eq!(document["validation"]["ok"], true);
    assert!(tagged(IMAGE));
    let shown = docker(&[
        "run",
        "--rm",
        IMAGE,
        "sh",
        "-c",
        "python -c 'import six, markupsafe._speedups; print(six.__version__)'; cat /usr/share/stackforge/validation.json; \
         command -v tree; command -v gcc g++ cc || echo no compiler; ls -a /dev /opt",
    ]);
    assert!(
        shown.contains("1.17.0")
            && shown.contains("no compiler")
            && shown.contains("/usr/bin/tree"),
        "{shown}"
    );
    for left in ["\nbuild\n", "\ntools\n", "stackforge\n", "\nwheels\n"] {
        assert!(!shown.contains(left), "{shown}");
    }

    what_an_engine_made_of_other_files_is_refused(&sandbox);

    // Once more: nothing to do, and the engine agrees.
    let run = sandbox.run(&["build", "s.yaml", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(json(&run)["cached"], true);
    let plan = json(&sandbox.run(&["plan", "s.yaml", "--json"]));
    for step in plan["variants"][0]["steps"].as_array().unwrap() {
        assert_eq!(step["cached"], true, "{step}");
    }

    // A change is named, as a stale lock and then as the reason of a miss.
    sandbox.write("s.yaml", &STACK.replace("packages: [tree]", "packages: []"));
    let run = sandbox.run(&["build", "s.yaml", "--locked"]);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("SF0202") && run.stderr.contains("packages"),
        "{}",
        run.stderr
    );
    assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
    let why = sandbox.run(&["plan", "s.yaml", "--why"]);
    assert!(
        why.stdout.contains("runtime: package:tree"),
        "{}",
        why.stdout
    );
    assert!(
        !why.stdout.contains("compile:markupsafe:"),
        "{}",
        why.stdout
    );

    a_rendered_context_builds_with_docker_alone(&sandbox);
}

fn a_failing_compile_shows_its_log_and_the_stacks_line(sandbox: &Sandbox) {
    let commands = "[\"echo about to fail\", \"python3 -c 'import torch' || exit 7\"]";
    recipes(sandbox, "[six]", commands);
    assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
    let run = sandbox.run(&["build", "s.yaml"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    for part in [
        "SF0401",
        "| about to fail",
        "exit code 7",
        "SF0719",
        "`torch` is not in the Python that ran this",
        "whole log: ",
        "s.yaml:9:3",
        "asked for here",
    ] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    let log = run
        .stderr
        .split("whole log: ")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    let root = sandbox.path("").display().to_string();
    let log = log.replace("[DIR]", root.trim_end_matches('/'));
    assert!(
        std::fs::read_to_string(&log)
            .unwrap()
            .contains("about to fail")
    );
    assert!(!tagged(IMAGE));
}

fn a_failing_import_keeps_the_tag_away(sandbox: &Sandbox) {
    recipes(sandbox, "[six, six.absent]", COMPILE);
    assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
    let run = sandbox.run(&["build", "s.yaml", "--json"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let document = json(&run);
    assert_eq!(document["diagnostics"][0]["code"], "SF0501");
    assert_eq!(document["validation"]["ok"], false);
    assert_eq!(document["matches"][0]["code"], "SF0736");
    assert!(run.stderr.contains("six.absent"), "{}", run.stderr);
    assert!(!tagged(IMAGE));
}

fn a_killed_compile_is_retried_with_half_the_jobs(sandbox: &Sandbox) {
    // Else an earlier run of this test has left the step in the engine's cache.
    let nonce = std::process::id();
    let killed = format!(
        "[\"if [ $MAX_JOBS -gt 1 ]; then kill -9 $$; fi # {nonce}\", {}",
        &COMPILE[1..]
    );
    recipes(sandbox, "[six, six.absent]", &killed);
    assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
    let cores = std::thread::available_parallelism().unwrap().get();
    let run = sandbox.run(&["build", "s.yaml", "--jobs", "2"]);
    // The second attempt compiles with one job; the validation then fails as planted.
    assert_eq!(run.code, 1, "{}", run.stderr);
    if cores > 1 {
        assert!(
            run.stderr.contains("once more with 1 jobs"),
            "{}",
            run.stderr
        );
    }
    assert!(run.stderr.contains("SF0501"), "{}", run.stderr);
}

fn a_wrong_hash_is_refused(sandbox: &Sandbox, lock: &str) {
    recipes(sandbox, "[six]", COMPILE);
    assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
    let good = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    let six = lock.split("six-1.17.0").nth(1).unwrap();
    let sha = six
        .split("sha256 = \"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    sandbox.write("s.lock", &good.replace(sha, &"0".repeat(64)));
    let run = sandbox.run(&["build", "s.yaml"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("SF0403"), "{}", run.stderr);
    assert!(!tagged(IMAGE));
    sandbox.write("s.lock", &good);
}

/// A relay to the engine's socket that the test cuts.
fn the_engine_may_go_away(sandbox: &Sandbox) {
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex};
    recipes(sandbox, "[six]", "[\"echo compiling; sleep 60\"]");
    assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let cut = Arc::clone(&open);
    let accepting = std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(mut open) = open.lock() else { return };
            open.push(client.try_clone().unwrap());
            drop(open);
            let engine = UnixStream::connect(crate::docker::socket()).unwrap();
            let (mut a, mut b) = (client.try_clone().unwrap(), engine.try_clone().unwrap());
            let (mut c, mut d) = (engine, client);
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut a, &mut b);
                let _ = b.shutdown(Shutdown::Write);
            });
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut c, &mut d);
                let _ = d.shutdown(Shutdown::Both);
            });
        }
    });
    let mut child = sandbox
        .command()
        .args(["build", "s.yaml", "-v"])
        .env("DOCKER_HOST", &address)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("| compiling") {
        assert!(lines.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    for stream in cut.lock().unwrap().iter() {
        let _ = stream.shutdown(Shutdown::Both);
    }
    lines.read_to_string(&mut seen).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3), "{seen}");
    assert!(seen.contains("SF0302"), "{seen}");
    drop(accepting);
}

fn ctrl_c_stops_the_engines_work(sandbox: &Sandbox) {
    let mut child = sandbox
        .command()
        .args(["build", "s.yaml", "-v"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("| compiling") {
        assert!(lines.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    lines.read_to_string(&mut seen).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{seen}");
    assert!(seen.contains("SF0404"), "{seen}");
    assert!(!tagged(IMAGE));
}

fn the_build_keeps_no_secret(sandbox: &Sandbox) -> Run {
    let secret = "planted-secret-5dca1e";
    let bundle = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
    ]
    .into_iter()
    .find_map(|p| std::fs::read_to_string(p).ok())
    .unwrap();
    sandbox.write("ca.crt", &format!("{bundle}\n# {secret}\n"));
    assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
    let ca = sandbox.path("ca.crt").display().to_string();
    let run = sandbox.run_with(
        &["build", "s.yaml", "--json", "--no-cache"],
        &[("SSL_CERT_FILE", &ca)],
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    let mut save = Command::new("docker")
        .args(["save", IMAGE])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut bytes = Vec::new();
    save.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    assert!(save.wait().unwrap().success());
    assert!(bytes.len() > 10 << 20, "the image is {} bytes", bytes.len());
    let found = |needle: &[u8]| memchr::memmem::find(&bytes, needle).is_some();
    assert!(found(b"io.stackforge.audit"), "the search itself works");
    assert!(
        !found(secret.as_bytes()),
        "the secret is in a layer or in the history"
    );
    assert!(!run.stderr.contains(secret) && !run.stdout.contains(secret));
    run
}

fn a_rendered_context_builds_with_docker_alone(sandbox: &Sandbox) {
    let run = sandbox.run(&["render", "s.yaml", "-o", "context"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let foreign = sandbox.run(&["render", "s.yaml", "-o", "."]);
    assert_eq!(foreign.code, 2, "files that no render wrote are kept");
    // A newer client refuses BuildKit without its buildx plugin; the distribution's does not.
    let client = ["/usr/bin/docker", "docker"]
        .into_iter()
        .find(|c| Command::new(c).arg("--version").output().is_ok())
        .unwrap();
    let build = |tag: &str| {
        let out = Command::new(client)
            .env("DOCKER_BUILDKIT", "1")
            .args(["build", "--progress", "plain", "-t"])
            .arg(format!("stackforge-test-small:{tag}"))
            .args(["--secret", "id=ca,src=/etc/ssl/certs/ca-certificates.crt"])
            .arg(sandbox.path("context"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.success(), text)
    };
    let (built, text) = build("rendered");
    assert!(built, "{text}");
    let shown = docker(&[
        "run",
        "--rm",
        "stackforge-test-small:rendered",
        "python",
        "-c",
        "import six; print(six.__version__)",
    ]);
    assert_eq!(shown.trim(), "1.17.0");

    // Whoever builds by hand is told as well: an engine that takes the layer of an earlier validation, as
    // this stage does, and one that installs what another lock names.
    let dockerfile = std::fs::read_to_string(sandbox.path("context/Dockerfile")).unwrap();
    let spec = std::fs::read_to_string(sandbox.path("context/validate/spec.json")).unwrap();
    let installed = std::fs::read_to_string(sandbox.path("context/locks/installed.txt")).unwrap();
    let stale = "FROM stackforge-test-small:rendered AS validate";
    let (before, stage) = dockerfile
        .split_once("FROM bytecode AS validate\n")
        .unwrap();
    let (_, after) = stage.split_once("\n\n").unwrap();
    sandbox.write("context/Dockerfile", &format!("{before}{stale}\n\n{after}"));
    let (built, text) = build("stale");
    assert!(built, "it is of this very build: {text}");
    sandbox.write(
        "context/validate/spec.json",
        &spec.replace("\"cuda\": null", "\"cuda\": \"13.0\""),
    );
    let (built, text) = build("stale");
    assert!(!built, "{text}");
    assert!(
        text.contains("stackforge-difference the report of the validation is of another spec.json"),
        "{text}"
    );
    sandbox.write("context/validate/spec.json", &spec);
    sandbox.write(
        "context/locks/installed.txt",
        &installed.replace("1.17.0", "1.16.0"),
    );
    let (built, text) = build("stale");
    assert!(!built, "{text}");
    assert!(
        text.contains("stackforge-difference six 1.17.0 is installed, 1.16.0 is locked"),
        "{text}"
    );
}

/// A step of the user's own installs what no lock names: the image has no tag, and the difference is told.
fn what_an_engine_made_of_other_files_is_refused(sandbox: &Sandbox) {
    let script = std::fs::read_to_string(support::project("templates/steps/wheels.sh")).unwrap();
    let more = "d=$(echo /opt/venv/lib/python3.*/site-packages)/extra-1.0.dist-info; mkdir $d; : > $d/RECORD\n";
    let own = ".stackforge/templates/steps/wheels.sh";
    sandbox.write(own, &format!("{script}{more}"));
    let run = sandbox.run(&[
        "build",
        "s.yaml",
        "--engine",
        "docker",
        "-t",
        "stackforge-test-small:extra",
    ]);
    std::fs::remove_file(sandbox.path(own)).unwrap();
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(
        run.stderr.contains("SF0430")
            && run.stderr.contains("extra 1.0 is installed and not locked"),
        "{}",
        run.stderr
    );
    assert!(!tagged("stackforge-test-small:extra"));
}
