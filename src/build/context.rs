//! Makes the build context for BuildKit: the rendered Dockerfile and every file that its steps read.
//!
//! In: a [`Plan`], its base (in the engine or as a tar), wheels that are already compiled. Out: a
//! [`Context`], whose locked OS packages are files of the store.

use super::{BuildError, BuildEvent, Options, base, native, objects, recorded};
use crate::render::{self, BaseImage, Content, Context};
use stackforge_engine::{ContextEntry, Source};
use stackforge_image::store::Store;
use stackforge_plan::{Plan, Step};
use stackforge_stack::lock::PythonFile;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Fails if a Dockerfile cannot build the plan: its steps need a shell, and it cannot prune wheels.
pub(super) fn by_dockerfile(plan: &Plan) -> Result<(), BuildError> {
    match (plan.base().shell, plan.image().prune) {
        (true, false) => Ok(()),
        (false, _) => Err(BuildError::NoShell {
            base: plan.base().lock.name.clone(),
        }),
        (true, true) => Err(BuildError::Prunes),
    }
}

/// Returns a context that any machine can build: Dockerfile, scripts, OS packages and, for a bootstrapped
/// base, its root file system. The returned guard removes that file on drop.
pub async fn render_context(
    plan: &Plan,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<(Context, Option<base::Scratch>), BuildError> {
    base::fetch_packages(plan, options, on).await?;
    // The context may be built where there is no store, so it takes no compiled wheel from this one.
    let none = BTreeMap::new();
    fetch_sources(plan, &none, options, on).await?;
    if !plan.base().bootstrap {
        return Ok((
            rendered(plan, options, BaseImage::Named(String::new()), &none)?,
            None,
        ));
    }
    let tar = base::rootfs_tar(plan, options, on).await?;
    let context = rendered(plan, options, BaseImage::Tar(tar.path.clone()), &none)?;
    Ok((context, Some(tar)))
}

/// Fetches the sources that will be compiled. The context carries them, because `pip download` of a
/// source runs the source's code.
pub(super) async fn fetch_sources(
    plan: &Plan,
    compiled: &BTreeMap<String, PathBuf>,
    options: &Options<'_>,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<(), BuildError> {
    let mut to_compile = plan
        .compiles()
        .filter(|c| !compiled.contains_key(&c.library))
        .peekable();
    if to_compile.peek().is_some() {
        objects::fetch(plan, options, on).await;
    }
    let mut sources: Vec<_> = to_compile.filter_map(native::sdist).collect();
    sources.extend(direct(plan, options).cloned());
    if sources.is_empty() {
        return Ok(());
    }
    native::locked(&sources, "sources", options, on)
        .await
        .map(drop)
}

/// Returns the locked wheels that the stack names by their places.
fn direct<'a>(plan: &'a Plan, options: &Options<'a>) -> impl Iterator<Item = &'a PythonFile> {
    let libraries = options.stack.into_iter().flat_map(|s| &s.libraries);
    let named: BTreeSet<&str> = libraries
        .filter_map(|l| l.file.as_ref())
        .map(|file| file.name.as_str())
        .collect();
    plan.wheels()
        .filter(move |w| named.contains(w.file.as_str()))
}

/// Returns the compiled wheels that the store has, compiled here or fetched from the cache.
pub(super) fn compiled(plan: &Plan, store: &Store) -> BTreeMap<String, PathBuf> {
    let wheel = |step: &Step| {
        let digest = recorded::wheel(store, step)?;
        let file = store.names_of(&digest).into_iter().next()?;
        let path = store.named(&digest, &file).ok()?;
        Some((step.id.library()?.to_owned(), path))
    };
    plan.steps.iter().filter_map(wheel).collect()
}

pub(super) fn rendered(
    plan: &Plan,
    options: &Options<'_>,
    base: BaseImage,
    wheels: &BTreeMap<String, PathBuf>,
) -> Result<Context, BuildError> {
    by_dockerfile(plan)?;
    let named = |wheel: &PythonFile| {
        let path = options.store.named(&wheel.sha256, &wheel.file)?;
        Ok::<_, BuildError>((wheel.file.clone(), path))
    };
    let direct = direct(plan, options).map(named).collect::<Result<_, _>>()?;
    let compile_cache = objects::fetched(plan, options)?;
    Ok(render::render(
        plan,
        &render::Options {
            overlay: options.overlay,
            base,
            config: options.config,
            wheels,
            direct: &direct,
            compile_cache: compile_cache
                .as_ref()
                .map(|(name, path)| (*name, path.as_path())),
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
