//! `render --compose` and `--kubernetes`: what starts a service by digest, and what is refused.

use serde_json::{Value, json};
use support::deployed::{BARE, HARD, pushed, render, rendered, stack, tiny};
use support::pipelines::{self, yaml};
use support::{Sandbox, document};

const FORMS: [&str; 2] = ["--compose", "--kubernetes"];

/// A service that was pushed.
fn service(more: &str, user: Option<&str>) -> Sandbox {
    let sandbox = tiny(more);
    pushed(&sandbox, None, user, &[]);
    sandbox
}

/// A Jetson's, whose lock has arm64 wheels.
fn jetson() -> Sandbox {
    let sandbox = stack("stacks/thor-cuda13.yaml", BARE);
    let labels = [("io.stackforge.sm", "sm_110"), ("io.stackforge.l4t", "38")];
    pushed(&sandbox, None, Some("7:8"), &labels);
    sandbox
}

/// Renders both forms.
fn both(sandbox: &Sandbox, args: &[&str]) -> String {
    FORMS.map(|form| rendered(sandbox, form, args)).join("\n")
}

#[test]
fn everything_that_a_service_can_have() {
    let sandbox = service(HARD, Some("1000:1001"));
    insta::assert_snapshot!("hard", both(&sandbox, &[]));
}

#[test]
fn nothing_that_can_be_left_out() {
    insta::assert_snapshot!("bare", both(&service(BARE, None), &[]));
}

#[test]
fn on_a_jetson() {
    insta::assert_snapshot!("jetson", both(&jetson(), &[]));
}

#[test]
fn without_a_gpu() {
    let sandbox = service(BARE, None);
    let asked = both(&sandbox, &["--gpus", "0"]);
    insta::assert_snapshot!("no_gpu", asked.replace(" --gpus 0", ""));
    // An image without device code asks for none by itself.
    pushed(&sandbox, None, None, &[("io.stackforge.sm", "")]);
    assert_eq!(both(&sandbox, &[]), asked.replace(" --gpus 0", ""));
}

#[test]
fn several_gpus() {
    let sandbox = service(BARE, None);
    let text = both(&sandbox, &["--gpus", "2"]);
    assert!(
        text.contains("count: 2\n") && text.contains("nvidia.com/gpu: 2\n"),
        "{text}"
    );
    let text = both(&sandbox, &["--gpus", "all"]);
    assert!(
        text.contains("count: all\n") && text.contains("nvidia.com/gpu: 1\n"),
        "{text}"
    );
}

fn matrix(axes: &str, sms: &str) -> Sandbox {
    let axis = |line: &&str| line.starts_with("  sm:") || line.starts_with("  isa:");
    let text = pipelines::all();
    let mut text: String = (text.lines().filter(|l| !axis(l)))
        .map(|line| match line {
            "matrix:" => format!("matrix:\n{axes}"),
            line => format!("{line}\n"),
        })
        .collect();
    text += HARD;
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", &text);
    let lock = std::fs::read_to_string(support::project("stacks/vllm-matrix.lock")).unwrap();
    // Locked files are the same whatever is compiled of them.
    let line = |l: &str| {
        if l.starts_with("gpu = ") {
            format!("gpu = \"{sms}\"\n")
        } else {
            format!("{l}\n")
        }
    };
    sandbox.write("s.lock", &lock.lines().map(line).collect::<String>());
    sandbox
}

fn variants(sandbox: &Sandbox) -> Vec<String> {
    let listed = document(&sandbox.run(&["matrix", "s.yaml", "--json"]));
    let names = listed["variants"].as_array().unwrap().iter();
    names
        .map(|v| v["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The nodes of each Deployment: arch, and pairs of major and minors.
fn nodes(text: &str) -> Vec<Value> {
    let deployments = yaml(text).into_iter().filter(|d| d["kind"] == "Deployment");
    let of = |document: Value| {
        let pod = &document["spec"]["template"]["spec"];
        let affinity = &pod["affinity"]["nodeAffinity"];
        let terms =
            &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let terms = terms.as_array().into_iter().flatten();
        let values = |term: &Value| {
            let all = term["matchExpressions"].as_array().unwrap();
            json!([all[0]["values"], all[1]["values"]])
        };
        json!([
            pod["nodeSelector"]["kubernetes.io/arch"],
            terms.map(values).collect::<Vec<_>>()
        ])
    };
    deployments.map(of).collect()
}

#[test]
fn each_variant_goes_to_the_nodes_that_pull_would_choose_it_for() {
    let sandbox = matrix(
        "  sm: [\"9.0\", \"10.0\"]\n  isa: [avx512, armv9]\n",
        "sm_90 sm_100",
    );
    let chosen: Vec<String> = (variants(&sandbox).into_iter())
        .filter(|name| name.contains("cuda12_9"))
        .collect();
    assert_eq!(chosen.len(), 4, "{chosen:?}");
    let mut args = Vec::new();
    for name in &chosen {
        let sm = if name.contains("sm90") {
            "sm_90"
        } else {
            "sm_100"
        };
        let labels = [("io.stackforge.sm", sm), ("io.stackforge.ptx", sm)];
        pushed(&sandbox, Some(name), Some("1000:1001"), &labels);
        args.extend(["--variant", name]);
    }
    let text = rendered(&sandbox, "--kubernetes", &args);
    let mut served = std::collections::BTreeSet::new();
    for (name, found) in chosen.iter().zip(nodes(&text)) {
        let arch = if name.contains("armv9") {
            "arm64"
        } else {
            "amd64"
        };
        assert_eq!(found[0], arch, "{name}");
        let own = if name.contains("sm90") {
            json!([["9"], ["0"]])
        } else {
            json!(["10"])
        };
        let terms = found[1].as_array().unwrap();
        assert!(
            terms.iter().any(|t| *t == own || t[0] == own),
            "{name}: {found}"
        );
        for term in terms {
            for minor in term[1].as_array().unwrap() {
                // PTX serves newer GPUs too, and each GPU has one Deployment.
                let gpu = format!("{arch} {}.{minor}", term[0][0]);
                assert!(served.insert(gpu.clone()), "{name}: {gpu}");
                assert!(term[0][0] != "8", "{name}: older than its code");
            }
        }
    }
    assert!(served.len() > 4, "{served:?}");
    let alone = rendered(&sandbox, "--kubernetes", &args[..2]);
    let services = yaml(&text)
        .into_iter()
        .filter(|d| d["kind"] == "Service")
        .count();
    assert_eq!((services, yaml(&alone).len()), (1, 4));
    insta::assert_snapshot!("matrix", alone);
}

#[test]
fn variants_that_nodes_cannot_tell_apart_are_refused() {
    let sandbox = matrix("  sm: [\"9.0\"]\n  isa: [avx2, avx512]\n", "sm_90");
    let names: Vec<String> = (variants(&sandbox).into_iter())
        .filter(|name| name.contains("cuda12_9"))
        .collect();
    let args: Vec<&str> = names.iter().flat_map(|name| ["--variant", name]).collect();
    let run = render(&sandbox, "--kubernetes", &args);
    insta::assert_snapshot!("some_variants_not_pushed", run.stderr);
    let run = render(&sandbox, "--kubernetes", &[]);
    insta::assert_snapshot!("no_variant_pushed", run.stderr);
    let run = render(&sandbox, "--compose", &args);
    insta::assert_snapshot!("several_variants_of_one_machine", run.stderr);
    for name in &names {
        pushed(&sandbox, Some(name), None, &[]);
    }
    let run = render(&sandbox, "--kubernetes", &args);
    assert_eq!(run.code, 1);
    insta::assert_snapshot!("same_nodes", run.stderr);
}

#[test]
fn an_image_whose_gpus_nobody_knows_goes_to_no_node() {
    let sandbox = tiny(BARE);
    pushed(&sandbox, None, None, &[("io.stackforge.sm", "sm_99a")]);
    let run = render(&sandbox, "--kubernetes", &[]);
    insta::assert_snapshot!("unknown_gpu", format!("exit {}\n{}", run.code, run.stderr));
    assert_eq!(render(&sandbox, "--compose", &[]).code, 0);
    assert_eq!(render(&sandbox, "--kubernetes", &["--gpus", "0"]).code, 0);
}

fn refused(sandbox: &Sandbox, form: &str, args: &[&str]) -> String {
    let run = render(sandbox, form, args);
    assert_eq!(run.stdout, "");
    format!("exit {}\n{}", run.code, run.stderr)
}

#[test]
fn what_was_never_pushed() {
    let sandbox = tiny(BARE);
    let [compose, kubernetes] = FORMS.map(|form| refused(&sandbox, form, &[]));
    insta::assert_snapshot!("not_pushed", compose + &kubernetes);
    sandbox.write(
        "s.yaml",
        &format!(
            "{}publish: {{ repository: ghcr.io/acme/app }}\n",
            read(&sandbox)
        ),
    );
    insta::assert_snapshot!("not_pushed_to", refused(&sandbox, "--kubernetes", &[]));
}

fn read(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path("s.yaml")).unwrap()
}

#[test]
fn what_changed_since_it_was_pushed() {
    let sandbox = service(BARE, None);
    sandbox.write("s.yaml", &read(&sandbox).replace("service]", "other]"));
    insta::assert_snapshot!("changed", refused(&sandbox, "--kubernetes", &[]));
}

#[test]
fn what_starts_nothing() {
    let sandbox = service("image: { env: { A: b } }\n", None);
    let [compose, kubernetes] = FORMS.map(|form| refused(&sandbox, form, &[]));
    assert_eq!(compose, kubernetes);
    insta::assert_snapshot!("no_command", compose);
}

#[test]
fn flags_that_exclude_one_another() {
    let sandbox = tiny(BARE);
    let of = |args: &[&str]| {
        let run = sandbox.run(&[&["render", "s.yaml"], args].concat());
        format!("{args:?}: exit {}\n{}\n", run.code, run.stderr)
    };
    let all: String = [
        &["--compose", "--kubernetes"][..],
        &["--compose", "--volume-size", "1GB"],
        &["-o", "out", "--gpus", "1"],
        &["-o", "out", "--image", "a/b:c"],
        &["--compose", "--gpus", "some"],
        &["--compose", "--plain-http"],
        &["-o", "out", "--variant", "a", "--variant", "b"],
        &["--compose", "--image", "registry.example/a:1", "--offline"],
    ]
    .map(of)
    .concat();
    insta::assert_snapshot!("exclusive", all);
}

#[test]
fn a_file_that_somebody_else_wrote_stays() {
    let sandbox = service(BARE, None);
    for form in FORMS {
        sandbox.write("mine.yaml", "services: {}\n");
        let run = render(&sandbox, form, &["-o", "mine.yaml"]);
        assert_eq!(run.code, 2, "{}", run.stderr);
        let first = render(&sandbox, form, &["-o", "new.yaml"]);
        let again = render(&sandbox, form, &["-o", "new.yaml"]);
        assert_eq!((first.code, again.code), (0, 0), "{}", again.stderr);
        let written = std::fs::read_to_string(sandbox.path("new.yaml")).unwrap();
        assert_eq!(written, rendered(&sandbox, form, &[]));
    }
}

#[test]
fn json_names_the_images() {
    let sandbox = service(BARE, None);
    let document = document(&render(&sandbox, "--compose", &["--json"]));
    let image = document["images"][0]["image"].as_str().unwrap();
    assert!(
        image.starts_with("registry.example:5000/team/app@sha256:"),
        "{document}"
    );
    assert_eq!(document["text"], rendered(&sandbox, "--compose", &[]));
}

/// A name that no shell, comment or cluster would take as it is.
#[test]
fn a_path_with_a_line_break_ends_no_comment() {
    let sandbox = service(BARE, None);
    let name = "a\nservices: {}\n#.yaml";
    std::fs::rename(sandbox.path("s.yaml"), sandbox.path(name)).unwrap();
    std::fs::rename(
        sandbox.path("s.lock"),
        sandbox.path(&name.replace("yaml", "lock")),
    )
    .unwrap();
    let run = sandbox.run_with(
        &["render", name, "--compose"],
        &[("DOCKER_HOST", "unix:///nowhere/docker.sock")],
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    let services = &yaml(&run.stdout)[0]["services"];
    assert_eq!(services.as_object().unwrap().len(), 1, "{}", run.stdout);
}
