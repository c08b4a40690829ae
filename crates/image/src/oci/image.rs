//! An opened image: its documents, its layers and the files that they make.

use std::collections::BTreeMap;

use oci_spec::image::ImageConfiguration;

use super::choose;
use super::error::OciError;
use super::layer::Layer;
use super::merge::{Merge, Node};
use super::parse;
use stackforge_binary::tar::Reader;
use stackforge_types::{Digest, Platform};

/// An opened image. Its documents are verified, its layers are not yet.
#[derive(Debug, Clone)]
pub struct Image {
    /// Digest of the manifest; in the output of `docker save`, which has no manifest, of the configuration.
    pub digest: Digest,
    /// The configuration, as parsed.
    pub config: ImageConfiguration,
    /// The layers, lowest first.
    pub layers: Vec<Layer>,
    /// `None` for the output of `docker save`, which has no manifest.
    pub documents: Option<Documents>,
}

/// The image's manifest and configuration, byte for byte.
#[derive(Debug, Clone)]
pub struct Documents {
    /// Media type that the manifest states.
    pub media_type: String,
    /// The manifest, byte for byte.
    pub manifest: Vec<u8>,
    /// Digest of `config`.
    pub config_digest: Digest,
    /// The configuration, byte for byte.
    pub config: Vec<u8>,
}

impl Image {
    /// Checks that the configuration is for `platform`.
    ///
    /// # Errors
    /// [`OciError::NoPlatform`] if it is for another one.
    pub fn is_for(&self, platform: Platform) -> Result<(), OciError> {
        check_platform(&self.config, Some(platform))
    }

    /// Returns the image's files by path. Reads every layer to its end, so all of them are verified.
    ///
    /// # Errors
    /// If a layer is missing, altered or damaged, or cannot be applied over those below it.
    pub fn files(&self) -> Result<BTreeMap<String, Node>, OciError> {
        let mut merge = Merge::new();
        for layer in &self.layers {
            let digest = &layer.digest;
            let mut reader = Reader::new(layer.tar()?);
            loop {
                let entry = reader.next().map_err(|source| OciError::Layer {
                    digest: digest.clone(),
                    source,
                })?;
                let Some(entry) = entry else { break };
                merge.add(entry.header).map_err(|source| OciError::Merge {
                    digest: digest.clone(),
                    source,
                })?;
            }
            merge.end_layer();
        }
        Ok(merge.finish())
    }
}

/// Checks that a configuration is for `platform`. The platform that an index states may be wrong or missing.
///
/// # Errors
/// [`OciError::NoPlatform`] if it is for another one.
pub fn check_platform(
    config: &ImageConfiguration,
    wanted: Option<Platform>,
) -> Result<(), OciError> {
    match wanted {
        Some(platform) if !choose::is(config.os(), config.architecture(), platform) => {
            Err(OciError::NoPlatform {
                platform,
                available: vec![format!("{}/{}", config.os(), config.architecture())],
            })
        }
        _ => Ok(()),
    }
}

pub(super) fn check_layers(what: &str, layers: usize, diff_ids: usize) -> Result<(), OciError> {
    if layers == diff_ids {
        return Ok(());
    }
    let problem = format!("has {diff_ids} diff IDs for {layers} layers");
    Err(parse::malformed(what, problem))
}
