//! A tag in the engine that moves from one image to another.

use super::Back;
use crate::UpdateError;
use stackforge_build::validate::Report;
use stackforge_build::{BuildError, ValidationRequest};
use stackforge_distribute::pull::{self, PullError};
use stackforge_engine::docker::Docker;
use stackforge_image::oci::Image;
use stackforge_image::store::Store;
use stackforge_types::Cancel;

/// Tag of the new image until it is taken or refused.
fn next(name: &str) -> String {
    format!("{name}-next")
}

/// Tag of the previous image, so that `docker image prune` does not remove it.
fn before_name(name: &str) -> String {
    format!("{name}-before")
}

async fn connect() -> Result<Docker, UpdateError> {
    Ok(Docker::connect(None).await?)
}

async fn id(docker: &Docker, name: &str) -> Result<Option<String>, UpdateError> {
    Ok(docker.image(name).await?.map(|image| image.id))
}

pub async fn current_id(name: &str) -> Result<Option<String>, UpdateError> {
    id(&connect().await?, name).await
}

pub async fn bring(
    name: &str,
    image: &Image,
    store: &Store,
    cancel: &Cancel,
) -> Result<String, UpdateError> {
    let docker = connect().await?;
    let next = next(name);
    let blobs = store.dir("blobs/sha256")?;
    let assembled = pull::assembled(image).ok_or(UpdateError::NoDocuments)?;
    pull::load(
        &docker,
        &assembled,
        std::slice::from_ref(&next),
        &blobs,
        cancel,
    )
    .await
    .map_err(PullError::from)?;
    id(&docker, &next)
        .await?
        .ok_or(UpdateError::NotLoaded(next))
}

pub async fn validate(
    id: &str,
    request: ValidationRequest,
    store: &Store,
    cancel: &Cancel,
    line: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, BuildError> {
    let docker = stackforge_build::noted(Docker::connect(None).await?, store).await;
    stackforge_build::validate_image(&docker, id, request, cancel, line).await
}

pub async fn switch(name: &str, id: &str, before: Option<&str>) -> Result<(), UpdateError> {
    let docker = connect().await?;
    if let Some(before) = before {
        let kept = before_name(name);
        let oldest = docker.image(&kept).await?.map(|image| image.id);
        // Docker removes an image with its last name, unless a container uses it.
        if oldest.is_some_and(|oldest| oldest != before && oldest != id)
            && let Err(error) = docker.remove_image(&kept).await
        {
            tracing::debug!(%error, "an old image stays");
        }
        docker.tag(before, &kept).await?;
    }
    Ok(docker.tag(id, name).await?)
}

/// Ends validations that a killed update left running: they use memory that the service needs.
pub async fn forget(name: &str) -> Result<(), UpdateError> {
    let docker = connect().await?;
    match docker.image(&next(name)).await? {
        Some(image) => Ok(docker.remove_runs(&image.id).await?),
        None => Ok(()),
    }
}

pub async fn back(name: &str, new: &str, before: Option<&str>) -> Result<Back, UpdateError> {
    let docker = connect().await?;
    let current_id = id(&docker, name).await?;
    if current_id.as_deref() == before {
        return Ok(Back::Done);
    }
    if current_id.as_deref() != Some(new) {
        return Ok(Back::Moved);
    }
    let Some(before) = before else {
        docker.remove_image(name).await?;
        return Ok(Back::Done);
    };
    if id(&docker, before).await?.is_none() {
        return Ok(Back::Gone);
    }
    docker.tag(before, name).await?;
    Ok(Back::Done)
}

pub async fn settle(name: &str) -> Result<(), UpdateError> {
    let docker = connect().await?;
    // Docker refuses if it is the last name of an image that a container runs. The next update reuses the tag.
    if let Err(error) = docker.remove_image(&next(name)).await {
        tracing::debug!(%error, "a name stays");
    }
    Ok(())
}
