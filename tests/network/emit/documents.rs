//! YAML before the schemas of its readers, and what is in it.

use super::{all, below, emit, emitted, python, single, small, with, yaml};
use base64::Engine as _;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use support::{Sandbox, project};

/// Every kind of stack: published or not, of one platform or two, with a lock or without.
fn each(format: &str, judge: impl Fn(&str, &str)) {
    judge(&emitted("small", &small(), format), "small");
    judge(&emitted("single", &single(), format), "single");
    let elsewhere = small().replace("ghcr.io/acme", "registry.gitlab.com/acme");
    judge(&emitted("elsewhere", &elsewhere, format), "elsewhere");
    for cache in ["ghcr.io/acme/cache", "registry.example/cache"] {
        let cached = format!("{}cache: {{ registry: {cache} }}\n", small());
        judge(&emitted("cached", &cached, format), cache);
    }
    let with_catalog = with("small", &small());
    with_catalog.write("data/templates/ci/unused.hbs", "x: \t'\"\\ \r\n");
    let run = with_catalog.run(&[
        "matrix",
        "small.yaml",
        "--emit",
        format,
        "--catalog",
        "data",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    judge(&run.stdout, "catalog");
    judge(&emitted("all", &all(), format), "all");
}

fn judged_by(format: &str, judge: &[&str]) {
    each(format, |text, what| {
        let sandbox = Sandbox::new();
        sandbox.write("file.yaml", text);
        let path = sandbox.path("file.yaml").display().to_string();
        let arguments: Vec<&str> = judge.iter().copied().chain([path.as_str()]).collect();
        python::run(&arguments).unwrap_or_else(|e| panic!("{what}: {e}"));
    });
}

pub const GITHUB: &[&str] = &[
    "-m",
    "check_jsonschema",
    "--builtin-schema",
    "vendor.github-workflows",
];
pub const GITLAB: &[&str] = &[
    "-m",
    "check_jsonschema",
    "--builtin-schema",
    "vendor.gitlab-ci",
];
const KUBERNETES: &[&str] = &["-m", "kubernetes_validate", "--strict", "--quiet"];

#[test]
fn github_takes_it() {
    judged_by("github", GITHUB);
}

#[test]
fn gitlab_takes_it() {
    judged_by("gitlab", GITLAB);
}

#[test]
fn kubernetes_takes_it() {
    judged_by("kubernetes", KUBERNETES);
}

/// This repository's own workflows, and the action that others use.
#[test]
fn github_takes_ours() {
    let action = [&GITHUB[..3], &["vendor.github-actions"]].concat();
    for (judge, path) in [
        (GITHUB, ".github/workflows/release.yml"),
        (GITHUB, ".github/workflows/test.yml"),
        (&action, "action.yml"),
    ] {
        let path = project(path).display().to_string();
        python::run(&[judge, &[path.as_str()]].concat()).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
}

/// A judge that takes everything would prove nothing.
#[test]
fn judges_refuse_what_is_wrong() {
    for (format, judge, from, to, why) in [
        ("github", GITHUB, "runs-on:", "run-on:", "run-on"),
        (
            "gitlab",
            GITLAB,
            "needs: [",
            "needs: [1, ",
            "['build:amd64'].needs",
        ),
        (
            "kubernetes",
            KUBERNETES,
            "completions: 2",
            "completions: two",
            "'two' is not of type",
        ),
    ] {
        let text = emitted("small", &small(), format);
        let wrong = text.replace(from, to);
        assert_ne!(text, wrong);
        let sandbox = Sandbox::new();
        sandbox.write("file.yaml", &wrong);
        let path = sandbox.path("file.yaml").display().to_string();
        let refused = python::run(&[judge, &[path.as_str()]].concat()).unwrap_err();
        assert!(refused.contains(why), "{format}: {refused}");
    }
}

#[test]
fn every_script_is_one_for_the_shell() {
    for (format, keys) in [
        ("github", &["run"][..]),
        ("gitlab", &["script", "before_script"]),
        ("kubernetes", &["command"]),
    ] {
        each(format, |text, what| {
            let documents = yaml(text);
            let mut scripts = Vec::new();
            for key in keys {
                documents.iter().for_each(|d| below(key, d, &mut scripts));
            }
            assert!(scripts.len() >= 3, "{format}: {scripts:?}");
            for script in scripts {
                let mut bash = Command::new("bash");
                let mut bash = bash.arg("-n").stdin(Stdio::piped()).spawn().unwrap();
                let mut input = bash.stdin.take().unwrap();
                input.write_all(script.as_bytes()).unwrap();
                drop(input);
                assert!(bash.wait().unwrap().success(), "{what}: {script}");
            }
        });
    }
}

#[test]
fn a_pod_finds_the_stack_and_its_lock() {
    let sandbox = with("small", &small());
    sandbox.write(".stackforge/templates/steps/net.sh", "# my own\n");
    let run = emit(&sandbox, "small.yaml", "kubernetes");
    let documents = yaml(&run.stdout);
    let (config, jobs) = documents.split_first().unwrap();
    assert_eq!(config["data"]["stack.yaml"], small());
    assert_eq!(config["data"]["catalog-0"], "# my own\n");
    let lock = config["binaryData"]["stack.lock.gz"].as_str().unwrap();
    let lock = base64::engine::general_purpose::STANDARD
        .decode(lock)
        .unwrap();
    let mut text = String::new();
    let mut gzip = flate2::read::GzDecoder::new(lock.as_slice());
    gzip.read_to_string(&mut text).unwrap();
    let whole = std::fs::read_to_string(sandbox.path("small.lock")).unwrap();
    assert_eq!(text, whole);

    for (job, arch) in jobs.iter().zip(["amd64", "arm64"]) {
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"]["kubernetes.io/arch"], arch);
        let list = config["data"][format!("variants-{arch}")].as_str().unwrap();
        assert_eq!(job["spec"]["completions"], list.lines().count());
        let items = pod["volumes"][0]["configMap"]["items"].as_array().unwrap();
        let known = |key: &str| {
            ["data", "binaryData"]
                .iter()
                .any(|d| config[*d].get(key).is_some())
        };
        assert!(
            items.iter().all(|i| known(i["key"].as_str().unwrap())),
            "{items:?}"
        );
        assert_eq!(items[3]["path"], ".stackforge/templates/steps/net.sh");
    }
    assert_eq!(jobs.len(), 2);
}
