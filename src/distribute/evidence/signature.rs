//! Signatures of images in cosign's form, which cosign and admission controllers verify.
//!
//! In: a key and a manifest in a registry. Out: a signature under the tag `sha256-HEX.sig`, which is an
//! image whose layers are one signed statement each, with the signature in an annotation; or the statements
//! that a key has signed. The manifest's digest in the statement decides: a changed manifest, a statement
//! about another one, an unknown key and a name that is not trusted (`trust.rs`) are refused. A statement
//! contains its time, so that an older image can be told from a newer one.
//!
//! Source: "cosign, signature specification" of the sigstore project, `SIGNATURE_SPEC.md`.

use super::error::EvidenceError;
use super::key::PrivateKey;
use super::trust::Trust;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stackforge_transfer::registry::{
    Descriptor, Manifest, Merged, Reference, Registry, RegistryError, Repository, Tag, Target,
};
use stackforge_types::Digest;
use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const STATEMENT: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const ANNOTATION: &str = "dev.cosignproject.cosign/signature";
const TYPE: &str = "cosign container image signature";
/// Key in the optional part for the time of a signature, in seconds since 1970.
/// Source: "Atomic signature format" of the containers/image project, `optional.timestamp`.
const TIME: &str = "timestamp";
/// Longest statement, in bytes. One has some 250.
const LARGEST: u64 = 64 << 10;
/// Most signatures of one image that are checked.
const MOST: usize = 200;

/// A verified statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signed {
    /// Repository that the image was signed as.
    pub name: String,
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
    /// Time of the signature, in seconds since 1970, if the statement has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<u64>,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub optional: Value,
}

/// Returns the current time in seconds since 1970, or `SOURCE_DATE_EPOCH`.
pub fn now() -> u64 {
    let fixed = std::env::var("SOURCE_DATE_EPOCH").ok();
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH);
    fixed
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| clock().map_or(0, |since| since.as_secs()))
}

fn as_text<S: serde::Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(digest)
}

#[derive(Debug, Deserialize)]
struct Statement {
    critical: Critical,
    #[serde(default)]
    optional: Value,
}

#[derive(Debug, Deserialize)]
struct Critical {
    identity: Identity,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Identity {
    docker_reference: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Image {
    docker_manifest_digest: Digest,
}

/// A signature in the registry.
#[derive(Debug, Clone)]
pub struct StoredSignature {
    /// The blob that was signed.
    pub statement: Descriptor,
    /// The signature in DER.
    pub signature: Vec<u8>,
}

/// Signs an existing manifest. Other signatures stay, and the same signature is not added twice.
pub async fn sign(
    registry: &Registry,
    repository: &Repository,
    manifest: &Descriptor,
    key: &PrivateKey,
    time: Option<u64>,
) -> Result<Signed, EvidenceError> {
    let name = format!("{}/{repository}", registry.host());
    let optional = time.map_or(Value::Null, |time| json!({ TIME: time }));
    let statement = statement(&name, &manifest.digest, &optional);
    let layer = json!({
        "mediaType": STATEMENT,
        "digest": Digest::of(&statement).to_string(),
        "size": statement.len(),
        "annotations": { ANNOTATION: STANDARD.encode(key.sign(&statement)) },
    });
    let part = of_layers(vec![layer]);
    for blob in [vec![statement], part.blobs].concat() {
        registry.push_bytes(repository, blob).await?;
    }
    let part = Manifest {
        digest: Digest::of(&part.bytes),
        bytes: part.bytes,
        media_type: part.media_type,
    };
    let tag = tag(&manifest.digest)?;
    let merge = |current: Option<&Manifest>, parts: &[Manifest]| Ok(merged(current, parts));
    registry.contribute(repository, &tag, &part, merge).await?;
    Ok(Signed {
        name,
        digest: manifest.digest.clone(),
        time,
        optional,
    })
}

/// Returns the statements that the trusted key has signed about a manifest under a trusted name. Fails if
/// there is none.
pub async fn verify(
    registry: &Registry,
    reference: &Reference,
    digest: &Digest,
    trust: &Trust,
) -> Result<Vec<Signed>, EvidenceError> {
    let repository = reference.repository();
    let (name, digest_of) = (|| reference.to_string(), || digest.clone());
    let kept = stored_signatures(registry, repository, digest).await;
    let kept = kept.map_err(|e| match e {
        EvidenceError::Registry(e) => altered(e, reference),
        other => other,
    })?;
    if kept.is_empty() {
        return Err(EvidenceError::Unsigned {
            reference: name(),
            digest: digest_of(),
        });
    }
    let (mut good, mut named, mut other) = (Vec::new(), Vec::new(), None);
    for one in &kept {
        let statement = (registry
            .small_blob(repository, &one.statement, LARGEST)
            .await)
            .map_err(|e| altered(e, reference))?;
        if !trust.key.has_signed(&statement, &one.signature) {
            continue;
        }
        match read_statement(&statement) {
            Ok(signed) if signed.digest == *digest => {
                if trust.names.take(&signed.name, reference) {
                    good.push(signed)
                } else {
                    named.push(signed.name)
                }
            }
            Ok(signed) => other = Some(signed.digest.to_string()),
            Err(problem) => other = Some(problem),
        }
    }
    if good.is_empty() && !named.is_empty() {
        named.sort();
        named.dedup();
        return Err(EvidenceError::OtherName {
            reference: name(),
            wanted: trust.names.shown(reference).to_string(),
            signed: named,
        });
    }
    match (good.is_empty(), other) {
        (false, _) => Ok(good),
        (true, Some(signed)) => Err(EvidenceError::Changed {
            reference: name(),
            digest: digest_of(),
            signed,
        }),
        (true, None) => Err(EvidenceError::ForeignKey {
            reference: name(),
            digest: digest_of(),
            found: kept.len(),
        }),
    }
}

/// Verifies the first of `digests` that has a valid signature: an index leads to its images by digest, so
/// a signature of either will do.
pub async fn verify_any(
    registry: &Registry,
    reference: &Reference,
    digests: &[&Digest],
    trust: &Trust,
) -> Result<Vec<Signed>, EvidenceError> {
    let mut refused = None;
    for digest in digests {
        match verify(registry, reference, digest, trust).await {
            Ok(signed) => return Ok(signed),
            // Prefer an error about a bad signature to one about no signature.
            Err(EvidenceError::Unsigned { .. }) if refused.is_some() => {}
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| EvidenceError::Malformed {
        what: reference.to_string(),
        problem: "it leads to no manifest".to_owned(),
    }))
}

/// Counts the signatures of a manifest without verifying them.
pub async fn count(
    registry: &Registry,
    repository: &Repository,
    digest: &Digest,
) -> Result<usize, EvidenceError> {
    Ok(stored_signatures(registry, repository, digest).await?.len())
}

/// Reports content that does not match its digest as an altered image, not as a network error.
pub fn altered(error: RegistryError, reference: &Reference) -> EvidenceError {
    match error {
        source @ RegistryError::Corrupt { .. } => EvidenceError::Altered {
            reference: reference.to_string(),
            source: Box::new(source),
        },
        other => other.into(),
    }
}

fn tag(digest: &Digest) -> Result<Tag, EvidenceError> {
    Ok(format!("sha256-{}.sig", digest.hex()).parse::<Tag>()?)
}

fn statement(name: &str, digest: &Digest, optional: &Value) -> Bytes {
    let document = json!({
        "critical": {
            "identity": { "docker-reference": name },
            "image": { "docker-manifest-digest": digest.to_string() },
            "type": TYPE,
        },
        "optional": optional,
    });
    Bytes::from(document.to_string())
}

/// Parses a signed statement.
///
/// # Errors
/// The statement is not about an image; the text says what it is about.
pub fn read_statement(statement: &[u8]) -> Result<Signed, String> {
    let no = || "something that is not an image".to_owned();
    let statement: Statement = serde_json::from_slice(statement).map_err(|_| no())?;
    let critical = statement.critical;
    if critical.kind != TYPE {
        return Err(no());
    }
    Ok(Signed {
        time: statement.optional[TIME].as_u64(),
        name: critical.identity.docker_reference,
        digest: critical.image.docker_manifest_digest,
        optional: statement.optional,
    })
}

async fn stored_signatures(
    registry: &Registry,
    repository: &Repository,
    digest: &Digest,
) -> Result<Vec<StoredSignature>, EvidenceError> {
    let found = registry
        .manifest(repository, &Target::Tag(tag(digest)?))
        .await;
    let manifest = match found {
        Ok(manifest) => manifest,
        Err(e) if e.is_missing() => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    Ok(signatures(&manifest))
}

/// Returns the signatures in an image of signatures, the newest first, 200 at most. Other layers are skipped.
pub fn signatures(manifest: &Manifest) -> Vec<StoredSignature> {
    let layers = layers([manifest]);
    // New signatures are added at the end.
    let newest = layers.iter().rev().filter_map(of_layer);
    newest.take(MOST).collect()
}

fn of_layer(layer: &Value) -> Option<StoredSignature> {
    let text = |key: &str| layer[key].as_str();
    if text("mediaType")? != STATEMENT {
        return None;
    }
    let signature = layer["annotations"][ANNOTATION].as_str()?;
    Some(StoredSignature {
        statement: Descriptor::of_blob(text("digest")?.parse().ok()?, layer["size"].as_u64()?),
        signature: STANDARD.decode(signature).ok()?,
    })
}

/// Returns the layers of several manifests, each once.
fn layers<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    // A registry may return any number of layers, so look them up by hash.
    let mut seen: HashSet<Value> = HashSet::new();
    for manifest in manifests {
        let document: Value = serde_json::from_slice(&manifest.bytes).unwrap_or_default();
        for layer in document["layers"].as_array().into_iter().flatten() {
            if seen.insert(layer.clone()) {
                all.push(layer.clone());
            }
        }
    }
    all
}

fn merged(current: Option<&Manifest>, parts: &[Manifest]) -> Option<Merged> {
    let all = layers(current.into_iter().chain(parts));
    match current {
        Some(current) if layers([current]).len() == all.len() => None,
        _ => Some(of_layers(all)),
    }
}

/// Returns an image of signatures with the configuration that cosign gives it.
fn of_layers(layers: Vec<Value>) -> Merged {
    const NEVER: &str = "0001-01-01T00:00:00Z";
    let ids: Vec<&Value> = layers.iter().map(|layer| &layer["digest"]).collect();
    let history = vec![json!({ "created": NEVER }); layers.len()];
    let config = json!({
        "architecture": "",
        "config": {},
        "created": NEVER,
        "history": history,
        "os": "",
        "rootfs": { "type": "layers", "diff_ids": ids },
    });
    let config = Bytes::from(config.to_string());
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": IMAGE,
        "config": {
            "mediaType": CONFIG,
            "digest": Digest::of(&config).to_string(),
            "size": config.len(),
        },
        "layers": layers,
    });
    Merged {
        media_type: IMAGE.to_owned(),
        bytes: Bytes::from(manifest.to_string()),
        blobs: vec![config],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_statement_is_the_one_that_cosign_writes() {
        let digest = Digest::of(b"x");
        let text = statement("h:5000/a/b", &digest, &Value::Null);
        let expected = format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"h:5000/a/b"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"cosign container image signature"}},"optional":null}}"#
        );
        assert_eq!(text, expected);
        let signed = read_statement(&text).unwrap();
        assert_eq!(
            (signed.name.as_str(), &signed.digest),
            ("h:5000/a/b", &digest)
        );
        let timed = statement("h:5000/a/b", &digest, &json!({ TIME: 7 }));
        assert_eq!(read_statement(&timed).unwrap().time, Some(7));
        let other = expected.replace("container image", "blob");
        assert!(read_statement(other.as_bytes()).is_err());
    }

    #[test]
    fn signatures_are_added_and_never_lost() {
        let layer = |n: u8| json!({ "mediaType": STATEMENT, "digest": Digest::of(&[n]).to_string(), "size": 1, "annotations": { ANNOTATION: "AA==" } });
        let of = |layers| {
            let merged = of_layers(layers);
            Manifest {
                digest: Digest::of(&merged.bytes),
                bytes: merged.bytes,
                media_type: merged.media_type,
            }
        };
        let (one, two) = (of(vec![layer(1)]), of(vec![layer(2)]));
        let parts = [one.clone(), two];
        let both = merged(Some(&one), &parts).unwrap();
        let both = Manifest {
            digest: Digest::of(&both.bytes),
            bytes: both.bytes,
            media_type: both.media_type,
        };
        assert_eq!(layers([&both]), [layer(1), layer(2)]);
        assert_eq!(merged(Some(&both), &parts), None);
        assert_eq!(layers([&both]).iter().filter_map(of_layer).count(), 2);
    }

    proptest! {
        #[test]
        fn no_statement_and_no_layer_panics(text in "\\PC{0,120}") {
            let _ = read_statement(text.as_bytes());
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                let _ = of_layer(&value);
            }
        }
    }
}
