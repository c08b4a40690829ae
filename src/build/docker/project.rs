//! Builds the wheel of the app's own project in an engine, over the image of the Python environment.

use super::super::base::io as failed_at;
use super::super::native::locked;
use super::super::service::project;
use super::super::{BuildError, BuildEvent, Options};
use super::run::once;
use stackforge_engine::docker::Docker;
use stackforge_engine::{BuildRequest, ContextEntry, Source};
use stackforge_plan::Plan;
use stackforge_types::{Cancel, Digest};
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::task::block_in_place;

/// Folder of the script's inputs in the context.
const CONTEXT: &str = "project";
/// Longest name of a wheel's file, in bytes.
const LONGEST_NAME: usize = 255;

/// Builds the project's wheel, or finds it. `None` if the app is not installed. `below` is the environment's image.
/// Returns whether it was found, too.
pub(super) async fn wheel(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
    below: &str,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Option<(Digest, bool)>, BuildError> {
    let Some((step, project)) = plan.project() else {
        return Ok(None);
    };
    if let Some(wheel) = project::made(plan, options) {
        return Ok(Some((wheel, true)));
    }
    let start = Instant::now();
    let requires = locked(&project.requires, "what builds the app", options, on).await?;
    let temporary = docker.temporary(&format!("stackforge/project:{}", step.key.short()));
    let names = (below, temporary.as_str());
    let image = build(plan, docker, options, names, &requires, cancel, on).await;
    let taken = match image {
        Ok(()) => taken(plan, docker, options, &temporary, start).await,
        Err(e) => Err(e),
    };
    docker.remove_temporary(&temporary, taken.is_ok()).await?;
    Ok(Some((taken?, false)))
}

async fn build(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
    (below, temporary): (&str, &str),
    requires: &[PathBuf],
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<(), BuildError> {
    let scratch = options.store.scratch()?;
    let folder = scratch.path();
    block_in_place(|| project::lay(plan, options, requires, folder))?;
    let mut context = context(folder, requires);
    context.push(ContextEntry {
        path: "Dockerfile".into(),
        mode: 0o644,
        source: Source::Bytes(dockerfile(below).into_bytes()),
    });
    let request = BuildRequest {
        context,
        dockerfile: "Dockerfile".into(),
        tags: vec![temporary.to_owned()],
        network: Some("none".into()),
        no_cache: options.no_cache,
        ..BuildRequest::default()
    };
    let log = options.store.new_log(&plan.variant)?;
    once(docker, &request, &log, cancel, on).await.map(drop)
}

fn context(folder: &Path, requires: &[PathBuf]) -> Vec<ContextEntry> {
    let own = ["project.py", "project.json", "source.tar"].map(str::to_owned);
    let wheels = requires.iter().filter_map(|wheel| {
        let name = wheel.file_name()?.to_str()?;
        Some(format!("requires/{name}"))
    });
    let files = own.into_iter().chain(wheels);
    let entry = |name: String| ContextEntry {
        path: format!("{CONTEXT}/{name}"),
        mode: 0o644,
        source: Source::File(folder.join(name)),
    };
    files.map(entry).collect()
}

fn dockerfile(below: &str) -> String {
    // Cannot fail: texts always serialize.
    let command = serde_json::to_string(&project::command()).unwrap_or_default();
    let mount = format!(
        "--mount=type=bind,source={CONTEXT},target={}",
        project::INPUTS
    );
    format!("FROM {below} AS project\nUSER 0\nRUN {mount} {command}\n")
}

/// Reads and stores the wheel that the script left in the image.
async fn taken(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
    image: &str,
    start: Instant,
) -> Result<Digest, BuildError> {
    let none = || BuildError::Project {
        why: "its build left no wheel".to_owned(),
    };
    let name = docker.read_file(image, project::NAME, LONGEST_NAME).await?;
    let name = String::from_utf8(name.ok_or_else(none)?).map_err(|_| none())?;
    let path = format!("{}/{name}", project::WHEELS);
    let bytes = docker.read_file(image, &path, project::LARGEST).await?;
    let bytes = bytes.ok_or_else(none)?;
    let failed = |e| failed_at("write", Path::new("the app's wheel"), e);
    block_in_place(|| {
        let mut file = tempfile::tempfile_in(options.store.dir("tmp")?).map_err(failed)?;
        file.write_all(&bytes)
            .and_then(|()| file.rewind())
            .map_err(failed)?;
        project::keep(plan, options, &name, file, start)
    })
}
