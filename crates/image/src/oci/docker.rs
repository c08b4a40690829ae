//! Reads the output of `docker save`: `manifest.json`, configurations and the layers' plain tars.

use super::error::OciError;
use super::image::{Image, check_layers, check_platform};
use super::layer::{Blob, Layer};
use super::parse::{self, Compression, Saved, malformed};
use super::place::Files;
use stackforge_binary::source::Source as _;
use stackforge_types::{Digest, Platform};

const LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";

pub(super) fn open(
    files: &Files,
    manifest: &[u8],
    reference: Option<&str>,
    platform: Option<Platform>,
) -> Result<Image, OciError> {
    let images = parse::saved(manifest)?;
    let mut chosen: Vec<&Saved> = images.iter().collect();
    if let Some(reference) = reference {
        chosen.retain(|image| is(image, reference));
        if chosen.is_empty() {
            return Err(OciError::NoReference {
                reference: reference.chars().take(200).collect(),
                available: images.iter().map(describe).collect(),
            });
        }
    }
    match chosen[..] {
        [image] => read(files, image, platform),
        [] => Err(malformed("manifest.json", "names no image")),
        _ => Err(OciError::Several(
            chosen.into_iter().map(describe).collect(),
        )),
    }
}

fn read(files: &Files, image: &Saved, platform: Option<Platform>) -> Result<Image, OciError> {
    let what = format!("configuration `{}`", image.config.escape_debug());
    let place = files
        .find(&image.config)?
        .ok_or_else(|| OciError::Missing(what.clone()))?;
    let bytes = place.read(&what)?;
    let digest = Digest::of(&bytes);
    if let Some(expected) = promised(&image.config)
        && expected != digest
    {
        return Err(OciError::Altered {
            what,
            expected,
            found: digest,
        });
    }
    let (config, diff_ids) = parse::config(&what, &bytes)?;
    check_platform(&config, platform)?;
    let names = image.layers.as_deref().unwrap_or_default();
    check_layers(&what, names.len(), diff_ids.len())?;
    let layers = names
        .iter()
        .zip(diff_ids)
        .map(|(name, diff_id)| layer(files, name, diff_id))
        .collect::<Result<_, _>>()?;
    Ok(Image {
        digest,
        config,
        layers,
        documents: None,
    })
}

fn layer(files: &Files, name: &str, diff_id: Digest) -> Result<Layer, OciError> {
    let what = || format!("layer `{}`", name.escape_debug());
    let place = files.find(name)?.ok_or_else(|| OciError::Missing(what()))?;
    let mut blob = place.open()?;
    let mut head = [0; 4];
    if blob.size() >= 4 {
        blob.read_at(0, &mut head)
            .map_err(|source| OciError::Bytes {
                what: what(),
                source,
            })?;
    }
    // `docker load` also takes compressed layers; only their first bytes tell the compression.
    let compression = match head {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] => Compression::Zstd,
        _ => Compression::None,
    };
    let media_type = match compression {
        Compression::None => LAYER.to_owned(),
        Compression::Gzip => format!("{LAYER}.gzip"),
        Compression::Zstd => format!("{LAYER}.zstd"),
    };
    Ok(Layer {
        blob: Some(Blob {
            place,
            compression,
            is_named: false,
        }),
        ..Layer::new(media_type, diff_id.clone(), diff_id, blob.size(), 0)
    })
}

/// The digest in the name of a configuration: `HEX.json`, or `blobs/sha256/HEX`.
fn promised(name: &str) -> Option<Digest> {
    let hex = match name.strip_prefix("blobs/sha256/") {
        Some(hex) => hex,
        None => name.strip_suffix(".json")?,
    };
    Digest::from_hex(hex).ok()
}

/// Whether `reference` names the image: by a whole name, its tag, its name without `:latest`, or the digest
/// of its configuration.
fn is(image: &Saved, reference: &str) -> bool {
    if let Ok(digest) = reference.parse::<Digest>() {
        return promised(&image.config) == Some(digest);
    }
    image.repo_tags.iter().flatten().any(|full| {
        full == reference
            || full.strip_prefix(reference) == Some(":latest")
            || full
                .rsplit_once(':')
                .is_some_and(|(_, tag)| tag == reference)
    })
}

fn describe(image: &Saved) -> String {
    let tags = image.repo_tags.as_deref().unwrap_or_default().join(", ");
    match promised(&image.config) {
        Some(digest) if tags.is_empty() => digest.to_string(),
        Some(digest) => format!("{tags} ({digest})"),
        None => tags,
    }
}
