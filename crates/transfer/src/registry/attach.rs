//! Attaches artifacts to a manifest.
//!
//! In: a subject and an artifact. Out: a manifest that refers to the subject, listed by the registry or, if
//! it has no referrers API, in the index of the fallback tag (specification, "Referrers Tag Schema"), which
//! several clients may write at once.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use stackforge_types::Digest;

use super::listing::fallback_tag;
use super::manifest::{Descriptor, MANIFEST_TYPES, Manifest};
use super::parts::Merged;
use super::payload::Payload;
use super::{Registry, RegistryError};
use stackforge_types::reference::{Repository, Target};

const INDEX: &str = MANIFEST_TYPES[0];
const IMAGE: &str = MANIFEST_TYPES[1];
/// Media type of the empty configuration, whose content is `{}`.
pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// One file that belongs to an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The kind of artifact: a media type that readers of the image look for.
    pub artifact_type: String,
    /// Media type of the file itself.
    pub media_type: String,
    /// File name, for programs that download it.
    pub title: String,
    /// The content of the file.
    pub bytes: Bytes,
    /// Annotations of the manifest that refers to the image.
    pub annotations: BTreeMap<String, String>,
}

impl Registry {
    /// Attaches an artifact to `subject`; attaching the same one again changes nothing.
    ///
    /// # Errors
    /// If a push fails, or other clients keep changing the fallback tag's index.
    pub async fn attach(
        &self,
        repository: &Repository,
        subject: &Descriptor,
        artifact: &Artifact,
    ) -> Result<Descriptor, RegistryError> {
        let manifest = manifest(subject, artifact);
        for bytes in [Bytes::from_static(b"{}"), artifact.bytes.clone()] {
            self.push_bytes(repository, bytes).await?;
        }
        let own = Target::Digest(manifest.digest.clone());
        let published = self
            .put_manifest(repository, &own, IMAGE, &manifest.bytes)
            .await?;
        if published.subject.is_none() {
            let tag = fallback_tag(&subject.digest)?;
            let merge = |current: Option<&Manifest>, parts: &[Manifest]| {
                listed(current, parts, &subject.digest)
            };
            self.contribute(repository, &tag, &manifest, merge).await?;
        }
        Ok(Descriptor {
            artifact_type: Some(artifact.artifact_type.clone()),
            annotations: artifact.annotations.clone(),
            ..manifest.descriptor()
        })
    }

    /// Pushes a small blob from memory; returns its descriptor.
    ///
    /// # Errors
    /// As [`Registry::push_blob`].
    pub async fn push_bytes(
        &self,
        repository: &Repository,
        bytes: Bytes,
    ) -> Result<Digest, RegistryError> {
        let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
        self.push_blob(repository, &digest, size, &Payload::Memory(bytes), &[])
            .await?;
        Ok(digest)
    }

    /// Reads a small blob whole and verifies it.
    ///
    /// # Errors
    /// If it is longer than `most` bytes, is missing, or has another digest.
    pub async fn small_blob(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        most: u64,
    ) -> Result<Bytes, RegistryError> {
        if blob.size > most {
            return Err(RegistryError::Protocol {
                host: self.host().to_owned(),
                doing: format!("reading blob {} of `{repository}`", blob.digest),
                reason: format!("it has {} bytes, more than {most}", blob.size),
            });
        }
        let mut reader = self.read_blob(repository, &blob.digest, blob.size);
        let mut bytes = Vec::new();
        while let Some(piece) = reader.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.into())
    }
}

fn manifest(subject: &Descriptor, artifact: &Artifact) -> Manifest {
    let mut document = json!({
        "schemaVersion": 2,
        "mediaType": IMAGE,
        "artifactType": artifact.artifact_type,
        "config": { "mediaType": EMPTY, "digest": Digest::of(b"{}").to_string(), "size": 2 },
        "layers": [{
            "mediaType": artifact.media_type,
            "digest": Digest::of(&artifact.bytes).to_string(),
            "size": artifact.bytes.len(),
            "annotations": { "org.opencontainers.image.title": artifact.title },
        }],
        "subject": {
            "mediaType": subject.media_type,
            "digest": subject.digest.to_string(),
            "size": subject.size,
        },
    });
    if !artifact.annotations.is_empty() {
        document["annotations"] = json!(artifact.annotations);
    }
    let bytes = Bytes::from(document.to_string());
    Manifest {
        digest: Digest::of(&bytes),
        bytes,
        media_type: IMAGE.to_owned(),
    }
}

/// The index with every part that refers to `subject` added, or `None` if it has them all. Entries of other
/// clients stay as they are.
fn listed(
    current: Option<&Manifest>,
    parts: &[Manifest],
    subject: &Digest,
) -> Result<Option<Merged>, String> {
    let mut index: Value = match current {
        Some(manifest) => serde_json::from_slice(&manifest.bytes).unwrap_or_default(),
        None => json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [] }),
    };
    let entries = index.get_mut("manifests").and_then(Value::as_array_mut);
    let Some(entries) = entries else {
        return Err("what is there is no index".to_owned());
    };
    let before = entries.len();
    for part in parts {
        let Ok(document) = serde_json::from_slice::<Value>(&part.bytes) else {
            continue;
        };
        let digest = part.digest.to_string();
        let is_listed = entries.iter().any(|e| e["digest"] == digest.as_str());
        if is_listed || document["subject"]["digest"] != subject.to_string() {
            continue;
        }
        let mut entry = json!({
            "mediaType": part.media_type,
            "digest": digest,
            "size": part.bytes.len(),
        });
        for key in ["artifactType", "annotations"] {
            if !document[key].is_null() {
                entry[key] = document[key].clone();
            }
        }
        entries.push(entry);
    }
    if entries.len() == before && current.is_some() {
        return Ok(None);
    }
    Ok(Some(Merged {
        media_type: INDEX.to_owned(),
        bytes: Bytes::from(index.to_string()),
        blobs: Vec::new(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str, subject: &Digest) -> Manifest {
        let subject = Descriptor::of_blob(subject.clone(), 3);
        let artifact = Artifact {
            artifact_type: "a/b".into(),
            media_type: "a/c".into(),
            title: "t".into(),
            bytes: Bytes::from(text.to_owned()),
            annotations: BTreeMap::from([("x".into(), "y".into())]),
        };
        manifest(&subject, &artifact)
    }

    fn index_manifest(bytes: Bytes) -> Manifest {
        Manifest {
            digest: Digest::of(&bytes),
            bytes,
            media_type: INDEX.into(),
        }
    }

    #[test]
    fn a_list_gets_what_it_lacks_and_keeps_what_it_has() {
        let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
        let parts = [part("a", &one), part("b", &one), part("c", &two)];
        let bytes = listed(None, &parts[..1], &one).unwrap().unwrap().bytes;
        let current = index_manifest(bytes);
        assert_eq!(listed(Some(&current), &parts[..1], &one), Ok(None));
        let merged = listed(Some(&current), &parts, &one).unwrap();
        let bytes = merged.unwrap().bytes;
        let index: Value = serde_json::from_slice(&bytes).unwrap();
        let entries = index["manifests"].as_array().unwrap();
        assert_eq!(entries.len(), 2, "the third refers to something else");
        assert_eq!(entries[1]["digest"], parts[1].digest.to_string());
        assert_eq!(entries[1]["artifactType"], "a/b");
        assert_eq!(entries[1]["annotations"]["x"], "y");
        assert_eq!(listed(Some(&index_manifest(bytes)), &parts, &one), Ok(None));
    }

    #[test]
    fn another_thing_under_the_tag_is_left_alone() {
        let one = Digest::of(b"1");
        for bytes in ["{}", "[]", "x", r#"{"manifests":{}}"#] {
            let other = index_manifest(Bytes::from(bytes));
            assert!(listed(Some(&other), &[], &one).is_err(), "{bytes}");
        }
    }
}
