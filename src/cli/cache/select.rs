//! Selects what a stack needs of the cache: the files of its lock and the results of its steps, of both engines.

use crate::cli::args::{Common, CompressionChoice};
use crate::cli::native::of_native;
use crate::cli::output::Failure;
use stackforge_build::native::planned;
use stackforge_image::store::{Selection, Store};
use stackforge_plan::project::Project;
use stackforge_stack::lock::PlatformLock;
use stackforge_stack::spec::Stack;
use stackforge_types::Digest;
use std::path::Path;

/// Selects for one variant, or for all.
pub fn of_stack(
    common: &Common,
    store: &Store,
    path: &Path,
    variant: Option<&str>,
) -> Result<Selection, Failure> {
    let project = Project::open(path, common.catalog.as_deref())?;
    let lock = project.required_lock()?;
    let stacks: Vec<Stack> = if variant.is_none() && project.file.single().is_none() {
        let expansion = project.variants()?;
        expansion.variants.into_iter().map(|v| v.stack).collect()
    } else {
        vec![project.choose(variant)?.stack]
    };
    let mut selection = Selection::default();
    for stack in stacks {
        let plan = project.planned(&stack, &lock)?.plan;
        let compile_cache = plan.tools().and_then(|t| t.compile_cache.as_ref());
        (selection.blobs).extend(compile_cache.map(|wheel| wheel.sha256.clone()));
        let compiled = plan.compiles();
        let objects = compiled.map(|compile| (plan.platform, compile.library.clone()));
        selection.objects.extend(objects);
        let mut plans = Vec::new();
        for compression in [CompressionChoice::Gzip, CompressionChoice::Zstd] {
            plans.push(planned(&plan, &of_native(compression)?, store));
        }
        for plan in plans.iter().chain([&plan]) {
            let keys = plan.steps.iter().map(|step| step.key.clone());
            selection.keys.extend(keys);
            selection.keys.insert(plan.image_key().clone());
        }
        // What `build` calls it where its user does not say.
        selection.images.insert(format!("{}:latest", plan.variant));
        selection
            .blobs
            .extend(lock.section(&stack).into_iter().flat_map(digests));
    }
    Ok(selection)
}

/// Returns the digest of every file in a section.
fn digests(section: &PlatformLock) -> Vec<Digest> {
    let builds = section.builds.iter().flat_map(|b| &b.requires);
    let python = section.wheels.iter().chain(&section.tools).chain(builds);
    let packages = (section.packages.iter())
        .chain(&section.builder_packages)
        .chain(&section.base.packages);
    let sources = section.builds.iter().filter_map(|b| match &b.source {
        stackforge_stack::lock::SourceLock::Sdist { sha256, .. } => Some(sha256),
        stackforge_stack::lock::SourceLock::Git { .. } => None,
    });
    python
        .map(|f| &f.sha256)
        .chain(packages.filter_map(|p| p.sha256.as_ref()))
        .chain(sources)
        .cloned()
        .collect()
}
