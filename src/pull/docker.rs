//! An image of the store into Docker: only the layers that the engine lacks are sent.

use super::PullError;
use crate::assemble::{Assembled, output};
use crate::engine::docker::Docker;
use crate::engine::{Cancel, EngineError};
use std::path::Path;

/// Loads an image under each of `names`.
pub async fn load(
    docker: &Docker,
    image: &Assembled,
    names: &[String],
    blobs: &Path,
    cancel: &Cancel,
) -> Result<(), EngineError> {
    let diff_ids: Vec<String> = image.layers.iter().map(|l| l.diff_id.to_string()).collect();
    // A layer stands for those below it as well: only what an image begins with is there.
    let there = docker.layers_there(&diff_ids).await?;
    let load = |from: usize| {
        let (image, names, blobs) = (image.clone(), names.to_owned(), blobs.to_owned());
        docker.load(
            move |out| output::archive(&image, &names, &blobs, |n| n >= from, out),
            cancel,
        )
    };
    match load(there).await {
        // An engine that keeps images another way wants every file that the archive names.
        Err(_) if there > 0 && !cancel.is_cancelled() => load(0).await,
        other => other,
    }
}

/// Loads an image under `name`. What has the name there stays until the new one is whole; after that
/// `keep` such images stay, as `NAME-previous-1` and so on.
pub async fn replace(
    image: &Assembled,
    name: &str,
    keep: u32,
    blobs: &Path,
    cancel: &Cancel,
) -> Result<(), PullError> {
    let docker = Docker::connect(None).await?;
    let before = docker.image(name).await?.map(|image| image.id);
    load(&docker, image, &[name.to_owned()], blobs, cancel).await?;
    let now = docker.image(name).await?.map(|image| image.id);
    let Some(before) = before.filter(|before| Some(before) != now.as_ref()) else {
        return Ok(());
    };
    let place = |n: u32| format!("{name}-previous-{n}");
    let mut older = Some(before);
    for n in 1..=keep {
        let Some(id) = older.take() else { break };
        older = docker.image(&place(n)).await?.map(|image| image.id);
        docker.tag(&id, &place(n)).await?;
    }
    if let Some(oldest) = older {
        // It may have other names, or a container that runs: then it stays.
        if let Err(error) = docker.remove_image(&oldest).await {
            tracing::debug!(%error, "an old image stays");
        }
    }
    Ok(())
}
