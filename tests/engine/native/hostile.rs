//! Wheels and layers that mean harm, through a whole build: refused with a code, and nothing of them
//! anywhere but where it belongs.

use super::out;
use super::server::{Kind, Server};
use std::path::Path;
use support::{Run, Sandbox, project};

const ESCAPED: &str = "/tmp/stackforge-escaped";

fn make(kind: &str, case: &str, path: &Path) {
    let program = project("tests/engine/native/hostile.py");
    out(
        "python3",
        &[
            program.to_str().unwrap(),
            kind,
            case,
            path.to_str().unwrap(),
        ],
    );
}

fn stack(base: &str, library: &str) -> String {
    format!(
        "stack: hostile\nbase: {base}\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\npython: \"3.13\"\nlibraries: {{ {library} }}\njit: false\n"
    )
}

fn build(sandbox: &Sandbox, env: &[(&str, &str)]) -> Run {
    let locked = sandbox.run_with(&["lock", "s.yaml"], env);
    assert_eq!(locked.code, 0, "{}", locked.stderr);
    let args = [
        "build",
        "s.yaml",
        "--json",
        "--engine",
        "native",
        "-o",
        "oci:layout",
    ];
    sandbox.run_with(&args, env)
}

#[test]
fn a_wheel_that_means_harm_is_refused_by_name() {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", &stack("debian-trixie-slim", "evil: \"1.0\""));
    let links = sandbox.path("links");
    std::fs::create_dir(&links).unwrap();
    let wheel = links.join("evil-1.0-py3-none-any.whl");
    let env = [
        ("UV_FIND_LINKS", links.to_str().unwrap()),
        ("UV_NO_INDEX", "1"),
    ];
    for (case, expected) in [
        ("traversal", "`..`"),
        ("absolute", "absolute"),
        ("data-traversal", "`..`"),
        ("interpreter", "interpreter"),
        ("interpreter-data", "interpreter"),
        ("interpreter-version", "interpreter"),
        ("interpreter-home", "interpreter"),
        ("interpreter-command", "interpreter"),
        ("interpreter-folder", "interpreter"),
        ("interpreter-folder-version", "interpreter"),
        ("environment", "interpreter"),
        ("metadata", "metadata of another distribution"),
        ("case", "case only"),
        ("twice", "another member"),
        ("whiteout", "a meaning of its own"),
        ("bomb", "inflates to"),
    ] {
        make("wheel", case, &wheel);
        let run = build(&sandbox, &env);
        assert_eq!(run.code, 1, "{case}: {}{}", run.stdout, run.stderr);
        let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        let diagnostic = &document["diagnostics"][0];
        assert_eq!(diagnostic["code"], "SF0922", "{case}: {document:#}");
        assert!(
            diagnostic["message"].as_str().unwrap().contains(expected),
            "{case}: {diagnostic:#}"
        );
        assert!(!Path::new(ESCAPED).exists(), "{case}");
        assert!(!sandbox.path("layout/index.json").exists(), "{case}");
    }
}

/// The two go to layers of their own, of which the upper one would cover the lower.
#[test]
fn a_wheel_that_covers_anothers_files_is_refused() {
    let sandbox = Sandbox::new();
    let libraries = "evil: \"1.0\", victim: \"1.0\"";
    sandbox.write("s.yaml", &stack("debian-trixie-slim", libraries));
    let links = sandbox.path("links");
    std::fs::create_dir(&links).unwrap();
    for (case, file) in [("covers", "evil"), ("victim", "victim")] {
        let file = format!("{file}-1.0-py3-none-any.whl");
        make("wheel", case, &links.join(file));
    }
    let env = [
        ("UV_FIND_LINKS", links.to_str().unwrap()),
        ("UV_NO_INDEX", "1"),
    ];
    let run = build(&sandbox, &env);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let message = document["diagnostics"][0]["message"].as_str().unwrap();
    assert!(
        message.contains("different files as `/opt/venv"),
        "{message}"
    );
    assert!(!sandbox.path("layout/index.json").exists());
}

#[test]
fn a_layer_that_means_harm_leaves_nothing_outside() {
    let server = Server::start(Kind::Open);
    for (case, refused) in [
        ("traversal", true),
        ("link-out", true),
        ("hard-link", true),
        ("device", false),
    ] {
        let sandbox = Sandbox::new();
        let layer = sandbox.path("layer.tar");
        make("layer", case, &layer);
        let layout = sandbox.path("base");
        let image = format!("{}:1", layout.display());
        out("umoci", &["init", "--layout", layout.to_str().unwrap()]);
        out("umoci", &["new", "--image", &image]);
        out(
            "umoci",
            &[
                "raw",
                "add-layer",
                "--image",
                &image,
                layer.to_str().unwrap(),
            ],
        );
        let place = format!("docker://{}/{case}:1", server.host);
        let from = format!("oci:{image}");
        out(
            "skopeo",
            &["copy", "-q", "--dest-tls-verify=false", &from, &place],
        );
        let seen = out("skopeo", &["inspect", "--tls-verify=false", &place]);
        let seen: serde_json::Value = serde_json::from_slice(&seen).unwrap();
        let base = format!(
            "{}/{case}@{}",
            server.host,
            seen["Digest"].as_str().unwrap()
        );
        sandbox.write("s.yaml", &stack(&base, "six: \"1.17.0\""));
        let run = sandbox.run(&["lock", "s.yaml", "--pull", "--json"]);
        assert_eq!(run.code, 1, "{case}: {}{}", run.stdout, run.stderr);
        // The layer is refused, or what it holds stays inside and is no system.
        let expected = if refused {
            "SF0920"
        } else {
            "neither Debian nor Ubuntu"
        };
        assert!(run.stdout.contains(expected), "{case}: {}", run.stdout);
        assert!(!Path::new(ESCAPED).exists(), "{case}");
        let secret = sandbox.path("store/unpacked");
        let found = out("find", &[secret.to_str().unwrap(), "-type", "b"]);
        assert!(found.is_empty(), "{case}");
    }
}
