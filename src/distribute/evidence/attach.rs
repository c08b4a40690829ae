//! Attaches evidence to an image in a registry.
//!
//! In: an image, its bill of materials and its reports. Out: one artifact for each, attached to the image's
//! manifest. The image has to be the plan's own, by the key in its labels.

use super::bill::{Bill, Subject};
use super::error::EvidenceError;
use super::image::{Found, Named, small_files};
use super::key::PrivateKey;
use super::kind::EvidenceKind;
use super::provenance::{Builder, Inputs, statement};
use super::signature::sign;
use super::{SbomFormat, sbom};
use bytes::Bytes;
use serde::Serialize;
use stackforge_image::store::Store;
use stackforge_stack::labels::KEY;
use stackforge_transfer::registry::{Artifact, Reference, Registry};
use stackforge_types::Digest;
use std::collections::BTreeMap;

/// Paths of the reports in an image.
#[derive(Debug, Clone, Copy)]
pub struct Paths<'a> {
    pub audit: &'a str,
    pub validation: &'a str,
}

/// The inputs of the evidence about one image.
pub struct Request<'a> {
    pub inputs: Inputs<'a>,
    pub builder: Builder,
    pub paths: Paths<'a>,
    pub store: &'a Store,
    /// A report of a validation, for instance on the device, instead of the one in the image or the store.
    pub validation: Option<Vec<u8>>,
    /// The key that signs each document.
    pub key: Option<PrivateKey>,
}

/// A document that was attached.
#[derive(Debug, Clone, Serialize)]
pub struct Attached {
    pub kind: EvidenceKind,
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
    pub size: u64,
}

fn as_text<S: serde::Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(digest)
}

/// Returns the image that the plan made, among those that a reference names.
pub fn own<'a>(
    bill: &Bill<'_>,
    reference: &Reference,
    named: &'a Named,
) -> Result<&'a Found, EvidenceError> {
    let key = bill.plan.key().to_string();
    let made = |image: &&Found| image.labels.get(KEY) == Some(&key);
    named.images.iter().find(made).ok_or_else(|| {
        let problem = match (&named.images[..], named.is_index) {
            ([only], false) => match only.labels.get(KEY) {
                Some(other) => format!("its label {KEY} is {other}, the plan's key {key}"),
                None => format!("it has no label {KEY}"),
            },
            (all, _) => format!("none of its {} images has the plan's key {key}", all.len()),
        };
        EvidenceError::OtherStack {
            reference: reference.to_string(),
            stack: bill.plan.variant.clone(),
            problem,
        }
    })
}

/// Attaches all available evidence to an image.
pub async fn attach(
    registry: &Registry,
    reference: &Reference,
    bill: &mut Bill<'_>,
    image: &Found,
    request: &Request<'_>,
) -> Result<Vec<Attached>, EvidenceError> {
    let subject = Subject {
        name: format!("{}/{}", reference.host(), reference.repository()),
        digest: image.digest.clone(),
    };
    bill.image = Some(subject.clone());
    let statement = statement(bill, &subject, &request.inputs, &request.builder);
    let paths = [request.paths.audit, request.paths.validation];
    let [audit, validation] = small_files(registry, reference, image, paths).await?;
    let validation = (request.validation.clone())
        .or(validation)
        .or_else(|| remembered(request.store, &image.digest));
    let documents = [
        (
            EvidenceKind::Spdx,
            Some(sbom(bill, SbomFormat::Spdx).into_bytes()),
        ),
        (
            EvidenceKind::CycloneDx,
            Some(sbom(bill, SbomFormat::CycloneDx).into_bytes()),
        ),
        (
            EvidenceKind::Provenance,
            Some(statement.to_string().into_bytes()),
        ),
        (EvidenceKind::Audit, audit),
        (EvidenceKind::Validation, validation),
    ];
    let mut attached = Vec::new();
    for (kind, bytes) in documents {
        let Some(bytes) = bytes else { continue };
        let artifact = artifact(kind, bytes, &bill.plan.variant);
        let descriptor = registry
            .attach(reference.repository(), &image.descriptor, &artifact)
            .await?;
        if let Some(key) = &request.key {
            // The statement has no time, so attaching again gives the same statement.
            sign(registry, reference.repository(), &descriptor, key, None).await?;
        }
        attached.push(Attached {
            kind,
            digest: descriptor.digest,
            size: artifact.bytes.len() as u64,
        });
    }
    Ok(attached)
}

fn artifact(kind: EvidenceKind, bytes: Vec<u8>, variant: &str) -> Artifact {
    let mut annotations = BTreeMap::new();
    if kind == EvidenceKind::Provenance {
        let predicate = super::PREDICATE.to_owned();
        annotations.insert("in-toto.io/predicate-type".to_owned(), predicate);
    }
    Artifact {
        artifact_type: kind.artifact_type().to_owned(),
        media_type: kind.artifact_type().to_owned(),
        title: format!("{variant}.{}", kind.ending()),
        bytes: Bytes::from(bytes),
        annotations,
    }
}

/// Returns the report of the build on this machine. The native engine does not put it into the image, whose
/// digest would then differ from machine to machine.
fn remembered(store: &Store, image: &Digest) -> Option<Vec<u8>> {
    let action = store.action_of_image(image)?;
    serde_json::to_vec_pretty(&action.report?).ok()
}
