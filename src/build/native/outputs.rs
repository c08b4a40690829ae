//! Writes an assembled image to its outputs.

use super::super::base::io as failed_at;
use super::super::output::Output;
use super::super::{BuildError, BuildEvent, Options};
use stackforge_image::assemble::{Assembled, output};
use stackforge_image::store::Save;
use stackforge_plan::Plan;
use stackforge_types::Cancel;
use std::path::Path;
use tokio::task::block_in_place;

pub(super) async fn write(
    image: &Assembled,
    plan: &Plan,
    options: &Options<'_>,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<(), BuildError> {
    if options.outputs.is_empty() {
        return Ok(());
    }
    on(BuildEvent::Phase { name: "output" });
    let blobs = options.store.dir("blobs/sha256")?;
    for to in &options.outputs {
        match to {
            Output::Oci(directory) => block_in_place(|| {
                // Where possible, the layout's blobs are hard links to the store's.
                options.store.keeping_notes(image.blobs().values(), || {
                    for tag in &options.tags {
                        output::layout(image, tag, &blobs, directory)?;
                    }
                    Ok::<_, BuildError>(())
                })
            })?,
            Output::Archive(file) => block_in_place(|| archive(image, options, &blobs, file))?,
            Output::Docker => super::docker::load(image, options, &blobs, cancel).await?,
            Output::Registry(name) => super::push::push(image, name, options, &blobs).await?,
            Output::Index(name) => super::push::add(image, name, plan, options, &blobs).await?,
        }
    }
    Ok(())
}

/// Writes an archive. It gets its name only when it is complete.
fn archive(
    image: &Assembled,
    options: &Options<'_>,
    blobs: &Path,
    path: &Path,
) -> Result<(), BuildError> {
    let failed = |source| failed_at("write the archive", path, source);
    let file = Save::begin(path).map_err(failed)?;
    output::archive(image, &options.tags, blobs, |_| true, file.file()).map_err(failed)?;
    file.finish().map_err(failed)
}
