//! Reads images at rest in place.
//!
//! In: a directory or a tar archive with an OCI image layout (image-spec 1.1), or the output of
//! `docker save`. Out: an [`Image`] with its configuration and its [`Layer`]s, each of which reads as a
//! plain tar, and the merged files of all layers ([`merge`]). Indexes, manifests and configurations are
//! bounded in size, and those with a digest are verified before they are parsed; a layer is verified while
//! it is read. An archive with both a layout and `docker save`'s manifest is read as a layout. Never writes,
//! never unpacks to disk, never follows a URL.

mod choose;
mod docker;
mod error;
mod image;
mod layer;
pub mod merge;
pub mod parse;
mod place;
mod stream;
#[cfg(test)]
mod tests;

use std::path::Path;

use oci_spec::image::Descriptor;

use image::check_layers;
use place::Files;
use stackforge_types::{Digest, Platform};

pub use error::OciError;
pub use image::{Documents, Image, check_platform};
pub use layer::Layer;
pub use merge::{Merge, MergeError, Node};
pub use place::MOST_JSON;
pub use stream::{Proof, Stream, Tar, Unproven};

/// Opens the image at `path` that `reference` names: by a tag, an annotation's name or a digest. Both
/// `reference` and `platform` may be omitted if there is only one image.
///
/// # Errors
/// If there is no such image or more than one, or a document is missing, damaged, altered or for
/// another platform.
pub fn open(
    path: &Path,
    reference: Option<&str>,
    platform: Option<Platform>,
) -> Result<Image, OciError> {
    let files = Files::open(path)?;
    if let (Some(layout), Some(index)) = (files.read("oci-layout")?, files.read("index.json")?) {
        parse::layout(&layout)?;
        let index = parse::index("index.json", &index)?;
        let choice = choose::choose(&files, &index, reference, platform)?;
        return image(&files, &choice, platform);
    }
    // The names in this file are paths that anyone could have written, so they are looked up in an archive
    // only.
    match (&files, files.read("manifest.json")?) {
        (Files::Archive(_), Some(manifest)) => docker::open(&files, &manifest, reference, platform),
        _ => Err(OciError::Unknown(path.to_owned())),
    }
}

/// Returns the digest of an index's manifest for a platform. Nested indexes are read below `path`.
///
/// # Errors
/// If there is no such manifest or more than one, or an index is damaged.
pub fn choose(path: &Path, index: &[u8], platform: Option<Platform>) -> Result<Digest, OciError> {
    let index = parse::index("the index", index)?;
    Ok(choose::choose(&Files::open(path)?, &index, None, platform)?.digest)
}

/// Opens the image whose manifest has this digest and size. Its blobs are below `path` as in a layout.
///
/// # Errors
/// If a document is missing, damaged or altered.
pub fn of_manifest(path: &Path, digest: &Digest, size: u64) -> Result<Image, OciError> {
    let choice = choose::Choice::of(digest, size)?;
    image(&Files::open(path)?, &choice, None)
}

fn image(
    files: &Files,
    choice: &choose::Choice,
    platform: Option<Platform>,
) -> Result<Image, OciError> {
    let document = |kind: &str, descriptor: &Descriptor| {
        let digest = parse::digest(descriptor)?;
        let what = format!("{kind} {digest}");
        let bytes = files
            .blob(&digest)?
            .verified(&what, &digest, descriptor.size())?;
        Ok::<_, OciError>((what, bytes))
    };
    let (what, manifest_bytes) = document("manifest", &choice.descriptor)?;
    let manifest = parse::manifest(&what, &manifest_bytes)?;
    let (what, bytes) = document("configuration", manifest.config())?;
    let (config, diff_ids) = parse::config(&what, &bytes)?;
    check_platform(&config, platform)?;
    check_layers(&what, manifest.layers().len(), diff_ids.len())?;
    let layers = manifest
        .layers()
        .iter()
        .zip(diff_ids)
        .map(|(descriptor, diff_id)| {
            // The media type is checked first: a foreign layer's blob is not in the layout.
            parse::compression(descriptor)?;
            let place = files.blob(&parse::digest(descriptor)?)?;
            Layer::of_descriptor(descriptor, diff_id, place)
        })
        .collect::<Result<_, OciError>>()?;
    Ok(Image {
        digest: choice.digest.clone(),
        config,
        layers,
        documents: Some(Documents {
            media_type: (manifest.media_type().as_ref())
                .unwrap_or(choice.descriptor.media_type())
                .to_string(),
            manifest: manifest_bytes,
            config_digest: parse::digest(manifest.config())?,
            config: bytes,
        }),
    })
}
