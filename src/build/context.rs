//! What BuildKit is sent: the rendered Dockerfile, and everything that its steps read.
//!
//! In: a [`Plan`], its base in the engine or as a tar, wheels that are compiled already. Out: a
//! [`Context`]; the locked OS packages of it lie in the store.

use super::{BuildError, BuildEvent, Options, base, native};
use crate::plan::Plan;
use crate::render::{self, BaseImage, Content, Context};
use stackforge_engine::{ContextEntry, Source};
use stackforge_image::store::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Steps of a Dockerfile are shell programs, and install wheels as they are.
pub(super) fn by_dockerfile(plan: &Plan) -> Result<(), BuildError> {
    match (plan.parts.shell, plan.parts.prune) {
        (true, false) => Ok(()),
        (false, _) => Err(BuildError::NoShell {
            base: plan.parts.base.name.clone(),
        }),
        (true, true) => Err(BuildError::Prunes),
    }
}

/// The context for use anywhere: Dockerfile, scripts, OS packages and, for a bootstrapped
/// base, its root file system, which the returned guard keeps until it is dropped.
pub async fn render_context(
    plan: &Plan,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<(Context, Option<base::Scratch>), BuildError> {
    base::fetch_packages(plan, options, on).await?;
    // Whoever builds it may have no store.
    let none = BTreeMap::new();
    fetch_sources(plan, &none, options, on).await?;
    if !plan.parts.bootstrap {
        return Ok((
            rendered(plan, options, BaseImage::Named(String::new()), &none)?,
            None,
        ));
    }
    let tar = base::rootfs_tar(plan, options, on).await?;
    let context = rendered(plan, options, BaseImage::Tar(tar.path.clone()), &none)?;
    Ok((context, Some(tar)))
}

/// Fetches the sources of what is to be compiled: the context carries them, for whoever downloads a
/// source with pip runs its code.
pub(super) async fn fetch_sources(
    plan: &Plan,
    compiled: &BTreeMap<String, PathBuf>,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<(), BuildError> {
    let compiles = plan.parts.compiles.iter();
    let sources: Vec<_> = compiles
        .filter(|c| !compiled.contains_key(&c.library))
        .filter_map(native::sdist)
        .collect();
    if sources.is_empty() {
        return Ok(());
    }
    native::locked(&sources, "sources", options, on)
        .await
        .map(drop)
}

/// Wheels that were compiled before, here or, by the cache, elsewhere.
pub(super) fn compiled(
    plan: &Plan,
    store: &Store,
) -> Result<BTreeMap<String, PathBuf>, BuildError> {
    let mut wheels = BTreeMap::new();
    for compile in &plan.parts.compiles {
        let step = plan.compile(&compile.library);
        let action = step.and_then(|s| store.action(&s.key));
        let read = action.filter(|a| a.audit.is_some());
        let Some(digest) = read.as_ref().and_then(|a| a.outputs.get("wheel")) else {
            continue;
        };
        if let Some(file) = store.names_of(digest).first() {
            let path = store.named(digest, file)?;
            wheels.insert(compile.library.clone(), path);
        }
    }
    Ok(wheels)
}

pub(super) fn rendered(
    plan: &Plan,
    options: &Options<'_>,
    base: BaseImage,
    wheels: &BTreeMap<String, PathBuf>,
) -> Result<Context, BuildError> {
    by_dockerfile(plan)?;
    Ok(render::render(
        plan,
        &render::Options {
            overlay: options.overlay,
            base,
            config: options.config,
            wheels,
            debs: &options.store.dir("blobs/sha256")?,
        },
    )?)
}

pub(super) fn entries(context: Context) -> Vec<ContextEntry> {
    context
        .into_iter()
        .map(|(path, content)| ContextEntry {
            path,
            mode: 0o644,
            source: match content {
                Content::Text(text) => Source::Bytes(text.into_bytes()),
                Content::File(path) => Source::File(path),
            },
        })
        .collect()
}
