//! Compiled wheels through a registry: what one machine compiled no other compiles, whichever engine
//! it builds with.

use super::server::{Kind, Server};
use super::{STACK, build_tiny, digest, ok, out, tiny};
use serde_json::Value;
use support::recipe::MARKUPSAFE;
use support::{CleanUp, Sandbox};

const NAME: &str = "stackforge-test-shared";

/// A machine: a store of its own, and the cache in its configuration.
struct Machine {
    sandbox: Sandbox,
    config: String,
}

impl Machine {
    fn new(config: &str) -> Self {
        let sandbox = Sandbox::new();
        sandbox.warm("store");
        let stack = STACK.replace("packages: [tree]\n", "");
        let stack = stack.replace("stackforge-test-native", NAME) + "bytecode: false\n";
        sandbox.write("s.yaml", &stack);
        sandbox.write(".stackforge/libraries/markupsafe.yaml", MARKUPSAFE);
        sandbox.write("config.yaml", config);
        let config = sandbox.path("config.yaml").display().to_string();
        Self { sandbox, config }
    }

    fn build(&self, lock: &str, args: &[&str]) -> (Value, String) {
        self.sandbox.write("s.lock", lock);
        let env = [("STACKFORGE_CONFIG", self.config.as_str())];
        let all = [&["build", "s.yaml", "--json"], args].concat();
        let run = self.sandbox.run_with(&all, &env);
        (ok(&run), run.stderr)
    }
}

fn compiled(built: &Value) -> bool {
    let steps = built["steps"].as_array().unwrap();
    let of = |s: &&Value| s["id"] == "compile:markupsafe" && s["cached"] == false;
    steps
        .iter()
        .filter(of)
        .any(|s| s["seconds"].as_f64().unwrap() > 0.5)
}

#[test]
fn what_one_machine_compiled_no_other_compiles() {
    if !support::has_turn("steps of another machine", 1, 2) {
        return;
    }
    let _clean = CleanUp::of(&[NAME]);
    let server = Server::start(Kind::Open);
    let config = format!("cache: {{ registry: {}/team/cache }}\n", server.host);
    let first = Machine::new(&config);
    assert_eq!(first.sandbox.run(&["lock", "s.yaml"]).code, 0);
    let lock = std::fs::read_to_string(first.sandbox.path("s.lock")).unwrap();
    let native = ["--engine", "native", "-o", "oci:layout"];
    let (built, _) = first.build(&lock, &native);
    assert!(compiled(&built), "{built:#}");
    let repository = format!("docker://{}/team/cache", server.host);
    let tags = out("skopeo", &["list-tags", "--tls-verify=false", &repository]);
    let tags: Value = serde_json::from_slice(&tags).unwrap();
    let is_wheel = |tag: &&Value| tag.as_str().unwrap().starts_with("compile-");
    let wheels = tags["Tags"].as_array().unwrap().iter().filter(is_wheel);
    let [tag] = wheels.collect::<Vec<_>>()[..] else {
        panic!("one wheel was compiled: {tags:#}");
    };

    // Another machine takes it, with either engine, and makes the same image.
    let second = Machine::new(&config);
    let (again, stderr) = second.build(&lock, &native);
    assert!(!compiled(&again), "{again:#}\n{stderr}");
    assert_eq!(again["image"]["id"], built["image"]["id"]);
    let third = Machine::new(&config);
    let image = format!("{NAME}:docker");
    let (by_docker, stderr) = third.build(&lock, &["--engine", "docker", "-t", &image]);
    assert!(!compiled(&by_docker), "{by_docker:#}\n{stderr}");
    let ran = out(
        "docker",
        &[
            "run",
            "--rm",
            &image,
            "python",
            "-c",
            "import markupsafe._speedups",
        ],
    );
    assert!(ran.is_empty());

    // Who wants a signature takes nothing that has none.
    let signing = |name: &str| {
        let run = first.sandbox.run(&["sign", "--generate-key", name]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        [".key", ".pub"].map(|end| {
            first
                .sandbox
                .path(&format!("{name}{end}"))
                .display()
                .to_string()
        })
    };
    let ([own, trusted], [_, foreign]) = (signing("team"), signing("other"));
    let keys = |keys: &str| {
        let place = format!("registry: {}/team/cache", server.host);
        Machine::new(&format!("cache: {{ {place}, {keys} }}\n"))
    };
    let careful = keys(&format!("verify: {trusted}, key: {own}"));
    let (alone, stderr) = careful.build(&lock, &native);
    assert!(
        compiled(&alone) && stderr.contains("has no signature"),
        "{stderr}"
    );
    // It has pushed its own, signed.
    let (accepted, stderr) = keys(&format!("verify: {trusted}")).build(&lock, &native);
    assert!(!compiled(&accepted), "{stderr}");
    assert_eq!(accepted["image"]["id"], built["image"]["id"]);
    let (alone, stderr) = keys(&format!("verify: {foreign}")).build(&lock, &native);
    assert!(
        compiled(&alone) && stderr.contains("with this key"),
        "{stderr}"
    );

    // Something else under the tag, or a registry that is gone, costs a compile.
    let tag = tag.as_str().unwrap();
    let other = format!("{repository}:{tag}");
    let layout = format!("oci:{}:latest", first.sandbox.path("layout").display());
    out(
        "skopeo",
        &["copy", "-q", "--dest-tls-verify=false", &layout, &other],
    );
    let fourth = Machine::new(&config);
    let (alone, stderr) = fourth.build(&lock, &native);
    assert!(
        compiled(&alone) && stderr.contains("names something else"),
        "{stderr}"
    );
    assert_eq!(alone["image"]["id"], built["image"]["id"]);
    drop(server);
    let fifth = Machine::new(&config);
    let (alone, stderr) = fifth.build(&lock, &native);
    assert!(
        compiled(&alone) && stderr.contains("cache of compiled wheels"),
        "{stderr}"
    );
}

/// What one stack needs, carried to a machine without a network.
#[test]
fn an_export_of_a_stack_has_what_its_native_build_needs() {
    let sandbox = tiny();
    let [first, second] = ["first", "second"].map(|name| sandbox.path(name));
    let image = digest(
        &build_tiny(&sandbox, &first, &sandbox.path("layout"))
            .output()
            .unwrap(),
    );
    let path = |name: &str| sandbox.path(name).display().to_string();
    out(
        "openssl",
        &[
            "ecparam",
            "-name",
            "prime256v1",
            "-genkey",
            "-noout",
            "-out",
            &path("ec.pem"),
        ],
    );
    out(
        "openssl",
        &[
            "pkcs8",
            "-topk8",
            "-nocrypt",
            "-in",
            &path("ec.pem"),
            "-out",
            &path("team.key"),
        ],
    );
    out(
        "openssl",
        &[
            "ec",
            "-in",
            &path("ec.pem"),
            "-pubout",
            "-out",
            &path("team.pub"),
        ],
    );
    let store = |store: &std::path::Path, args: &[&str]| {
        let place = store.display().to_string();
        ok(&sandbox.run(&[args, &["--store", &place, "--json"]].concat()))
    };
    let all = ["cache", "export", "all.tar"];
    let everything = store(&first, &all);
    let export = [
        "cache",
        "export",
        "tiny.tar",
        "--stack",
        "tiny.yaml",
        "--key",
        "team.key",
    ];
    let exported = store(&first, &export);
    assert_eq!(exported["images"], 1, "{exported}");
    assert!(exported["actions"].as_u64() >= Some(5), "{exported}");
    assert!(exported["bytes"].as_u64() <= everything["bytes"].as_u64());

    store(
        &second,
        &["cache", "import", "tiny.tar", "--verify", "team.pub"],
    );
    let mut again = build_tiny(&sandbox, &second, &sandbox.path("again"));
    let again = again.args(["--offline"]).output().unwrap();
    assert_eq!(digest(&again), image);
    let document: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(document["cached"], true, "{document:#}");
}
