//! `render --compose` and `--kubernetes` of what was pushed into Debian's docker-registry; Debian's docker-compose
//! reads the one, and the rules of Kubernetes' variables the other.

use serde_json::{Value, json};
use std::process::Command;
use support::deployed::{BARE, HARD, rendered, tiny};
use support::layers::{Member, configured};
use support::pipelines::yaml;
use support::server::{Kind, Server};
use support::{Sandbox, document, made};

/// An image of the stack in a layout, as a build would label it.
fn layout(sandbox: &Sandbox, labels: &Value) -> String {
    let files = [Member::Folder("app"), Member::File("app/service.py", "")];
    let config = json!({ "Labels": labels, "User": "1000:1001" });
    configured(&sandbox.path("image"), &[&files], config);
    format!("oci:{}:v1", sandbox.path("image").display())
}

/// Labels of the stack in `s.yaml`.
fn labels(sandbox: &Sandbox) -> Value {
    let text = std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
    let lock = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    sandbox.write("tiny.yaml", &text);
    sandbox.write("tiny.lock", &lock);
    made::labels(sandbox)
}

fn image_of(text: &str) -> String {
    let file = &yaml(text)[0];
    file["services"]["tiny"]["image"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn what_push_sent_is_named_by_its_digest() {
    let server = Server::start(Kind::Open);
    let sandbox = tiny(HARD);
    let source = layout(&sandbox, &labels(&sandbox));
    let place = format!("{}/team/tiny:1", server.host);
    let pushed = document(&sandbox.run(&["push", &source, &place, "--json"]));
    let digest = pushed["digest"].as_str().unwrap();
    let expected = format!("{}/team/tiny@{digest}", server.host);
    let recorded = rendered(&sandbox, "--compose", &[]);
    assert_eq!(image_of(&recorded), expected);
    assert!(recorded.contains("user: \"1000:1001\""), "{recorded}");

    // Another machine asks the registry.
    let elsewhere = tiny(HARD);
    let asked = rendered(&elsewhere, "--compose", &["--image", &place]);
    assert_eq!(image_of(&asked), expected);
    let body = |text: &str| text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&asked), body(&recorded));
}

#[test]
fn a_variant_of_an_index_is_named_by_its_own_digest() {
    let server = Server::start(Kind::Open);
    let sandbox = tiny(BARE);
    let source = layout(&sandbox, &labels(&sandbox));
    let place = format!("{}/team/tiny:1", server.host);
    let args = ["push", &source, &place, "--index", "--json"];
    let pushed = document(&sandbox.run(&args));
    let digest = pushed["digest"].as_str().unwrap();
    for args in [&[][..], &["--image", &place]] {
        let text = rendered(&sandbox, "--compose", args);
        assert!(image_of(&text).ends_with(digest), "{text}");
    }
}

#[test]
fn an_image_that_is_not_the_stacks() {
    let server = Server::start(Kind::Open);
    let sandbox = tiny(BARE);
    let mut other = labels(&sandbox);
    other["io.stackforge.stack"] = json!("other");
    let source = layout(&sandbox, &other);
    let place = format!("{}/team/other:1", server.host);
    assert_eq!(sandbox.run(&["push", &source, &place]).code, 0);
    let run = sandbox.run(&["render", "s.yaml", "--compose", "--image", &place]);
    assert_eq!(run.code, 1);
    let stderr = run.stderr.replace(&server.host, "registry.example");
    insta::assert_snapshot!("foreign_image", stderr);

    let mut old = labels(&sandbox);
    old["io.stackforge.key"] = json!("sha256:00");
    let source = layout(&sandbox, &old);
    assert_eq!(sandbox.run(&["push", &source, &place]).code, 0);
    let run = sandbox.run(&["render", "s.yaml", "--compose", "--image", &place]);
    assert_eq!(run.code, 0);
    let stderr = run.stderr.replace(&server.host, "registry.example");
    insta::assert_snapshot!("old_image", stderr);
    let run = sandbox.run(&["render", "s.yaml", "--kubernetes"]);
    assert!(
        run.stderr.contains("the stack has changed since"),
        "{}",
        run.stderr
    );
}

/// Compose's own reader, which interpolates.
#[test]
fn compose_gives_the_values_as_they_are_in_the_stack() {
    let sandbox = tiny(HARD);
    support::deployed::pushed(&sandbox, None, Some("1:1"), &[]);
    sandbox.write("c.yaml", &rendered(&sandbox, "--compose", &[]));
    let out = Command::new("docker-compose")
        .args(["-f", "c.yaml", "config"])
        .current_dir(sandbox.path(""))
        .env("PORT", "wrong")
        .output()
        .expect("docker-compose: run `sh scripts/setup.sh tests`");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{stderr}");
    assert_eq!(stderr, "", "it warns of variables that are not set");
    let file = &yaml(std::str::from_utf8(&out.stdout).unwrap())[0];
    let service = &file["services"]["tiny"];
    for (name, value) in environment() {
        let read = match &service["environment"][&name] {
            // Its writer leaves out the quotes that YAML 1.2 needs: the text is the same.
            Value::Number(_) => "1e3".to_owned(),
            other => other.as_str().unwrap().to_owned(),
        };
        // `config` writes what can be read again.
        assert_eq!(read, value.replace('$', "$$"), "{name}");
    }
    assert_eq!(service["stop_signal"], "SIGINT");
    let test = service["healthcheck"]["test"].as_array().unwrap();
    assert_eq!(test[3], "import os\nprint('$$x', \"y: #\")");
}

/// The variables of the stack.
fn environment() -> Vec<(String, String)> {
    let image = &yaml(HARD)[0]["image"];
    let variables = image["env"].as_object().unwrap().iter();
    variables
        .map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()))
        .collect()
}

/// What Kubernetes makes of a value: `$(NAME)` is a variable that is defined before, `$$` a dollar sign.
fn expanded(text: &str, known: &[&str]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = match after.strip_prefix('$') {
            Some(after) => {
                out.push('$');
                after
            }
            None => match after.strip_prefix('(').and_then(|a| a.split_once(')')) {
                Some((name, after)) if known.contains(&name) => {
                    out.push_str("(value)");
                    after
                }
                _ => {
                    out.push('$');
                    after
                }
            },
        };
    }
    out + rest
}

#[test]
fn kubernetes_gives_the_values_as_they_are_in_the_stack() {
    assert_eq!(expanded("$$(A) $(A) $x $$", &["A"]), "$(A) (value) $x $");
    let sandbox = tiny(HARD);
    support::deployed::pushed(&sandbox, None, Some("1:1"), &[]);
    let documents = yaml(&rendered(&sandbox, "--kubernetes", &[]));
    let deployment = documents
        .iter()
        .find(|d| d["kind"] == "Deployment")
        .unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let env = container["env"].as_array().unwrap();
    for (name, value) in environment() {
        let entry = env.iter().find(|e| e["name"] == *name).unwrap();
        let read = expanded(entry["value"].as_str().unwrap(), &["PORT", "HOME"]);
        assert_eq!(read, value, "{name}");
    }
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let command = container[probe]["exec"]["command"][2].as_str().unwrap();
        assert_eq!(expanded(command, &[]), "import os\nprint('$x', \"y: #\")");
    }
}
