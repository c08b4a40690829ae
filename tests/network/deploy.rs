//! What `render --compose` and `--kubernetes` write, before the schemas of their readers: those of the Compose
//! specification and of Kubernetes, from PyPI.

use support::Sandbox;
use support::deployed::{BARE, HARD, pushed, rendered, stack, tiny};
use support::pipelines::yaml;
use support::python;

const JUDGES: [&str; 2] = ["check-jsonschema==0.39.0", "kubernetes-validate==1.37.0"];
const COMPOSE: &[&str] = &[
    "-m",
    "check_jsonschema",
    "--builtin-schema",
    "vendor.compose-spec",
];
const KUBERNETES: &[&str] = &["-m", "kubernetes_validate", "--strict", "--quiet"];
/// PyYAML reads YAML 1.1, as Kubernetes and the older Compose do.
const ELEVEN: &str =
    "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";

fn judge(judge: &[&str], text: &str) -> Result<String, String> {
    let sandbox = Sandbox::new();
    sandbox.write("file.yaml", text);
    let path = sandbox.path("file.yaml").display().to_string();
    python::run(&JUDGES, &[judge, &[path.as_str()]].concat())
}

/// Services of every kind, with flags.
fn each(check: impl Fn(&str, &str, &str)) {
    let health =
        "image: { cmd: [a], health: { cmd: [\"true\"] }, ports: [\"9/sctp\"], volumes: [/A/b] }\n";
    let named = |more: &str, user, labels: &[(&str, &str)]| {
        let sandbox = tiny(more);
        pushed(&sandbox, None, user, labels);
        sandbox
    };
    let jetson = stack("stacks/thor-cuda13.yaml", HARD);
    let labels = [("io.stackforge.sm", "sm_110"), ("io.stackforge.l4t", "38")];
    pushed(&jetson, None, Some("7:8"), &labels);
    let cases = [
        ("hard", named(HARD, Some("1000:1001"), &[])),
        ("bare", named(BARE, None, &[])),
        ("health", named(health, Some("app"), &[])),
        (
            "no device code",
            named(HARD, None, &[("io.stackforge.sm", "")]),
        ),
        ("PTX", named(BARE, None, &[("io.stackforge.ptx", "sm_80")])),
        ("jetson", jetson),
    ];
    for (name, sandbox) in &cases {
        for args in [
            &[][..],
            &["--gpus", "0"],
            &["--gpus", "all"],
            &["--gpus", "3"],
        ] {
            for form in ["--compose", "--kubernetes"] {
                check(
                    &format!("{name} {args:?}"),
                    form,
                    &rendered(sandbox, form, args),
                );
            }
        }
    }
}

#[test]
fn their_schemas_take_it() {
    each(|name, form, text| {
        let schema = if form == "--compose" {
            COMPOSE
        } else {
            KUBERNETES
        };
        judge(schema, text).unwrap_or_else(|e| panic!("{name} {form}: {e}\n{text}"));
    });
}

/// A judge that takes everything would prove nothing.
#[test]
fn their_schemas_refuse_what_is_wrong() {
    let sandbox = tiny(HARD);
    pushed(&sandbox, None, Some("1:1"), &[]);
    for (form, schema, from, to, why) in [
        (
            "--compose",
            COMPOSE,
            "stop_signal: ",
            "stop_sign: ",
            "stop_sign",
        ),
        (
            "--compose",
            COMPOSE,
            "retries: 5",
            "retries: [5]",
            "retries",
        ),
        (
            "--kubernetes",
            KUBERNETES,
            "periodSeconds: 2",
            "periodSeconds: two",
            "'two' is not of type",
        ),
        (
            "--kubernetes",
            KUBERNETES,
            "readinessProbe:",
            "readyProbe:",
            "readyProbe",
        ),
    ] {
        let text = rendered(&sandbox, form, &[]);
        let wrong = text.replace(from, to);
        assert_ne!(text, wrong);
        let refused = judge(schema, &wrong).unwrap_err();
        assert!(refused.contains(why), "{form}: {refused}");
    }
}

#[test]
fn old_and_new_readers_of_yaml_read_the_same() {
    each(|name, form, text| {
        let old = judge(&["-c", ELEVEN], text).unwrap_or_else(|e| panic!("{name} {form}: {e}"));
        let old: Vec<serde_json::Value> = serde_json::from_str(&old).unwrap();
        assert_eq!(old, yaml(text), "{name} {form}");
    });
}
