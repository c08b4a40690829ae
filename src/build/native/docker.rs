//! Loads an assembled image into Docker.

use super::super::{BuildError, Options};
use stackforge_distribute::pull;
use stackforge_engine::docker::Docker;
use stackforge_image::assemble::Assembled;
use stackforge_types::Cancel;
use std::path::Path;

pub(super) async fn load(
    image: &Assembled,
    options: &Options<'_>,
    blobs: &Path,
    cancel: &Cancel,
) -> Result<(), BuildError> {
    let docker = Docker::connect(None).await?;
    if let Some(existing) = docker.image(&image.config_digest.to_string()).await? {
        for tag in options.tags.iter().filter(|t| !existing.tags.contains(t)) {
            docker.tag(&existing.id, tag).await?;
        }
        return Ok(docker.expect(&options.tags, &[&existing.id]).await?);
    }
    Ok(pull::load(&docker, image, &options.tags, blobs, cancel).await?)
}
