//! Every `run:` of this repository's action and workflows: run here, or with the reason why not.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};
use support::http::{Reply, Server};
use support::{Sandbox, project};

fn document(path: &str) -> Value {
    let text = std::fs::read_to_string(project(path)).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every `run:` of a document.
fn runs(document: &Value) -> Vec<&str> {
    match document {
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| match value.as_str() {
                Some(text) if key == "run" => vec![text.trim_end()],
                _ => runs(value),
            })
            .collect(),
        Value::Array(list) => list.iter().flat_map(runs).collect(),
        _ => Vec::new(),
    }
}

/// As GitHub's runner does it: `bash -e`, with pipefail where `shell: bash` is written.
fn bash(sandbox: &Sandbox, options: &[&str], script: &str, env: &[(&str, &str)]) -> Output {
    sandbox.write("step.sh", script);
    let mut command = sandbox.command_of("bash");
    command.args(["--noprofile", "--norc", "-e"]).args(options);
    command
        .arg("step.sh")
        .envs(env.iter().copied())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A release as `make dist` makes it, behind a server that redirects as GitHub does.
struct Release {
    sandbox: Sandbox,
    server: Server,
}

impl Release {
    /// `altered`: the program that is served is not the one of the checksums.
    fn new(altered: bool) -> Self {
        let sandbox = Sandbox::new();
        let program = std::fs::read(env!("CARGO_BIN_EXE_stackforge")).unwrap();
        let name = format!("stackforge-1.2.3-linux-{}", arch());
        std::fs::write(sandbox.path(&name), &program).unwrap();
        let sums = sandbox.command_of("sha256sum").arg(&name).output().unwrap();
        // A release holds more than an action fetches.
        let sums =
            text(&sums.stdout) + &format!("{}  stackforge-1.2.3.sbom.json\n", "0".repeat(64));
        let mut served = program;
        if altered {
            served[100] ^= 1;
        }
        let files = BTreeMap::from([(name, served), ("SHA256SUMS".to_owned(), sums.into_bytes())]);
        let server = Server::start(move |request, _| {
            if let Some(file) = request.path.strip_prefix("/blobs/") {
                let body = files[file].clone();
                let length = Some(body.len());
                return Reply {
                    body,
                    length,
                    ..Reply::status(200)
                };
            }
            match request
                .path
                .strip_prefix("/acme/stackforge/releases/download/v1.2.3/")
            {
                Some(file) if files.contains_key(file) => {
                    Reply::status(302).header("Location", &format!("/blobs/{file}"))
                }
                _ => Reply::status(404),
            }
        });
        Self { sandbox, server }
    }

    /// Runs the action's script for a version.
    fn install(&self, version: &str) -> Output {
        let action = document("action.yml");
        let step = &action["runs"]["steps"][0];
        assert_eq!(step["shell"], "bash");
        let inputs = BTreeMap::from([
            ("${{ inputs.version }}", version.to_owned()),
            ("${{ inputs.max-size }}", "3GB".to_owned()),
            (
                "${{ github.action_repository }}",
                "acme/stackforge".to_owned(),
            ),
            ("${{ runner.temp }}/stackforge", self.folder()),
        ]);
        let given = step["env"].as_object().unwrap().iter();
        let mut env: Vec<(&str, &str)> = given
            .map(|(key, value)| (key.as_str(), inputs[value.as_str().unwrap()].as_str()))
            .collect();
        let [home, paths, vars] =
            ["home", "paths", "vars"].map(|n| self.sandbox.path(n).display().to_string());
        env.extend([
            ("GITHUB_SERVER_URL", self.server.url.as_str()),
            ("GITHUB_PATH", &paths),
            ("GITHUB_ENV", &vars),
            ("HOME", &home),
        ]);
        bash(
            &self.sandbox,
            &["-o", "pipefail"],
            step["run"].as_str().unwrap(),
            &env,
        )
    }

    fn folder(&self) -> String {
        self.sandbox.path("temp/stackforge").display().to_string()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.sandbox.path(name)).unwrap_or_default()
    }
}

fn arch() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    }
}

#[test]
fn the_action_installs_a_release_and_says_where_its_store_is() {
    let release = Release::new(false);
    let done = release.install("1.2.3");
    assert!(done.status.success(), "{}", text(&done.stderr));
    let folder = release.folder();
    assert_eq!(release.read("paths"), format!("{folder}/bin\n"));
    assert_eq!(
        release.read("vars"),
        format!("STACKFORGE_STORE={folder}/store\n")
    );
    let program = Path::new(&folder).join("bin/stackforge");
    let version = Command::new(&program).arg("--version").output().unwrap();
    assert!(text(&version.stdout).starts_with("stackforge "));
    // The program takes the configuration that was written.
    let config = release.read("home/.config/stackforge/config.yaml");
    assert_eq!(config, "cache:\n  max_size: 3GB\n");
    let mut command = release.sandbox.command_of(&program);
    let listed = command
        .args(["cache", "ls"])
        .env("HOME", release.sandbox.path("home"))
        .env_remove("XDG_CONFIG_HOME")
        .output()
        .unwrap();
    assert!(listed.status.success(), "{}", text(&listed.stderr));

    // A runner of one's own has a configuration already, and the action may run twice in a job.
    release.sandbox.write(
        "home/.config/stackforge/config.yaml",
        "cache:\n  max_size: 90GB\n",
    );
    assert!(release.install("v1.2.3").status.success());
    assert!(
        release
            .read("home/.config/stackforge/config.yaml")
            .contains("90GB")
    );
}

#[test]
fn the_action_takes_no_program_that_its_release_has_no_checksum_of() {
    let release = Release::new(true);
    let done = release.install("1.2.3");
    assert!(!done.status.success());
    assert!(
        text(&done.stdout).contains("FAILED"),
        "{}",
        text(&done.stdout)
    );
    assert!(!Path::new(&release.folder()).join("bin/stackforge").exists());
    assert_eq!(release.read("paths"), "");
}

#[test]
fn the_action_fails_for_a_version_that_is_not_there() {
    for version in ["9.9.9", "", "latest", "1.2.3; touch planted"] {
        let release = Release::new(false);
        let done = release.install(version);
        assert!(!done.status.success(), "{version:?}");
        let said = text(&done.stderr);
        assert!(
            said.contains("of acme/stackforge has no stackforge-"),
            "{version:?}: {said}"
        );
        assert_eq!(release.read("paths"), "", "{version:?}");
        assert!(!release.sandbox.path("planted").exists());
    }
}

/// The folder of a project that has the scripts alone.
fn scripts() -> Sandbox {
    let sandbox = Sandbox::new();
    for script in ["scripts/released.sh", "scripts/sign-dist.sh"] {
        let text = std::fs::read_to_string(project(script)).unwrap();
        sandbox.write(script, &text);
    }
    sandbox
}

/// The step that checks a tag before anything is built of it.
fn a_tag_is_checked(run: &str) {
    let sandbox = scripts();
    sandbox.write(
        "Cargo.toml",
        "[workspace.package]\nversion = \"1.2.3\"\n\n[package]\nversion = \"0.0.9\"\n",
    );
    sandbox.write(
        "CHANGELOG.md",
        "# Changelog\n\n## Unreleased\n\n## 1.2.3 - 2026-01-01\n",
    );
    let tagged = |tag: &str| bash(&sandbox, &[], run, &[("GITHUB_REF_NAME", tag)]);
    assert!(tagged("v1.2.3").status.success());
    for tag in ["v1.2.4", "1.2.3", "v0.0.9", "", "v1.2.3 v1.2.3"] {
        let done = tagged(tag);
        assert!(!done.status.success(), "{tag:?}");
        assert!(
            text(&done.stderr).contains("release: the tag is"),
            "{tag:?}"
        );
    }
    sandbox.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n");
    let done = tagged("v1.2.3");
    assert!(!done.status.success());
    assert!(text(&done.stderr).contains("has no section"));
}

/// The step that signs the checksums; openssl judges.
fn checksums_are_signed(run: &str) {
    let sandbox = scripts();
    let made = sandbox.run(&["sign", "--generate-key", "publisher"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    sandbox.write("target/dist/SHA256SUMS", "0000  stackforge\n");
    let key = std::fs::read_to_string(sandbox.path("publisher.key")).unwrap();
    let signed = |key: &str| bash(&sandbox, &[], run, &[("SIGNING_KEY", key)]);
    assert!(!signed("").status.success());
    assert!(!signed("no key").status.success());
    let done = signed(&key);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let public = |name: &str| std::fs::read_to_string(sandbox.path(name)).unwrap();
    assert_eq!(
        public("target/dist/stackforge.pub"),
        public("publisher.pub")
    );
    let verify = "base64 -d target/dist/SHA256SUMS.sig >sig && openssl dgst -sha256 -verify target/dist/stackforge.pub -signature sig ";
    let judged = |file: &str| bash(&sandbox, &[], &format!("{verify}{file}"), &[]);
    assert!(judged("target/dist/SHA256SUMS").status.success());
    sandbox.write("other", "0001  stackforge\n");
    assert!(!judged("other").status.success());
}

/// The step that makes a release, with a recorder in place of GitHub's program.
fn a_release_is_made_of_all_files(run: &str) {
    let sandbox = Sandbox::new();
    sandbox.write("dist/stackforge-1.2.3-linux-amd64", "");
    sandbox.write("dist/SHA256SUMS", "");
    let path = sandbox.program("bin", "gh", r#"printf '%s\n' "$@""#);
    let env = [
        ("PATH", path.to_str().unwrap()),
        ("GITHUB_REF_NAME", "v1.2.3"),
        ("GITHUB_REPOSITORY", "acme/stackforge"),
    ];
    let done = bash(&sandbox, &[], run, &env);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let said = text(&done.stdout);
    let words: Vec<&str> = said.lines().collect();
    assert_eq!(words[..3], ["release", "create", "v1.2.3"]);
    assert!(
        words.ends_with(&["dist/SHA256SUMS", "dist/stackforge-1.2.3-linux-amd64"]),
        "{words:?}"
    );
}

/// The step that puts the wheels alone into a folder, for PyPI.
fn wheels_are_put_apart(run: &str) {
    let sandbox = Sandbox::new();
    sandbox.write("dist/stackforge-1.2.3-py3-none-any.whl", "");
    sandbox.write("dist/SHA256SUMS", "");
    assert!(bash(&sandbox, &[], run, &[]).status.success());
    let there = std::fs::read_dir(sandbox.path("wheels")).unwrap();
    let names: Vec<_> = there.map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["stackforge-1.2.3-py3-none-any.whl"]);
}

enum Tried {
    By(fn(&str)),
    Not(&'static str),
}

#[test]
fn every_step_of_the_workflows_is_run_or_says_why_not() {
    let tried: BTreeMap<&str, Tried> = BTreeMap::from([
        (
            r#"sh scripts/released.sh "$GITHUB_REF_NAME""#,
            Tried::By(a_tag_is_checked),
        ),
        ("sh scripts/sign-dist.sh", Tried::By(checksums_are_signed)),
        (
            r#"gh release create "$GITHUB_REF_NAME" --repo "$GITHUB_REPOSITORY" --verify-tag --generate-notes dist/*"#,
            Tried::By(a_release_is_made_of_all_files),
        ),
        (
            "mkdir wheels && cp dist/*.whl wheels",
            Tried::By(wheels_are_put_apart),
        ),
        ("make check", Tried::Not("it runs these tests")),
        ("make test", Tried::Not("it runs these tests")),
        (
            "sh scripts/strangers.sh",
            Tried::Not("it compiles the libraries again, which takes minutes"),
        ),
        (
            "sh scripts/check-macos.sh",
            Tried::Not(
                "it compiles everything for another system, which takes ten minutes and more",
            ),
        ),
        (
            "sh scripts/try-macos.sh",
            Tried::Not("it takes a machine of another system"),
        ),
        (
            "make dist",
            Tried::Not("one link of the whole program takes ten minutes and more"),
        ),
        (
            "sh scripts/try-dist.sh wheel",
            Tried::Not("it needs what make dist makes"),
        ),
        (
            "sh scripts/try-dist.sh deb",
            Tried::Not("it needs what make dist makes, and root"),
        ),
    ]);
    let workflows = [
        ".github/workflows/release.yml",
        ".github/workflows/test.yml",
    ]
    .map(document);
    let written: BTreeSet<&str> = workflows.iter().flat_map(runs).collect();
    let known: BTreeSet<&str> = tried.keys().copied().collect();
    assert_eq!(written, known);
    for (run, how) in tried {
        match how {
            Tried::By(test) => test(run),
            Tried::Not(why) => assert!(!why.is_empty()),
        }
    }
    // Each script that a step names is there.
    for run in written.iter().filter_map(|run| run.strip_prefix("sh ")) {
        let script = run.split(' ').next().unwrap();
        assert!(project(script).exists(), "{script}");
    }
}
