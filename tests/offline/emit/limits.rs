//! The matrix of 98 variants, and what is beyond a service.

use super::{all, emit, emitted, small, with};
use serde_json::Value;
use stackforge_build::emit::{EmitError, Format, Request, emit as emit_request};
use std::collections::BTreeSet;
use support::Sandbox;
use support::pipelines::yaml;

fn names(values: &Value) -> Vec<&str> {
    let values = values.as_array().unwrap();
    values.iter().map(|v| v.as_str().unwrap()).collect()
}

#[test]
fn every_one_of_98_variants_is_built_once() {
    let stack = all();
    let listed = with("vllm", &stack)
        .run(&["matrix", "vllm.yaml", "--json"])
        .stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let variants = listed["variants"].as_array().unwrap();
    let names_of_all: BTreeSet<&str> = variants
        .iter()
        .map(|v| v["name"].as_str().unwrap())
        .collect();
    assert_eq!((variants.len(), names_of_all.len()), (98, 98));
    let check = |format: &str, found: Vec<&str>| {
        assert_eq!(found.len(), 98, "{format}");
        assert_eq!(BTreeSet::from_iter(found), names_of_all, "{format}");
    };

    let github = yaml(&emitted("vllm", &stack, "github")).remove(0);
    let include = &github["jobs"]["build"]["strategy"]["matrix"]["include"];
    let include = include.as_array().unwrap();
    check(
        "github",
        include
            .iter()
            .map(|j| j["variant"].as_str().unwrap())
            .collect(),
    );
    for job in include {
        let arm = job["variant"].as_str().unwrap().contains("-armv");
        let expected = if arm {
            "ubuntu-24.04-arm"
        } else {
            "ubuntu-24.04"
        };
        assert_eq!(job["runner"], expected);
    }

    let gitlab = yaml(&emitted("vllm", &stack, "gitlab")).remove(0);
    let of =
        |arch: &str| names(&gitlab[format!("build:{arch}")]["parallel"]["matrix"][0]["VARIANT"]);
    check("gitlab", [of("amd64"), of("arm64")].concat());
    assert!(of("arm64").iter().all(|v| v.contains("-armv")));

    let slurm = emitted("vllm", &stack, "slurm");
    assert!(slurm.contains("\n#SBATCH --array=0-97%8\n"));
    let list = slurm
        .split_once("VARIANTS=(\n")
        .unwrap()
        .1
        .split_once("\n)")
        .unwrap()
        .0;
    let lines = list.lines().map(str::trim);
    check("slurm", lines.filter(|l| !l.starts_with('#')).collect());

    let kubernetes = yaml(&emitted("vllm", &stack, "kubernetes"));
    let lists =
        ["variants-amd64", "variants-arm64"].map(|k| kubernetes[0]["data"][k].as_str().unwrap());
    check("kubernetes", lists.iter().flat_map(|l| l.lines()).collect());
    let completions = kubernetes[1..]
        .iter()
        .map(|j| j["spec"]["completions"].as_u64().unwrap());
    assert_eq!(completions.sum::<u64>(), 98);
}

/// The first refusal for so many variants.
fn refusal(format: Format, count: usize, lock: Option<&str>) -> Option<EmitError> {
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let stack = stackforge_stack::spec::read("s.yaml", &small()).unwrap();
    let some = stackforge_stack::matrix::expand(&stack, &catalog)
        .unwrap()
        .variants;
    let variants = vec![some[0].clone(); count];
    let request = Request {
        stack: &stack.pattern,
        variants: &variants,
        path: "s.yaml",
        catalog: None,
        overlay: None,
        lock,
    };
    emit_request(format, &request).err()
}

#[test]
fn services_have_limits() {
    let message = |e: Option<EmitError>| e.map(|e| e.to_string()).unwrap_or_default();
    assert_eq!(message(refusal(Format::Github, 256, None)), "");
    assert_eq!(
        message(refusal(Format::Github, 257, None)),
        "GitHub runs at most 256 jobs of one matrix; 257 variants are left of this one"
    );
    assert_eq!(message(refusal(Format::Gitlab, 200, None)), "");
    assert_eq!(
        message(refusal(Format::Gitlab, 201, None)),
        "GitLab runs at most 200 jobs of one matrix; 201 variants are for linux/amd64"
    );
    assert_eq!(message(refusal(Format::Slurm, 1000, None)), "");
    // Digests, which do not shrink: this lock stays beyond a MiB.
    let mut hash = stackforge_types::Digest::of(b"");
    let mut lock = String::new();
    while lock.len() < 3 << 20 {
        hash = stackforge_types::Digest::of(hash.hex().as_bytes());
        lock.push_str(hash.hex());
    }
    let too_large = message(refusal(Format::Kubernetes, 1, Some(&lock)));
    assert!(
        too_large.contains("a ConfigMap holds 1024 KiB"),
        "{too_large}"
    );
}

#[test]
fn refusals_say_what_to_do() {
    let mut shown = String::new();
    let mut show = |run: support::Run| {
        shown.push_str(&format!(
            "exit {}\n{}{}\n",
            run.code, run.stdout, run.stderr
        ));
    };
    let sandbox = with("small", &small());
    let absolute = sandbox.path("small.yaml").display().to_string();
    show(emit(&sandbox, &absolute, "github"));
    show(emit(&sandbox, "small.yaml", "jenkins"));
    show(sandbox.run(&["matrix", "small.yaml", "--emit", "slurm", "--json"]));
    show(sandbox.run(&["--json", "matrix", "small.yaml", "--emit", "slurm"]));
    show(sandbox.run(&["matrix", "small.yaml", "-o", "ci.yml"]));
    sandbox.write("small.yaml", &small().replace("0.19.1", "0.19.0"));
    show(emit(&sandbox, "small.yaml", "kubernetes"));
    let unlocked = Sandbox::new();
    unlocked.write("small.yaml", &small());
    show(emit(&unlocked, "small.yaml", "kubernetes"));
    unlocked.write(
        "tagged.yaml",
        &small().replace("acme/small", "acme/small:1"),
    );
    show(emit(&unlocked, "tagged.yaml", "slurm"));
    unlocked.write(".stackforge/templates/ci/slurm.sh.hbs", "{{nothing}}\n");
    show(emit(&unlocked, "small.yaml", "slurm"));
    insta::assert_snapshot!("refusals", shown);
}
