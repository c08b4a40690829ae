//! Libraries and their dependencies that the index has as source alone, and that no recipe describes.

use super::{ok, out};
use support::exported::{exported, unexplained};
use support::{CleanUp, Sandbox};

const NAME: &str = "stackforge-test-sdists";

/// Pure Python, C++ that is compiled, one that a dependency of a dependency wants, one that has a wheel, a zip
/// archive.
const STACK: &str = "\
stack: stackforge-test-sdists
base: debian-bookworm
target: { platform: linux/amd64, gpu: [h100] }
python: \"3.11\"
libraries:
  wikipedia: auto
  annoy: \"1.17.3\"
  hydra-core: \"1.3.2\"
  six: { version: \"1.17.0\", from: source }
  wget: \"3.2\"
jit: false
";

#[test]
fn what_the_index_has_as_source_is_locked_and_built_by_both_engines() {
    let _clean = CleanUp::of(&[NAME]);
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", STACK);
    ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    let text = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    let lock: toml::Table = text.parse().unwrap();
    let builds = lock["platform"][0]["build"].as_array().unwrap();
    let named = |b: &toml::Value| {
        let via = b.get("via").and_then(|v| v.as_array());
        let via = via.map_or(0, Vec::len);
        format!(
            "{} {} {via}",
            b["name"].as_str().unwrap(),
            b["version"].as_str().unwrap()
        )
    };
    let builds: Vec<String> = builds.iter().map(named).collect();
    assert_eq!(
        builds,
        [
            "annoy 1.17.3 0",
            "antlr4-python3-runtime 4.9.3 2",
            "six 1.17.0 0",
            "wget 3.2 0",
            "wikipedia 1.4.0 0"
        ]
    );
    let again = ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    assert_eq!(again["changed"], false);
    let offline = sandbox.run(&["lock", "s.yaml", "--offline"]);
    assert_eq!(offline.code, 0, "{}", offline.stderr);
    assert_eq!(
        std::fs::read_to_string(sandbox.path("s.lock")).unwrap(),
        text
    );

    let docker = format!("{NAME}:docker");
    ok(&sandbox.run(&[
        "build", "s.yaml", "--json", "--engine", "docker", "-t", &docker,
    ]));
    let native = format!("{NAME}:native");
    sandbox.warm("other");
    let store = sandbox.path("other");
    let built = ok(&sandbox.run(&[
        "build",
        "s.yaml",
        "--json",
        "--engine",
        "native",
        "-t",
        &native,
        "-o",
        "docker",
        "--store",
        store.to_str().unwrap(),
    ]));
    assert_eq!(built["validation"]["ok"], true);
    let differ = unexplained(&exported(&docker), &exported(&native));
    assert!(differ.is_empty(), "{differ:#?}");
    let script =
        "from annoy import AnnoyIndex; import wikipedia, hydra, six, wget; print(six.__version__)";
    let ran = out("docker", &["run", "--rm", &native, "python", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&ran).trim(), "1.17.0");
}

fn named(libraries: &str, more: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.warm("store");
    write(&sandbox, libraries, more);
    sandbox
}

fn write(sandbox: &Sandbox, libraries: &str, more: &str) {
    sandbox.write(
        "s.yaml",
        &format!(
            "stack: {NAME}\nbase: debian-bookworm\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\n\
             python: \"3.11\"\nlibraries:\n{libraries}jit: false\nbytecode: false\n{more}"
        ),
    );
}

/// The catalog knows what their builds take and what they import. A library that is built with a development
/// package loads its runtime library.
#[test]
fn builds_that_the_catalog_knows_need_nothing_said() {
    if !support::has_turn("source distributions that the catalog knows", 0, 2) {
        return;
    }
    let libraries = [
        "psycopg2: \"2.9.11\"",
        "python-ldap: \"3.4.5\"",
        "pesq: \"0.0.4\"",
    ];
    let libraries = libraries.map(|library| format!("  {library}\n")).concat();
    let sandbox = named(&libraries, "");
    let locked = ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    let added = &locked["os_libraries"];
    assert_eq!(added["libpq5"], "psycopg2 is built with libpq-dev");
    assert_eq!(
        added["libldap-2.5-0"],
        "python-ldap is built with libldap-dev"
    );
    let text = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    let lock = stackforge_stack::lock::Lock::from_toml(&text).unwrap();
    let numpy = lock.platforms[0].wheels.iter().find(|w| w.name == "numpy");
    assert_eq!(numpy.unwrap().via, ["pesq"]);
    let again = ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    assert_eq!(again["changed"], false);
    let built = ok(&sandbox.run(&["build", "s.yaml", "--json", "--engine", "native"]));
    assert_eq!(built["validation"]["ok"], true, "{built:#}");
}

/// Its newest release requires something that has no wheel.
#[test]
fn no_older_release_is_taken_for_the_wheel_of_a_dependency() {
    let sandbox = named("  hydra-core: auto\n", "");
    ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    let text = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    let lock = stackforge_stack::lock::Lock::from_toml(&text).unwrap();
    let section = &lock.platforms[0];
    let hydra = section.wheels.iter().find(|w| w.name == "hydra-core");
    let version = &hydra.unwrap().version;
    let parts: Vec<u32> = version.split('.').map(|n| n.parse().unwrap()).collect();
    assert!(parts >= vec![1, 3], "{version}");
    assert_eq!(section.builds[0].name, "antlr4-python3-runtime");
}

/// What a build lacks is named by its failure, with the line to add, and the line works.
#[test]
fn a_header_that_a_build_lacks_is_named() {
    if !support::has_turn("source distributions that lack a header", 1, 2) {
        return;
    }
    let sandbox = named("  python-snappy: \"0.6.1\"\n", "");
    ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    let failed = sandbox.run(&["build", "s.yaml", "--json", "--engine", "native"]);
    assert_ne!(failed.code, 0, "{}", failed.stdout);
    let document: serde_json::Value = serde_json::from_str(&failed.stdout).unwrap();
    let found = &document["matches"][0];
    assert_eq!(found["code"], "SF0721", "{document:#}");
    let fix = found["fix"].as_str().unwrap();
    assert!(fix.contains("`build_packages: [libsnappy-dev]`"), "{fix}");

    let library = "  python-snappy: { version: \"0.6.1\", build_packages: [libsnappy-dev] }\n";
    write(&sandbox, library, "");
    ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    let built = ok(&sandbox.run(&["build", "s.yaml", "--json", "--engine", "native"]));
    assert_eq!(built["validation"]["ok"], true, "{built:#}");
}
