//! Parses the documents of an image into checked values. Nothing here opens a file.

use oci_spec::image::{Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::error::OciError;
use stackforge_types::Digest;

const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";

/// How a layer's tar is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// Gzip, of one member or several.
    Gzip,
    /// Zstandard, of one frame or several.
    Zstd,
}

/// What a descriptor in an index points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    Index,
    Manifest,
    Elsewhere,
}

pub(super) fn leads(descriptor: &Descriptor) -> Leads {
    match descriptor.media_type() {
        MediaType::ImageIndex => Leads::Index,
        MediaType::ImageManifest => Leads::Manifest,
        MediaType::Other(t) if t == DOCKER_LIST => Leads::Index,
        MediaType::Other(t) if t == DOCKER_MANIFEST => Leads::Manifest,
        _ => Leads::Elsewhere,
    }
}

/// The compression of a layer's tar.
///
/// # Errors
/// [`OciError::MediaType`] for other media types, and for a foreign layer, whose blob is kept elsewhere.
pub fn compression(layer: &Descriptor) -> Result<Compression, OciError> {
    let refused = |why| {
        Err(OciError::MediaType {
            what: format!("layer {}", layer.digest()),
            media_type: layer.media_type().to_string().escape_debug().to_string(),
            why,
        })
    };
    const FOREIGN: &str = "its content lies elsewhere; copy the image with its foreign layers";
    match layer.media_type() {
        MediaType::ImageLayer => Ok(Compression::None),
        MediaType::ImageLayerGzip => Ok(Compression::Gzip),
        MediaType::ImageLayerZstd => Ok(Compression::Zstd),
        MediaType::ImageLayerNonDistributable
        | MediaType::ImageLayerNonDistributableGzip
        | MediaType::ImageLayerNonDistributableZstd => refused(FOREIGN),
        MediaType::Other(t) if t.starts_with("application/vnd.docker.image.rootfs.foreign.") => {
            refused(FOREIGN)
        }
        MediaType::Other(t) => match t.strip_prefix(DOCKER_LAYER) {
            Some("") => Ok(Compression::None),
            Some(".gzip") => Ok(Compression::Gzip),
            Some(".zstd") => Ok(Compression::Zstd),
            _ => refused("which is not a known type of layer"),
        },
        _ => refused("which is not a known type of layer"),
    }
}

/// The digest of a descriptor.
///
/// # Errors
/// [`OciError::Algorithm`] if it is not SHA-256.
pub fn digest(descriptor: &Descriptor) -> Result<Digest, OciError> {
    let text = descriptor.digest().as_ref();
    text.parse()
        .map_err(|_| OciError::Algorithm(text.chars().take(200).collect()))
}

/// Checks the file `oci-layout`.
///
/// # Errors
/// If it does not parse, or is of a version other than 1.
pub fn layout(bytes: &[u8]) -> Result<(), OciError> {
    #[derive(Deserialize)]
    struct Layout {
        #[serde(rename = "imageLayoutVersion")]
        version: String,
    }
    let layout: Layout = json("oci-layout", bytes)?;
    if layout.version.starts_with("1.") {
        return Ok(());
    }
    Err(malformed(
        "oci-layout",
        format!("has the version `{}`, not 1", layout.version.escape_debug()),
    ))
}

/// Parses `index.json`, or a nested index. `what` names it in errors.
///
/// # Errors
/// If it does not parse, or is not an index.
pub fn index(what: &str, bytes: &[u8]) -> Result<ImageIndex, OciError> {
    let index: ImageIndex = json(what, bytes)?;
    version(what, index.schema_version())?;
    match index.media_type() {
        None | Some(MediaType::ImageIndex) => {}
        Some(MediaType::Other(t)) if t == DOCKER_LIST => {}
        Some(other) => return Err(wrong(what, other, "which is not an index")),
    }
    one_kind(what, bytes)?;
    Ok(index)
}

/// Parses an image's manifest. `what` names it in errors.
///
/// # Errors
/// If it does not parse, or is not an image's manifest.
pub fn manifest(what: &str, bytes: &[u8]) -> Result<ImageManifest, OciError> {
    let manifest: ImageManifest = json(what, bytes)?;
    version(what, manifest.schema_version())?;
    match manifest.media_type() {
        None | Some(MediaType::ImageManifest) => {}
        Some(MediaType::Other(t)) if t == DOCKER_MANIFEST => {}
        Some(other) => return Err(wrong(what, other, "which is not a manifest")),
    }
    one_kind(what, bytes)?;
    match manifest.config().media_type() {
        MediaType::ImageConfig => {}
        MediaType::Other(t) if t == DOCKER_CONFIG => {}
        other => {
            let what = format!("the configuration of {what}");
            return Err(wrong(&what, other, "so this is not an image"));
        }
    }
    Ok(manifest)
}

/// Parses a configuration; returns it and its diff IDs.
///
/// # Errors
/// If it does not parse, or a diff ID is not SHA-256.
pub fn config(what: &str, bytes: &[u8]) -> Result<(ImageConfiguration, Vec<Digest>), OciError> {
    let config: ImageConfiguration = json(what, bytes)?;
    if config.rootfs().typ() != "layers" {
        return Err(malformed(
            what,
            "has a root file system that is not of layers",
        ));
    }
    let diff_ids = config.rootfs().diff_ids().iter();
    let diff_ids = diff_ids
        .map(|id| {
            id.parse()
                .map_err(|_| OciError::Algorithm(id.chars().take(200).collect()))
        })
        .collect::<Result<_, _>>()?;
    Ok((config, diff_ids))
}

/// An image in the `manifest.json` that `docker save` writes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Saved {
    /// Path of the configuration in the archive.
    pub config: String,
    /// The names that the image was saved under.
    #[serde(default)]
    pub repo_tags: Option<Vec<String>>,
    /// Paths of the layers in the archive, lowest first.
    #[serde(default)]
    pub layers: Option<Vec<String>>,
}

/// Parses the `manifest.json` of `docker save`.
///
/// # Errors
/// If it does not parse.
pub fn saved(bytes: &[u8]) -> Result<Vec<Saved>, OciError> {
    json("manifest.json", bytes)
}

fn version(what: &str, version: u32) -> Result<(), OciError> {
    match version {
        2 => Ok(()),
        other => Err(malformed(
            what,
            format!("has the schema version {other}, not 2"),
        )),
    }
}

/// One document must not be an index to one program and a manifest to another (CVE-2021-41190).
fn one_kind(what: &str, bytes: &[u8]) -> Result<(), OciError> {
    #[derive(Deserialize)]
    struct Parts {
        manifests: Option<IgnoredAny>,
        layers: Option<IgnoredAny>,
        config: Option<IgnoredAny>,
        #[serde(rename = "fsLayers")]
        fs_layers: Option<IgnoredAny>,
    }
    let parts: Parts = json(what, bytes)?;
    let manifest = parts.layers.is_some() || parts.config.is_some();
    if parts.fs_layers.is_some() || (parts.manifests.is_some() && manifest) {
        return Err(malformed(what, "is an index and a manifest at once"));
    }
    Ok(())
}

fn json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, OciError> {
    serde_json::from_slice(bytes).map_err(|source| OciError::Json {
        what: what.to_owned(),
        source,
    })
}

pub(super) fn malformed(what: &str, problem: impl Into<String>) -> OciError {
    OciError::Malformed {
        what: what.to_owned(),
        problem: problem.into(),
    }
}

fn wrong(what: &str, media_type: &MediaType, why: &'static str) -> OciError {
    OciError::MediaType {
        what: what.to_owned(),
        media_type: media_type.to_string().chars().take(200).collect(),
        why,
    }
}
