//! Describes an image in a registry and the evidence that is attached to it.
//!
//! In: a reference. Out: an [`Inspection`], and a table of it. It counts signatures; only `verify` checks
//! whose they are.

use super::error::EvidenceError;
use super::image::{self, Found};
use super::kind::EvidenceKind;
use super::signature::{count, verify};
use super::trust::Trust;
use bytes::Bytes;
use serde::Serialize;
use stackforge_stack::labels;
use stackforge_transfer::registry::{Descriptor, Reference, Registry, Target};
use stackforge_types::Digest;
use stackforge_types::printable;
use std::fmt::Write as _;

/// Longest document of evidence, in bytes: the SBOM of a large stack has one megabyte.
const LARGEST: u64 = 64 << 20;

#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    pub reference: String,
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
    pub media_type: String,
    /// Number of signatures of the index, if the reference names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signatures: Option<usize>,
    pub images: Vec<Inspected>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Inspected {
    #[serde(flatten)]
    pub image: Found,
    /// Number of signatures; absent if the image is not in a registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signatures: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Vec<Evidence>>,
}

/// An artifact that refers to an image.
#[derive(Debug, Clone, Serialize)]
pub struct Evidence {
    /// `None` for a kind that stackforge does not make.
    pub kind: Option<EvidenceKind>,
    pub artifact_type: String,
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
}

fn as_text<S: serde::Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(digest)
}

pub async fn inspect(
    registry: &Registry,
    reference: &Reference,
) -> Result<Inspection, EvidenceError> {
    let named = image::named(registry, reference).await?;
    let repository = reference.repository();
    let mut images = Vec::with_capacity(named.images.len());
    for image in named.images {
        images.push(Inspected {
            signatures: Some(count(registry, repository, &image.digest).await?),
            evidence: Some(evidence(registry, reference, &image.digest).await?),
            image,
        });
    }
    let signatures = match (named.is_index, images.first()) {
        (false, Some(only)) => only.signatures,
        _ => Some(count(registry, repository, &named.manifest.digest).await?),
    };
    Ok(Inspection {
        reference: reference.to_string(),
        digest: named.manifest.digest,
        media_type: named.manifest.media_type,
        signatures,
        images,
    })
}

async fn evidence(
    registry: &Registry,
    reference: &Reference,
    image: &Digest,
) -> Result<Vec<Evidence>, EvidenceError> {
    let listed = registry.referrers(reference.repository(), image, None);
    let mut all: Vec<Evidence> = listed
        .await?
        .into_iter()
        .map(|descriptor| {
            let artifact_type = descriptor.artifact_type.unwrap_or_default();
            Evidence {
                kind: EvidenceKind::of_artifact_type(&artifact_type),
                artifact_type,
                digest: descriptor.digest,
            }
        })
        .collect();
    all.sort_by_key(|e| (e.kind.is_none(), e.kind, e.digest.to_string()));
    Ok(all)
}

/// Returns the newest document of a kind that is attached to an image, after verifying its digest. With a
/// key, fails if that key has not signed it.
pub async fn document(
    registry: &Registry,
    reference: &Reference,
    image: &Digest,
    kind: EvidenceKind,
    trust: Option<&Trust>,
) -> Result<Bytes, EvidenceError> {
    let none = || EvidenceError::NotAttached {
        reference: reference.to_string(),
        kind: kind.to_string(),
    };
    let repository = reference.repository();
    let listed = registry.referrers(repository, image, Some(kind.artifact_type()));
    // New artifacts are added at the end of the list.
    let last = listed.await?.pop().ok_or_else(none)?;
    if let Some(trust) = trust {
        verify(registry, reference, &last.digest, trust).await?;
    }
    let manifest = registry
        .manifest(repository, &Target::Digest(last.digest))
        .await?;
    let document: serde_json::Value = serde_json::from_slice(&manifest.bytes).unwrap_or_default();
    let layer = &document["layers"][0];
    let digest = layer["digest"].as_str().and_then(|d| d.parse().ok());
    let (Some(digest), Some(size)) = (digest, layer["size"].as_u64()) else {
        return Err(none());
    };
    let blob = Descriptor::of_blob(digest, size);
    Ok(registry.small_blob(repository, &blob, LARGEST).await?)
}

impl Inspection {
    /// Describes an image at rest or in an engine, where nothing can be attached to it.
    pub fn local(name: &str, image: Found) -> Self {
        Self {
            reference: name.to_owned(),
            digest: image.digest.clone(),
            media_type: image.descriptor.media_type.clone(),
            signatures: None,
            images: vec![Inspected {
                image,
                signatures: None,
                evidence: None,
            }],
        }
    }

    /// Returns a table for people that ends with a line break.
    pub fn table(&self) -> String {
        let mut out = format!("{}\n", printable::line(&self.reference));
        let what = match self.images.len() {
            1 if self.images[0].image.digest == self.digest => "image".to_owned(),
            n => format!("index of {n} images"),
        };
        let _ = writeln!(out, "  {what} {}{}", self.digest, signed(self.signatures));
        for one in &self.images {
            one.write_text(&mut out);
        }
        out
    }
}

fn signed(signatures: Option<usize>) -> String {
    match signatures {
        None => String::new(),
        Some(0) => ", not signed".to_owned(),
        Some(1) => ", 1 signature".to_owned(),
        Some(n) => format!(", {n} signatures"),
    }
}

impl Inspected {
    fn write_text(&self, out: &mut String) {
        let image = &self.image;
        let label = |name: &str| {
            let of = [&image.labels, &image.annotations];
            of.into_iter().find_map(|m| m.get(name)).map(String::as_str)
        };
        let sizes = [
            (image.sizes.packed, "packed"),
            (image.sizes.unpacked, "unpacked"),
        ];
        let sizes = sizes.map(|(n, word)| Some(format!(", {} MiB {word}", n?.div_ceil(1 << 20))));
        let sizes: String = sizes.into_iter().flatten().collect();
        let title = label("org.opencontainers.image.title").unwrap_or("image");
        let platform = short(&image.platform);
        let _ = writeln!(out, "\n{} {platform}{sizes}", short(title));
        let _ = writeln!(out, "  {}{}", image.digest, signed(self.signatures));
        let own = image.labels.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix(labels::PREFIX)?;
            Some((short(name), value))
        });
        let rows: Vec<(String, &String)> = own.collect();
        let width = rows.iter().map(|(n, _)| n.chars().count());
        let width = width.max().unwrap_or(0);
        for (name, value) in rows {
            let _ = writeln!(out, "  {name:width$}  {}", short(value));
        }
        let Some(evidence) = &self.evidence else {
            return;
        };
        if evidence.is_empty() {
            let _ = writeln!(out, "  nothing is attached");
        }
        for evidence in evidence {
            let what = match evidence.kind {
                Some(kind) => kind.about().to_owned(),
                None => short(&evidence.artifact_type),
            };
            let _ = writeln!(out, "  {what:20}  {}", evidence.digest);
        }
    }
}

/// Returns the start of a text from outside, on one line.
fn short(text: &str) -> String {
    let start: String = text.chars().take(200).collect();
    printable::line(&start).into_owned()
}
