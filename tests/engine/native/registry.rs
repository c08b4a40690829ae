//! A base of a registry: what it lacks is locked file by file, and both engines install the same.

use super::server::{Kind, Server};
use super::{build_tiny, digest, ok, out, tiny};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use support::exported::{exported, unexplained};
use support::recipe::MARKUPSAFE;
use support::{CleanUp, Sandbox};

/// Each test's own: one that ends removes all tags of its name.
const OVER: &str = "stackforge-test-over";
const COMPILED: &str = "stackforge-test-devel";
/// `packages: [jq]` and what it depends on.
const PACKAGES: [&str; 3] = ["jq", "libjq1", "libonig5"];

/// A Debian with Python in two layers, the upper of which removes a file of the lower, pushed.
fn base(server: &Server) -> String {
    let dockerfile = "RUN rm /etc/issue && echo more > /etc/more\n";
    let [base] = images(server, OVER, [("base", dockerfile)]);
    base
}

/// Images over a Debian with Python, pushed; their references with digests.
fn images<const N: usize>(server: &Server, name: &str, made: [(&str, &str); N]) -> [String; N] {
    let sandbox = tiny();
    let layout = sandbox.path("layout");
    digest(
        &build_tiny(&sandbox, &sandbox.path("store"), &layout)
            .output()
            .unwrap(),
    );
    let image = format!("oci:{}:latest", layout.display());
    let manifest = out("skopeo", &["inspect", "--raw", &image]);
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let lowest = manifest["layers"][0]["digest"].as_str().unwrap();
    let blob = layout.join("blobs").join(lowest.replace(':', "/"));
    let plain = format!("{name}:plain");
    out("docker", &["import", blob.to_str().unwrap(), &plain]);
    made.map(|(name, steps)| {
        let pushed = format!("{}/{name}:1", server.host);
        sandbox.write("context/Dockerfile", &format!("FROM {plain}\n{steps}"));
        let context = sandbox.path("context");
        out(
            "docker",
            &["build", "-q", "-t", &pushed, context.to_str().unwrap()],
        );
        login(&sandbox, server);
        let config = sandbox.path("docker").display().to_string();
        let output = out("docker", &["--config", &config, "push", &pushed]);
        let output = String::from_utf8(output).unwrap();
        super::support::remove(&pushed);
        let (_, rest) = output.split_once("digest: ").unwrap();
        let digest = rest.split(' ').next().unwrap();
        format!("{}/{name}@{digest}", server.host)
    })
}

/// Docker's configuration in `docker`, with what the registry asks for.
fn login(sandbox: &Sandbox, server: &Server) {
    let config = json!({ "auths": { &server.host: { "auth": STANDARD.encode("user:s3cret") } } });
    sandbox.write("docker/config.json", &config.to_string());
}

#[test]
fn a_registrys_base_gets_what_it_lacks() {
    if !support::has_turn("what a base of a registry lacks", 0, 2) {
        return;
    }
    let _clean = CleanUp::of(&[OVER]);
    // It opens to a login: the engine's builder gets it too, for the base and for its cache.
    let server = Server::start(Kind::Htpasswd);
    let base = base(&server);
    let sandbox = Sandbox::new();
    login(&sandbox, &server);
    let cache = format!("cache: {{ registry: {}/team/cache }}\n", server.host);
    sandbox.write("config.yaml", &cache);
    sandbox.write(
        "s.yaml",
        &format!(
            "stack: over-registry\nbase: {base}\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\npython: \"3.11\"\nlibraries: {{ six: \"1.17.0\", sounddevice: \"0.5.3\" }}\npackages: [jq]\njit: false\n"
        ),
    );
    let (config, docker) = (sandbox.path("config.yaml"), sandbox.path("docker"));
    let known = [
        ("STACKFORGE_CONFIG", config.to_str().unwrap()),
        ("DOCKER_CONFIG", docker.to_str().unwrap()),
    ];
    let as_one = |args: &[&str], env: &[(&str, &str)]| {
        sandbox.run_with(&[&[args[0], "s.yaml"], &args[1..]].concat(), env)
    };
    let run = |args: &[&str]| as_one(args, &known);
    assert_eq!(run(&["lock"]).code, 0);
    let refused = run(&["build", "--engine", "native", "-o", "oci:layout"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(refused.stderr.contains("SF0308") && refused.stderr.contains("lock STACK --pull"));

    let locked = run(&["lock", "--pull"]);
    assert_eq!(locked.code, 0, "{}", locked.stderr);
    let lock = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    let lock: toml::Table = toml::from_str(&lock).unwrap();
    let packages = lock["platform"][0]["package"].as_array().unwrap();
    let names: Vec<&str> = (packages.iter().map(|p| p["name"].as_str().unwrap())).collect();
    assert!(
        PACKAGES.iter().all(|name| names.contains(name)),
        "{names:?}"
    );
    // A library of the system that a wheel opens, with its reason.
    let audio = packages
        .iter()
        .find(|p| p["name"].as_str() == Some("libportaudio2"));
    let text = audio.unwrap_or_else(|| panic!("{names:?}")).to_string();
    assert!(text.contains("sounddevice"), "{text}");
    assert!(!names.contains(&"libc6"), "the base has it: {names:?}");
    assert!(packages.iter().all(|p| p.get("sha256").is_some()));
    // What is locked so stays so.
    let again = run(&["lock", "--json"]);
    assert_eq!(ok(&again)["changed"], false);
    let stack = std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
    sandbox.write("s.yaml", &stack.replace("[jq]", "[jq, tree]"));
    let more = run(&["lock"]);
    assert_eq!(more.code, 0, "{}", more.stderr);
    let lock = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    assert!(lock.contains("name = \"tree\"") && !lock.contains("name = \"python3\""));

    // Nobody gets it who may not.
    let nobody = [("DOCKER_CONFIG", "/nonexistent"), known[0]];
    for engine in ["docker", "native"] {
        let refused = as_one(
            &["build", "--engine", engine, "--push", "x.invalid/y"],
            &nobody,
        );
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert!(
            refused.stderr.contains("docker login"),
            "{}",
            refused.stderr
        );
    }
    let image = |engine: &str, more: &[&str]| {
        let tag = format!("{OVER}:over-{engine}");
        let args = ["build", "--json", "--engine", engine, "-t", &tag];
        let built = ok(&run(&[&args[..], more].concat()));
        assert_eq!(built["validation"]["ok"], true);
        exported(&tag)
    };
    let (by_docker, by_native) = (image("docker", &[]), image("native", &["-o", "docker"]));
    let differ = unexplained(&by_docker, &by_native);
    assert!(differ.is_empty(), "{differ:#?}");
    assert!(by_native.contains_key("usr/bin/jq") && by_native.contains_key("etc/more"));
    assert!(!by_native.contains_key("etc/issue"));
    // The layers that the engine made are there for others.
    let list = format!("docker://{}/team/cache", server.host);
    let login = "--creds=user:s3cret";
    let tags = out("skopeo", &["list-tags", "--tls-verify=false", login, &list]);
    assert!(String::from_utf8_lossy(&tags).contains("layers-over-registry"));
    let tag = format!("{OVER}:over-native");
    let output = out("docker", &["run", "--rm", &tag, "dpkg", "--status", "jq"]);
    assert!(String::from_utf8_lossy(&output).contains("Status: install ok installed"));
}

/// An image with a compiler for GPUs, such as NVIDIA's, is where both engines compile.
const DEVEL: &str = "\
ENV FROM_DEVEL=yes
RUN mkdir -p /usr/local/cuda-13.0/bin && ln -s cuda-13.0 /usr/local/cuda \\
 && printf '#!/bin/sh\\necho release 13.0\\n' > /usr/local/cuda/bin/nvcc && chmod 755 /usr/local/cuda/bin/nvcc
";

#[test]
fn what_needs_nvcc_is_compiled_in_the_devel_image() {
    if !support::has_turn("a compile in the devel image of a base of a registry", 1, 2) {
        return;
    }
    let _clean = CleanUp::of(&[COMPILED]);
    let server = Server::start(Kind::Open);
    let [runtime, devel] = images(
        &server,
        COMPILED,
        [("runtime", "ENV OF_RUNTIME=yes\n"), ("devel", DEVEL)],
    );
    let at = |reference: &str| {
        let (name, digest) = reference.split_once('@').unwrap();
        (format!("{name}:1"), digest.to_owned())
    };
    let ((runtime, of_runtime), (devel, of_devel)) = (at(&runtime), at(&devel));
    let sandbox = Sandbox::new();
    sandbox.write(
        ".stackforge/images/of-registry.yaml",
        &format!(
            "schema: 1\nimage: of-registry\nabout: test\nos: {{ id: debian, version: \"12\", codename: bookworm }}\nlibc: \"2.36\"\ngcc: 12\npython: [\"3.11\"]\nplatforms: [linux/amd64]\ncuda: \"13.0.3\"\ndriver: {{ min: \"580.65.06\" }}\nreference:\n  runtime: {runtime}\n  devel: {devel}\n  digests: {{ runtime: \"{of_runtime}\", devel: \"{of_devel}\" }}\npackages:\n  python: {{ \"3.11\": [python3, python3-venv] }}\n  python_dev: {{ \"3.11\": [python3-dev] }}\n  c_compiler: [gcc, libc6-dev]\n  cxx_compiler: [g++]\n  git: [git]\nsources: [test]\n"
        ),
    );
    // It says where it is compiled, and asks for what only that image has.
    let recipe = MARKUPSAFE.replace(
        "  source: sdist\n",
        "  source: sdist\n  toolkit: [nvcc]\n  commands:\n    - test \"$FROM_DEVEL\" = yes\n    - test \"$($STACKFORGE_NVCC)\" = 'release 13.0'\n    - /dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python wheel --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels .\n",
    );
    sandbox.write(".stackforge/libraries/markupsafe.yaml", &recipe);
    sandbox.write(
        "s.yaml",
        "stack: over-devel\nbase: of-registry\ntarget: { platform: linux/amd64, gpu: [h100] }\npython: \"3.11\"\nlibraries: { markupsafe: { version: \"3.0.3\", from: source } }\njit: false\n",
    );
    let run = |args: &[&str]| sandbox.run(&[&[args[0], "s.yaml"], &args[1..]].concat());
    let locked = run(&["lock", "--pull"]);
    assert_eq!(locked.code, 0, "{}", locked.stderr);
    let lock = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    let lock: toml::Table = toml::from_str(&lock).unwrap();
    let section = &lock["platform"][0];
    assert!(section["base"]["devel"].is_table(), "{lock:#?}");
    let compilers = section["builder-package"].as_array().unwrap();
    assert!(compilers.iter().any(|p| p["name"].as_str() == Some("g++")));
    assert!(compilers.iter().all(|p| p.get("sha256").is_some()));

    let image = |engine: &str, more: &[&str]| {
        let tag = format!("{COMPILED}:devel-{engine}");
        let store = sandbox.path(engine).display().to_string();
        let args = [
            "build", "--json", "--engine", engine, "-t", &tag, "--store", &store,
        ];
        let built = ok(&run(&[&args[..], more].concat()));
        assert_eq!(built["validation"]["ok"], true, "{built:#}");
        exported(&tag)
    };
    let (by_docker, by_native) = (image("docker", &[]), image("native", &["-o", "docker"]));
    let differ = unexplained(&by_docker, &by_native);
    assert!(differ.is_empty(), "{differ:#?}");
    // Nothing of the compilers is in the image, nor their variables; the base's stay.
    assert!(!by_native.contains_key("usr/local/cuda/bin/nvcc"));
    let tag = format!("{COMPILED}:devel-native");
    let output = out("docker", &["run", "--rm", &tag, "env"]);
    let output = String::from_utf8_lossy(&output).into_owned();
    assert!(
        output.contains("OF_RUNTIME=yes") && !output.contains("FROM_DEVEL"),
        "{output}"
    );
}
