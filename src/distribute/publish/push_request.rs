//! An image to be pushed: its documents, unchanged, and the files of its blobs.

use super::PublishError;
use bytes::Bytes;
use serde_json::Value;
use stackforge_image::assemble::{Assembled, MANIFEST};
use stackforge_image::oci::{Image, OciError};
use stackforge_stack::spec::Platform;
use stackforge_transfer::registry::{Payload, Repository};
use stackforge_types::Digest;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Prefix of containerd's layer annotation that names repositories of a registry with this layer.
const SOURCE: &str = "containerd.io/distribution.source.";

#[derive(Debug, Clone)]
pub struct PushRequest {
    pub platform: Platform,
    pub digest: Digest,
    pub media_type: String,
    pub manifest: Bytes,
    /// Labels of the image's configuration.
    pub labels: BTreeMap<String, String>,
    /// User of the image's configuration. `None` is root.
    pub user: Option<String>,
    pub(super) blobs: Vec<Blob>,
}

#[derive(Debug, Clone)]
pub(super) struct Blob {
    pub digest: Digest,
    pub size: u64,
    pub payload: Payload,
    annotations: BTreeMap<String, String>,
}

impl Blob {
    /// Returns the repositories of a registry that the layer's annotations name.
    pub fn sources(&self, host: &str) -> Vec<Repository> {
        let named = self.annotations.get(&format!("{SOURCE}{host}"));
        let names = named.into_iter().flat_map(|names| names.split(','));
        names.filter_map(|name| name.trim().parse().ok()).collect()
    }
}

impl PushRequest {
    /// Returns an image whose layers are files in `blobs`, named by their digests.
    pub fn of_assembled(image: &Assembled, blobs: &Path) -> Self {
        let layers = image.layers.iter().map(|layer| Blob {
            digest: layer.digest.clone(),
            size: layer.size,
            payload: Payload::File(blobs.join(layer.digest.hex())),
            annotations: layer.annotations.clone(),
        });
        Self {
            platform: image.platform,
            digest: image.digest.clone(),
            media_type: MANIFEST.to_owned(),
            manifest: image.manifest.clone().into(),
            labels: labels(&image.config),
            user: user(&image.config),
            blobs: with_config(layers, &image.config_digest, &image.config),
        }
    }

    /// Returns an image at rest.
    pub fn of_image(image: &Image) -> Result<Self, PublishError> {
        let documents = image.documents.as_ref().ok_or(PublishError::NoManifest)?;
        let shown = format!("{}/{}", image.config.os(), image.config.architecture());
        let platform = shown.parse().map_err(|_| PublishError::Platform(shown))?;
        let annotations = annotations(&documents.manifest);
        let layers = image.layers.iter().map(|layer| {
            let (path, offset) = layer.at()?;
            Ok(Blob {
                digest: layer.digest.clone(),
                size: layer.size,
                payload: match offset {
                    0 => Payload::File(path.to_owned()),
                    _ => Payload::Part(path.to_owned(), offset),
                },
                annotations: annotations.get(&layer.digest).cloned().unwrap_or_default(),
            })
        });
        let layers = layers.collect::<Result<Vec<_>, OciError>>()?.into_iter();
        Ok(Self {
            platform,
            digest: image.digest.clone(),
            media_type: documents.media_type.clone(),
            manifest: documents.manifest.clone().into(),
            labels: labels(&documents.config),
            user: user(&documents.config),
            blobs: with_config(layers, &documents.config_digest, &documents.config),
        })
    }

    /// Returns the bytes of all blobs.
    pub fn size(&self) -> u64 {
        self.blobs.iter().map(|blob| blob.size).sum()
    }
}

/// Lists each blob once: an image may have the same layer twice.
fn with_config(layers: impl Iterator<Item = Blob>, digest: &Digest, bytes: &[u8]) -> Vec<Blob> {
    let config = Blob {
        digest: digest.clone(),
        size: bytes.len() as u64,
        payload: Payload::Memory(Bytes::copy_from_slice(bytes)),
        annotations: BTreeMap::new(),
    };
    let mut seen = BTreeSet::new();
    let all = layers.chain([config]);
    all.filter(|blob| seen.insert(blob.digest.clone()))
        .collect()
}

fn labels(config: &[u8]) -> BTreeMap<String, String> {
    let config: Option<Value> = serde_json::from_slice(config).ok();
    let labels = config.map(|mut config| config["config"]["Labels"].take());
    labels
        .and_then(|labels| serde_json::from_value(labels).ok())
        .unwrap_or_default()
}

fn user(config: &[u8]) -> Option<String> {
    let config: Value = serde_json::from_slice(config).ok()?;
    let user = config["config"]["User"].as_str()?;
    (!user.is_empty()).then(|| user.to_owned())
}

/// Returns the annotations of each layer of a manifest.
fn annotations(manifest: &[u8]) -> BTreeMap<Digest, BTreeMap<String, String>> {
    let manifest: Value = serde_json::from_slice(manifest).unwrap_or_default();
    let layers = manifest["layers"].as_array().into_iter().flatten();
    let annotated = layers.filter_map(|layer| {
        let digest = layer["digest"].as_str()?.parse().ok()?;
        let annotations = serde_json::from_value(layer["annotations"].clone()).ok()?;
        Some((digest, annotations))
    });
    annotated.collect()
}
