//! Which variant each device gets from one index, as its files tell what it is.

use super::{Kind, Sandbox, Server, answer, layout, machines, made, refusal};
use serde_json::{Value, json};

/// Pushes two variants and pulls as the machines whose files lie in `machine`.
#[test]
fn a_device_gets_its_variant_and_reads_why() {
    let server = Server::start(Kind::Open);
    let publisher = Sandbox::new();
    let place = format!("{}/app:1", server.host);
    let variants: [(u64, &str, &[&str]); 3] = [
        (41, "hopper", &["sm=90", "cuda=13.0"]),
        (42, "turing", &["sm=75", "cuda=12.8"]),
        (43, "next", &["sm=90", "cuda=13.0", "driver=999.1"]),
    ];
    for (seed, variant, facts) in variants {
        let image = layout(server.dir.path(), seed);
        let source = format!("oci:{}:v1", image.display());
        let mut args = vec!["push", &source, &place, "--index", "--variant", variant];
        args.extend(facts.iter().flat_map(|fact| ["--fact", fact]));
        answer(&publisher, &args);
    }

    let h100 = Sandbox::new();
    machines::h100(&h100);
    let run = h100.run(&["pull", &place, "--root", "machine", "--dry-run"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let shown: Vec<String> = run
        .stdout
        .lines()
        .map(|l| l.replace(&server.host, "HOST"))
        .collect();
    insta::assert_snapshot!("a_device_gets_its_variant", shown[..3].join("\n"));
    let pulled = answer(&h100, &["pull", &place, "--root", "machine"]);
    assert_eq!(pulled["variant"]["variant"], "hopper");

    let thor = Sandbox::new();
    machines::thor_r38(&thor);
    let run = thor.run(&["--json", "pull", &place, "--root", "machine"]);
    let refused = refusal(&run, 1, "SF1003");
    assert_eq!(refused["refused"].as_array().unwrap().len(), 3);

    let by_gpu = answer(
        &h100,
        &[
            "pull",
            &place,
            "--platform",
            "linux/amd64",
            "--gpu",
            "t4",
            "--dry-run",
        ],
    );
    assert_eq!(by_gpu["variant"]["variant"], "turing");
    let by_name = answer(&thor, &["pull", &place, "--variant", "next"]);
    assert_eq!(by_name["variant"]["variant"], "next");
    let run = thor.run(&["--json", "pull", &place, "--variant", "nobody"]);
    refusal(&run, 2, "SF1004");
}

/// There is nothing to choose, so it comes as it was asked for; whether it runs is said.
#[test]
fn an_image_that_is_the_only_one_is_pulled_with_its_doubts() {
    let server = Server::start(Kind::Open);
    let push = |tag: &str, labels: Value| {
        let place = format!("{}/app:{tag}", server.host);
        made::push(server.dir.path(), &place, &labels, &[]);
        place
    };
    let h100 = Sandbox::new();
    machines::h100(&h100);
    let doubt = |place: &str| {
        let pulled = answer(&h100, &["pull", place, "--root", "machine"]);
        pulled["doubt"].clone()
    };
    let turing = push("turing", json!({ "io.stackforge.sm": "sm_75" }));
    assert_eq!(doubt(&turing), "it has sm_75, nothing for sm_90");
    let run = h100.run(&["pull", &turing, "--root", "machine", "--dry-run"]);
    let expected = "by its labels it does not run there: it has sm_75, nothing for sm_90\n";
    assert!(
        run.code == 0 && run.stdout.starts_with(expected),
        "{}",
        run.stdout
    );
    let by_ptx = json!({ "io.stackforge.sm": "sm_75", "io.stackforge.ptx": "sm_80" });
    assert_eq!(doubt(&push("ptx", by_ptx)), Value::Null);
    let new = json!({ "io.stackforge.sm": "sm_90", "io.stackforge.driver": "999.1" });
    let too_old = doubt(&push("new", new));
    assert!(
        too_old.as_str().unwrap().contains("it needs driver 999.1"),
        "{too_old}"
    );
    assert_eq!(doubt(&push("any", json!({}))), Value::Null);
    let by_gpu = ["pull", &turing, "--root", "machine", "--gpu", "t4"];
    assert_eq!(answer(&h100, &by_gpu)["doubt"], Value::Null);
}
