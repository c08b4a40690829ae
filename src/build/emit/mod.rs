//! Writes pipelines that build every variant of a stack: for CI services and for clusters.
//!
//! In: a [`Request`]: a stack, its variants, and the name that the pipeline will give the file. Out: the text
//! of one file, from the templates `ci/`, which a user's directory may replace. The pipeline calls stackforge
//! with existing flags, and nothing in it depends on the machine that wrote it. Never writes a file; needs no
//! engine and no network.

mod error;
mod kubernetes;
mod needs;
mod repository;

use crate::render;
use serde_json::{Value, json};
use stackforge_stack::matrix::{Variant, build_order};
use stackforge_stack::spec::{Platform, Stack};
use stackforge_types::reference::image_reference;
use std::path::Path;

pub use error::EmitError;

/// What runs the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Github,
    Gitlab,
    Slurm,
    Kubernetes,
}

impl Format {
    pub const ALL: [Self; 4] = [Self::Github, Self::Gitlab, Self::Slurm, Self::Kubernetes];

    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::Gitlab => "gitlab",
            Self::Slurm => "slurm",
            Self::Kubernetes => "kubernetes",
        }
    }

    fn template(self) -> &'static str {
        match self {
            Self::Github => "ci/github.yml.hbs",
            Self::Gitlab => "ci/gitlab.yml.hbs",
            Self::Slurm => "ci/slurm.sh.hbs",
            Self::Kubernetes => "ci/kubernetes.yaml.hbs",
        }
    }
}

/// Builds that a cluster runs in parallel.
const AT_ONCE: usize = 8;

/// The input of a pipeline.
pub struct Request<'a> {
    pub stack: &'a Stack,
    /// Variants; at least one.
    pub variants: &'a [Variant],
    /// The stack file, as the command line named it.
    pub path: &'a str,
    /// The catalog's directory, if the command line named one.
    pub catalog: Option<&'a str>,
    /// The overlay of the embedded catalog: that directory, or the one beside the stack.
    pub overlay: Option<&'a Path>,
    /// Text of the stack's lock, if there is one.
    pub lock: Option<&'a str>,
}

/// Variants of one platform, which machines of that architecture build.
struct Group<'a> {
    platform: Platform,
    /// In the order in which builds that share a cache compile least.
    variants: Vec<&'a Variant>,
    /// How many of the first compile what the others find.
    filling: usize,
}

/// Returns the text of the pipeline.
pub fn emit(format: Format, request: &Request<'_>) -> Result<String, EmitError> {
    let groups = groups(request.variants);
    let mut data = common(request, &groups)?;
    match format {
        Format::Github => repository::github(request, &groups, &mut data)?,
        Format::Gitlab => repository::gitlab(request, &groups, &mut data)?,
        Format::Slurm => {
            data["path"] = not_a_flag(request.path).into();
            data["catalog"] = request.catalog.map(not_a_flag).into();
        }
        Format::Kubernetes => kubernetes::add(request, &groups, &mut data)?,
    }
    let text = render::fill(format.template(), request.overlay, &data)?;
    Ok(marked(&text, format, request.path))
}

fn groups(variants: &[Variant]) -> Vec<Group<'_>> {
    let built = build_order(variants);
    let of = |platform| {
        let of_platform = |&&number: &&usize| variants[number].platform == platform;
        let numbers = built.order.iter().filter(of_platform);
        let filling = built.order[..built.filling].iter().filter(of_platform);
        Group {
            platform,
            variants: numbers.map(|&number| &variants[number]).collect(),
            filling: filling.count(),
        }
    };
    let groups = Platform::ALL.into_iter().map(of);
    groups.filter(|g| !g.variants.is_empty()).collect()
}

/// Returns the data for every template.
fn common(request: &Request<'_>, groups: &[Group<'_>]) -> Result<Value, EmitError> {
    let repository = request.stack.publish.as_ref().map(|p| &p.repository);
    for variant in request.variants {
        let reference = match repository {
            Some(repository) => format!("{repository}:{}", variant.name),
            None => format!("{}:latest", variant.name),
        };
        if !image_reference(&reference) {
            return Err(EmitError::Reference { reference });
        }
    }
    let cache = request.stack.cache.as_ref().map(|c| c.registry.as_str());
    if let Some(cache) = cache.filter(|c| !image_reference(&format!("{c}:latest"))) {
        let reference = cache.to_owned();
        return Err(EmitError::Reference { reference });
    }
    let whole = needs::most_demanding(request.variants.iter());
    let mut first = 0;
    let groups: Vec<Value> = groups
        .iter()
        .map(|g| {
            let needs = needs::most_demanding(g.variants.iter().copied());
            let names: Vec<&str> = g.variants.iter().map(|v| v.name.as_str()).collect();
            let value = json!({
                "platform": g.platform, "arch": g.platform.arch(), "machine": g.platform.machine(),
                "variants": names, "count": names.len(),
                "first": first, "last": first + names.len() - 1,
                "jobs": needs.jobs, "memory_gb": needs.memory_gb,
                "at_once": names.len().min(AT_ONCE),
                "filling": g.filling, "shares": g.filling < names.len(),
            });
            first += names.len();
            value
        })
        .collect();
    Ok(json!({
        "stack": request.stack.stack.value,
        // Without a matrix the stack itself is built, so no variant is named.
        "matrix": request.variants.iter().any(|v| v.stack.variant.is_some()),
        "groups": groups,
        "several_platforms": groups.len() > 1,
        "count": request.variants.len(),
        "last": request.variants.len().saturating_sub(1),
        "jobs": whole.jobs, "memory_gb": whole.memory_gb,
        "at_once": request.variants.len().min(AT_ONCE),
        "repository": repository,
        "registry": repository.map(|r| registry(r)),
        "cache": cache,
        // Another registry than that of the images, with another login.
        "cache_elsewhere": cache.map(registry).filter(|c| repository.is_none_or(|r| registry(r) != *c)),
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// Returns the host of an image repository.
fn registry(repository: &str) -> &str {
    match repository.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "docker.io",
    }
}

/// Changes a path so that no program takes it for a flag.
fn not_a_flag(path: &str) -> String {
    if path.starts_with('-') {
        format!("./{path}")
    } else {
        path.to_owned()
    }
}

const MARK: &str = "# Written by `stackforge matrix";

/// Adds a first comment line that says how the file was made.
fn marked(text: &str, format: Format, path: &str) -> String {
    let path = render::quote::comment(path);
    let mark = format!("{MARK} {path} --emit {}`.\n", format.name());
    match text.split_once('\n') {
        Some((first, rest)) if first.starts_with("#!") => format!("{first}\n{mark}{rest}"),
        _ => mark + text,
    }
}

/// Whether a file was written by this module and may be overwritten.
pub fn is_emitted(text: &str) -> bool {
    let mut lines = text.lines().filter(|l| !l.starts_with("#!"));
    lines.next().is_some_and(|l| l.starts_with(MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_emitted_is_known_again() {
        for text in ["a: 1\n", "#!/bin/bash\nid\n", ""] {
            let marked = marked(text, Format::Slurm, "a\n`b`");
            assert!(is_emitted(&marked), "{marked}");
            assert!(!is_emitted(text));
            assert_eq!(marked.starts_with("#!"), text.starts_with("#!"));
        }
    }

    #[test]
    fn registries_are_hosts() {
        for (repository, host) in [
            ("ghcr.io/acme/vllm", "ghcr.io"),
            ("localhost/a", "localhost"),
            ("localhost:5000/a", "localhost:5000"),
            ("acme/vllm", "docker.io"),
            ("vllm", "docker.io"),
        ] {
            assert_eq!(registry(repository), host);
        }
    }
}
