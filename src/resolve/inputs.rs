//! The inputs that a lock is made from, by key, as short texts for messages.
//!
//! In: stack, catalog and target. Out: a map; if two maps are equal, the lock still fits. Needs no network
//! and no disk. A value that may hold a host or a credential is replaced by its digest.

use super::requirements::{Need, needs};
use stackforge_stack::catalog::{BuildSource, Catalog, Image, RULES};
use stackforge_stack::spec::{From, Stack, Wanted};
use stackforge_stack::target::Target;
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::fmt::Debug;

pub fn inputs(stack: &Stack, catalog: &Catalog, target: &Target<'_>) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut put = |key: &str, value: String| {
        if !value.is_empty() {
            out.insert(key.to_owned(), value);
        }
    };
    put("rules", RULES.to_string());
    put("base", stack.base.value.clone());
    put("platform", stack.platform.value.to_string());
    put("python", stack.python.value.to_string());
    put("jit", stack.jit.to_string());
    if !stack.os_libraries {
        put("os_libraries", "false".to_owned());
    }
    let sms: Vec<String> = target
        .sms
        .iter()
        .map(|s| format!("sm_{}", s.digits()))
        .collect();
    put("gpu", sms.join(" "));
    let words = |items: &[stackforge_stack::spec::At<String>]| {
        items.iter().map(|i| i.value.clone()).collect::<Vec<_>>()
    };
    put("packages", words(&stack.packages).join(" "));
    let of_builds = stack.libraries.iter().flat_map(|l| &l.build_packages);
    let of_builds: Vec<&str> = of_builds.map(String::as_str).collect();
    put("build_packages", of_builds.join(" "));
    // An override may contain a direct URL.
    put(
        "overrides",
        super::redact::redact(&words(&stack.overrides).join(" ")),
    );
    // A constraint may contain a direct URL.
    put(
        "constraints",
        super::redact::redact(&words(&stack.constraints).join(", ")),
    );
    for (what, constraints) in [("app.requirements", false), ("app.constraints", true)] {
        let all: Vec<String> = super::asked_by_app(stack, constraints).collect();
        put(what, super::redact::redact(&all.join(", ")));
    }
    if let Some(project) = stack.app.as_ref().and_then(|app| app.project.as_ref()) {
        put(
            "app.build-system",
            super::redact::redact(&project.requires.join(", ")),
        );
    }
    let indexes = words(&stack.indexes);
    if !indexes.is_empty() || stack.overrides.iter().any(|o| o.value.contains("://")) {
        put("indexes", short(&(indexes, words(&stack.overrides))));
    }
    if let Some(image) = target.base.image() {
        put("image", image_digest(image));
        put("cuda", image.cuda.clone().unwrap_or_default());
    }
    if let Some(uv) = catalog.tool("uv") {
        put("tools.uv", uv.version.clone());
    }
    for need in needs(stack, target) {
        put(&format!("libraries.{}", need.name()), library(&need));
        if let Some(digest) = recipe_digest(&need) {
            put(&format!("recipes.{}", need.name()), digest);
        }
    }
    out
}

/// Returns the part of a library's entry that changes what is locked.
fn library(need: &Need<'_>) -> String {
    let library = need.library;
    let mut out = match &library.version {
        Wanted::Auto => "auto".to_owned(),
        Wanted::Specifier(s) if s.is_empty() => "any".to_owned(),
        Wanted::Specifier(s) => s.to_string(),
    };
    match library.from {
        From::Auto => {}
        From::Wheel => out.push_str(", from wheel"),
        From::Source => out.push_str(", from source"),
    }
    if !library.extras.is_empty() {
        out.push_str(&format!(", extras {}", library.extras.join(" ")));
    }
    if !library.build_requires.is_empty() {
        // A requirement may contain a direct URL.
        let requires = super::redact::redact(&library.build_requires.join(" "));
        out.push_str(&format!(", build requires {requires}"));
    }
    if let Some(git) = &library.git {
        out.push_str(&format!(", git {}", short(git)));
    }
    if let Some(reference) = &library.git_ref {
        out.push_str(&format!(", ref {reference}"));
    }
    if let Some(file) = &library.file {
        // An address may have a signature or credentials, which may change.
        out.push_str(&format!(", file {}", file.name));
        if let Some(sha256) = &file.sha256 {
            out.push_str(&format!(" {sha256}"));
        }
    }
    if let Some(index) = &library.index {
        out.push_str(&format!(", index {}", short(index)));
    }
    out
}

/// Returns the digest of the part of a recipe that changes what is locked.
fn recipe_digest(need: &Need<'_>) -> Option<String> {
    let recipe = need.recipe?;
    let packages: Vec<_> = recipe
        .runtime
        .iter()
        .map(|r| (&r.packages, &r.when))
        .collect();
    let build = need
        .build()
        .filter(|_| need.library.from != From::Wheel)
        .map(|b| {
            let source = match &b.source {
                BuildSource::Sdist => None,
                BuildSource::Git {
                    git,
                    git_ref,
                    submodules,
                } => Some((git, git_ref, submodules)),
            };
            let metadata: Vec<_> = b
                .metadata
                .iter()
                .map(|(version, m)| (version, &m.requires_python, &m.requires_dist))
                .collect();
            (
                source,
                &b.requires,
                &b.needs,
                &b.toolkit,
                &b.packages,
                metadata,
            )
        });
    let wheels = matches!(recipe.wheels, stackforge_stack::catalog::WheelSource::Index);
    Some(short(&(&recipe.distribution, wheels, packages, build)))
}

/// Returns the digest of the part of a base's file that changes what is locked. Existing locks hold it, so the
/// hashed text must stay: digests are part of it as plain text.
fn image_digest(image: &Image) -> String {
    let reference = image.reference.as_ref().map(|r| {
        let digests = r.digests.iter().map(|(name, d)| (name, d.to_string()));
        (&r.runtime, &r.devel, digests.collect::<BTreeMap<_, _>>())
    });
    let bootstrap = image
        .bootstrap
        .as_ref()
        .map(|b| (&b.suites, &b.components, &b.keyring, &b.include));
    let p = &image.packages;
    let roles = (
        &p.python,
        &p.python_dev,
        &p.c_compiler,
        &p.cxx_compiler,
        &p.git,
    );
    let minimal = image.bootstrap.as_ref().filter(|b| !b.essential);
    match minimal.map(|b| &b.exclude) {
        None => short(&(&image.libc, reference, bootstrap, roles)),
        Some(exclude) => short(&(&image.libc, reference, bootstrap, roles, exclude)),
    }
}

fn short(value: &impl Debug) -> String {
    Digest::of(format!("{value:?}").as_bytes())
        .short()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs_of(text: &str) -> BTreeMap<String, String> {
        let stack = stackforge_stack::spec::read("t.yaml", text)
            .unwrap()
            .pattern;
        let catalog = stackforge_stack::catalog::load(None).unwrap();
        let target = Target::of(&stack, &catalog).unwrap();
        inputs(&stack, &catalog, &target)
    }

    const STACK: &str = r#"stack: t
base: debian-bookworm
target: { platform: linux/amd64, gpu: [h100] }
python: "3.11"
libraries:
  torch: { version: "2.13.*" }
  six: { version: any, index: "https://u:secret@i.test/simple" }
overrides: ["x @ https://i.test/x-1-py3-none-any.whl"]
indexes: ["https://u:secret@i.test/simple"]
"#;

    fn stack() -> String {
        STACK.replace("version: any", "version: \">=1\"")
    }

    #[test]
    fn no_host_and_no_credential_is_in_them() {
        let text = format!("{:?}", inputs_of(&stack()));
        assert!(
            !text.contains("i.test") && !text.contains("secret"),
            "{text}"
        );
    }

    #[test]
    fn what_changes_files_changes_them_and_what_does_not_does_not() {
        let before = inputs_of(&stack());
        let same = stack().replace("\"2.13.*\"", "\"2.13.*\", jobs: 3, env: { A: b }");
        assert_eq!(inputs_of(&same), before);
        for (from, to, key) in [
            ("\"2.13.*\"", "\"2.12.*\"", "libraries.torch"),
            ("\"2.13.*\"", "\"2.13.*\", extras: [opt]", "libraries.torch"),
            ("[h100]", "[a100]", "gpu"),
            ("linux/amd64", "linux/arm64", "platform"),
            ("simple\"]", "other\"]", "indexes"),
            ("x-1-", "x-2-", "indexes"),
        ] {
            let now = inputs_of(&stack().replace(from, to));
            let keys: Vec<_> = now
                .keys()
                .filter(|k| now.get(*k) != before.get(*k))
                .collect();
            assert_eq!(keys, [key], "{from} → {to}");
        }
    }
}
