//! What `plan` lists is what a build executes: the same steps in the same order, and cached where it says so,
//! with each engine and after each kind of change.

use super::{STACK, ok};
use serde_json::Value;
use support::recipe::MARKUPSAFE;
use support::{CleanUp, Sandbox};

const NAME: &str = "stackforge-test-steps";

/// The steps' names, and whether they are cached.
fn steps(document: &Value) -> Vec<(String, bool)> {
    let steps = document["steps"].as_array().unwrap().iter();
    let step = |step: &Value| {
        let id = step["id"].as_str().unwrap().to_owned();
        (id, step["cached"].as_bool().unwrap())
    };
    steps.map(step).collect()
}

struct Bench {
    sandbox: Sandbox,
    engine: &'static str,
    out: &'static [&'static str],
}

impl Bench {
    /// Plans, builds, and compares; returns what was done, by the names of the steps.
    fn build(&self, when: &str) -> Vec<String> {
        let plan = ["plan", "s.yaml", "--json", "--engine", self.engine];
        let plan = ok(&self.sandbox.run(&plan));
        let plan = &plan["variants"][0];
        let build = ["build", "s.yaml", "--json", "--engine", self.engine];
        let built = ok(&self.sandbox.run(&[&build[..], self.out].concat()));
        let (listed, executed) = (steps(plan), steps(&built));
        // A Docker engine may have a layer that this store knows nothing of: of another store's build. Then it is
        // found where `plan` lists it as to do. What is listed as cached is found by each engine.
        let agrees = |((listed, cached), (executed, found)): (&(String, bool), &(String, bool))| {
            listed == executed && (cached == found || *found && self.engine == "docker")
        };
        assert!(
            listed.len() == executed.len() && listed.iter().zip(&executed).all(agrees),
            "{} engine, {when}: {listed:?} {executed:?}",
            self.engine
        );
        assert_eq!(plan["key"], built["image"]["key"]);
        let to_do = listed.into_iter().filter(|(_, cached)| !cached);
        to_do.map(|(id, _)| id).collect()
    }

    fn change(&self, from: &str, to: &str) {
        let before = std::fs::read_to_string(self.sandbox.path("s.yaml")).unwrap();
        let after = before.replace(from, to);
        assert_ne!(before, after, "{from} is in the stack");
        self.sandbox.write("s.yaml", &after);
        let run = self.sandbox.run(&["lock", "s.yaml"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
}

fn listed_is_executed(engine: &'static str, out: &'static [&'static str]) {
    let sandbox = Sandbox::new();
    if engine == "native" {
        sandbox.warm("store");
    }
    let stack = STACK.replace("stackforge-test-native", &format!("{NAME}-{engine}"));
    sandbox.write("s.yaml", &stack);
    sandbox.write(".stackforge/libraries/markupsafe.yaml", MARKUPSAFE);
    assert_eq!(sandbox.run(&["lock", "s.yaml"]).code, 0);
    let bench = Bench {
        sandbox,
        engine,
        out,
    };
    let is_compiled = |done: &[String]| done.iter().any(|id| id == "compile:markupsafe");

    let done = bench.build("the first build");
    assert!(is_compiled(&done), "{done:?}");
    assert_eq!(bench.build("nothing changed"), [""; 0]);

    bench.change("six: \"1.17.0\"", "six: \"1.16.0\"");
    // A library is compiled where the stack's other wheels are installed.
    let done = bench.build("another version of a wheel");
    assert!(is_compiled(&done), "{done:?}");

    bench.change("packages: [tree]", "packages: [tree, jq]");
    let done = bench.build("one more OS package");
    assert!(!done.is_empty() && !is_compiled(&done), "{done:?}");

    bench.change("jit: false", "jit: false\nabout: Two words");
    assert_eq!(bench.build("a label of the image"), ["image"]);

    bench.change("from: source }", "from: source, env: { MARKED: \"1\" } }");
    let done = bench.build("a variable of a compile");
    assert!(is_compiled(&done), "{done:?}");

    bench.change("six: \"1.16.0\"", "six: \"1.17.0\"");
    bench.build("the wheel of before");
    assert_eq!(bench.build("nothing changed again"), [""; 0]);
}

#[test]
fn the_docker_engine_executes_what_plan_lists() {
    if !support::has_turn("the steps that the Docker engine executes", 0, 2) {
        return;
    }
    let _clean = CleanUp::of(&[&format!("{NAME}-docker")]);
    listed_is_executed("docker", &[]);
}

#[test]
fn the_native_engine_executes_what_plan_lists() {
    if !support::has_turn("the steps that the native engine executes", 1, 2) {
        return;
    }
    listed_is_executed("native", &["-o", "oci:layout"]);
}
