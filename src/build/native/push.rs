//! Pushes an assembled image to a registry: under a tag, or into an index of variants.

use super::super::output::{facts, settings};
use super::super::{BuildError, Options};
use stackforge_distribute::publish::{self, PushRequest};
use stackforge_image::assemble::Assembled;
use stackforge_plan::Plan;
use stackforge_transfer::registry::Reference;
use std::path::Path;

pub(super) async fn push(
    image: &Assembled,
    reference: &Reference,
    options: &Options<'_>,
    blobs: &Path,
) -> Result<(), BuildError> {
    let request = PushRequest::of_assembled(image, blobs);
    publish::push(&request, reference, &settings(options)).await?;
    Ok(())
}

/// Pushes the image and enters it into the index as the plan's variant.
pub(super) async fn add(
    image: &Assembled,
    reference: &Reference,
    plan: &Plan,
    options: &Options<'_>,
    blobs: &Path,
) -> Result<(), BuildError> {
    let request = PushRequest::of_assembled(image, blobs);
    let facts = facts(&request.labels, options)?;
    let (name, settings) = (&plan.variant, settings(options));
    publish::add_variant(&request, reference, name, &facts, &settings).await?;
    Ok(())
}
