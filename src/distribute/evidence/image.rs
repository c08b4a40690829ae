//! Reads the parts of a registry's image that evidence needs.
//!
//! In: a reference. Out: the manifest, or the manifests of an index, with facts from their configurations;
//! and small files from small layers. Large layers are never fetched.

use super::error::EvidenceError;
use super::signature::altered;
use flate2::read::MultiGzDecoder;
use serde::Serialize;
use serde_json::Value;
use stackforge_binary::tar::{MemberKind, Reader};
use stackforge_engine::ImageSize;
use stackforge_transfer::registry::{Descriptor, Manifest, Reference, Registry, Target};
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::io;
use std::io::{BufReader, Read};

/// Longest configuration, in bytes.
const MOST_CONFIG: u64 = 4 << 20;
/// Largest layer, in bytes, that is searched: reports are in layers of some kilobytes.
const LARGEST_LAYER: u64 = 4 << 20;
/// Most bytes that such a layer may decompress to.
const LARGEST_TAR: u64 = 64 << 20;
const LARGEST_FILE: u64 = 16 << 20;
/// Most manifests of an index that are read.
const MOST_IMAGES: usize = 1000;

/// A manifest for one platform.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    pub platform: String,
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
    /// Bytes of its layers: compressed, except for an engine that counts uncompressed bytes.
    pub size: u64,
    #[serde(flatten)]
    pub sizes: ImageSize,
    /// Annotations of its entry in an index.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    #[serde(skip)]
    pub descriptor: Descriptor,
    #[serde(skip)]
    layers: Vec<LayerBlob>,
}

#[derive(Debug, Clone)]
struct LayerBlob {
    media_type: String,
    digest: Digest,
    size: u64,
}

fn as_text<S: serde::Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(digest)
}

impl Found {
    /// Describes an image that is not in a registry.
    pub fn local(
        platform: String,
        digest: Digest,
        sizes: ImageSize,
        labels: BTreeMap<String, String>,
    ) -> Self {
        Self {
            platform,
            descriptor: Descriptor::of_blob(digest.clone(), 0),
            digest,
            size: sizes.bytes(),
            sizes,
            annotations: BTreeMap::new(),
            labels,
            layers: Vec::new(),
        }
    }
}

/// What a reference names: a manifest or an index, and its images.
#[derive(Debug, Clone)]
pub struct Named {
    pub manifest: Descriptor,
    pub is_index: bool,
    pub images: Vec<Found>,
}

/// Returns the manifest that a reference names, after verifying its digest.
pub async fn resolve(
    registry: &Registry,
    reference: &Reference,
) -> Result<Manifest, EvidenceError> {
    let found = registry
        .manifest(reference.repository(), &reference.target())
        .await;
    found.map_err(|e| altered(e, reference))
}

/// Reads what a reference names, and each image below it.
pub async fn named(registry: &Registry, reference: &Reference) -> Result<Named, EvidenceError> {
    let manifest = resolve(registry, reference).await?;
    let document = json(&manifest)?;
    let Some(entries) = document["manifests"].as_array() else {
        let image = found(registry, reference, &manifest, BTreeMap::new()).await?;
        return Ok(Named {
            manifest: manifest.descriptor(),
            is_index: false,
            images: vec![image],
        });
    };
    let mut images = Vec::new();
    for entry in entries.iter().take(MOST_IMAGES) {
        let platform = &entry["platform"];
        let is_image = entry["artifactType"].is_null() && platform["os"] != "unknown";
        let digest = entry["digest"].as_str().and_then(|d| d.parse().ok());
        let (true, Some(digest)) = (is_image, digest) else {
            continue;
        };
        let manifest = registry
            .manifest(reference.repository(), &Target::Digest(digest))
            .await
            .map_err(|e| altered(e, reference))?;
        let annotations = texts(&entry["annotations"]);
        images.push(found(registry, reference, &manifest, annotations).await?);
    }
    Ok(Named {
        manifest: manifest.descriptor(),
        is_index: true,
        images,
    })
}

async fn found(
    registry: &Registry,
    reference: &Reference,
    manifest: &Manifest,
    annotations: BTreeMap<String, String>,
) -> Result<Found, EvidenceError> {
    let document = json(manifest)?;
    let wrong = |problem: &str| EvidenceError::Malformed {
        what: format!("manifest {}", manifest.digest),
        problem: problem.to_owned(),
    };
    let blob = |value: &Value| {
        Some(LayerBlob {
            media_type: value["mediaType"].as_str()?.to_owned(),
            digest: value["digest"].as_str()?.parse().ok()?,
            size: value["size"].as_u64()?,
        })
    };
    let layers = document["layers"].as_array();
    let layers = layers.ok_or_else(|| wrong("it has no layers"))?;
    let layers: Option<Vec<LayerBlob>> = layers.iter().map(blob).collect();
    let layers = layers.ok_or_else(|| wrong("a layer of it has no digest or size"))?;
    let config = blob(&document["config"]);
    let config = config.ok_or_else(|| wrong("it has no configuration"))?;
    let config = Descriptor::of_blob(config.digest, config.size);
    let config = (registry
        .small_blob(reference.repository(), &config, MOST_CONFIG)
        .await)
        .map_err(|e| altered(e, reference))?;
    let config: Value = serde_json::from_slice(&config).unwrap_or_default();
    let text = |key: &str| config[key].as_str().unwrap_or("unknown");
    let size = layers.iter().map(|l| l.size).sum();
    Ok(Found {
        platform: format!("{}/{}", text("os"), text("architecture")),
        digest: manifest.digest.clone(),
        size,
        sizes: ImageSize::packed(size),
        annotations,
        labels: texts(&config["config"]["Labels"]),
        descriptor: manifest.descriptor(),
        layers,
    })
}

/// Reads small files from the image's small layers, the uppermost layer first. Returns them in the order of
/// `paths`, with `None` for a missing one.
pub async fn small_files<const N: usize>(
    registry: &Registry,
    reference: &Reference,
    image: &Found,
    paths: [&str; N],
) -> Result<[Option<Vec<u8>>; N], EvidenceError> {
    let mut files = [const { None }; N];
    for layer in image.layers.iter().rev() {
        if files.iter().all(Option::is_some) {
            break;
        }
        if layer.size > LARGEST_LAYER {
            continue;
        }
        let blob = Descriptor::of_blob(layer.digest.clone(), layer.size);
        let bytes = (registry
            .small_blob(reference.repository(), &blob, LARGEST_LAYER)
            .await)
            .map_err(|e| altered(e, reference))?;
        let malformed = |problem| EvidenceError::Malformed {
            what: format!("layer {}", layer.digest),
            problem,
        };
        let tar = unpacked(&layer.media_type, &bytes).map_err(|e| malformed(e.to_string()))?;
        if let Some(tar) = tar {
            take(tar, &paths, &mut files).map_err(malformed)?;
        }
    }
    Ok(files)
}

/// Decompresses a layer. `None` for a media type that is not a layer's.
fn unpacked<'a>(media_type: &str, bytes: &'a [u8]) -> io::Result<Option<Box<dyn Read + 'a>>> {
    Ok(Some(match media_type.rsplit(['.', '+']).next() {
        Some("gzip") => Box::new(MultiGzDecoder::new(bytes)),
        Some("zstd") => Box::new(zstd::Decoder::with_buffer(bytes)?),
        Some("tar") => Box::new(bytes),
        _ => return Ok(None),
    }))
}

fn take(tar: impl Read, paths: &[&str], files: &mut [Option<Vec<u8>>]) -> Result<(), String> {
    let mut reader = Reader::new(BufReader::new(tar.take(LARGEST_TAR)));
    while let Some(entry) = reader.next().map_err(|e| e.to_string())? {
        let path = entry.header.path.trim_start_matches("./");
        let place = paths
            .iter()
            .position(|p| p.trim_start_matches('/') == path.trim_start_matches('/'));
        let Some(place) = place.filter(|n| files[*n].is_none()) else {
            continue;
        };
        if entry.header.kind != MemberKind::File || entry.header.size > LARGEST_FILE {
            continue;
        }
        let mut bytes = Vec::new();
        (entry.take(LARGEST_FILE).read_to_end(&mut bytes)).map_err(|e| e.to_string())?;
        files[place] = Some(bytes);
    }
    Ok(())
}

fn json(manifest: &Manifest) -> Result<Value, EvidenceError> {
    serde_json::from_slice(&manifest.bytes).map_err(|e| EvidenceError::Malformed {
        what: format!("manifest {}", manifest.digest),
        problem: e.to_string(),
    })
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    let pairs = value.as_object().into_iter().flatten();
    pairs
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}
