//! Manifests: small JSON documents that name an image's other parts.
//!
//! In: a repository and a tag or digest. Out: the document's bytes, its verified digest and a media type
//! that agrees with the document; at most 4 MiB, the specification's bound.

use std::collections::BTreeMap;

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use serde::{Deserialize, Serialize};

use stackforge_types::Digest;

use super::endpoint::{Ask, Endpoint};
use super::{Registry, RegistryError};
use crate::failure::excerpt;
use crate::header;
use stackforge_types::reference::{Repository, Target};

pub(super) const LONGEST: u64 = 4 << 20;

/// Accepted media types: indexes and image manifests, of OCI and of Docker.
pub const MANIFEST_TYPES: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// A verified manifest or index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The document, byte for byte.
    pub bytes: Bytes,
    /// Digest of `bytes`.
    pub digest: Digest,
    /// One of [`MANIFEST_TYPES`].
    pub media_type: String,
}

/// A reference to a blob or a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type of the content.
    pub media_type: String,
    /// Digest of the content.
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
    /// Size of the content in bytes.
    pub size: u64,
    /// The kind of artifact, for a referrer of an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Annotations by key, of the OCI image specification or others.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

fn as_text<S: serde::Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(digest)
}

impl Descriptor {
    /// A descriptor of a blob whose media type does not matter.
    pub fn of_blob(digest: Digest, size: u64) -> Self {
        Self {
            media_type: "application/octet-stream".to_owned(),
            digest,
            size,
            artifact_type: None,
            annotations: BTreeMap::new(),
        }
    }
}

impl Manifest {
    /// The descriptor of this document.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor {
            media_type: self.media_type.clone(),
            ..Descriptor::of_blob(self.digest.clone(), self.bytes.len() as u64)
        }
    }
}

impl Registry {
    /// Reads the manifest of a tag or digest. A manifest that is read by digest is verified to have it.
    ///
    /// # Errors
    /// If it is missing, longer than 4 MiB, has another digest, or is of none of the [`MANIFEST_TYPES`].
    pub async fn manifest(
        &self,
        repository: &Repository,
        target: &Target,
    ) -> Result<Manifest, RegistryError> {
        let ask = self.about_manifest("reading", repository, target, "pull");
        self.read(|endpoint| {
            let ask = &ask;
            async move { get(&endpoint, ask, repository, target).await }
        })
        .await
    }

    /// Reads the descriptor of a tag or digest, without the manifest's bytes.
    ///
    /// # Errors
    /// If it is missing, or if the headers are incomplete and reading the manifest fails.
    pub async fn head(
        &self,
        repository: &Repository,
        target: &Target,
    ) -> Result<Descriptor, RegistryError> {
        let ask = self.about_manifest("looking up", repository, target, "pull");
        self.read(|endpoint| {
            let ask = &ask;
            async move { head(&endpoint, ask, repository, target).await }
        })
        .await
    }

    pub(super) fn about_manifest(
        &self,
        doing: &str,
        repository: &Repository,
        target: &Target,
        actions: &'static str,
    ) -> Ask {
        let separator = match target {
            Target::Tag(_) => ':',
            Target::Digest(_) => '@',
        };
        let what = format!("manifest `{repository}{separator}{target}`");
        self.ask(doing, what, repository, actions)
    }
}

pub(super) async fn get(
    endpoint: &Endpoint,
    ask: &Ask,
    repository: &Repository,
    target: &Target,
) -> Result<Manifest, RegistryError> {
    let url = endpoint.url(repository, &["manifests", &target.to_string()]);
    let response = endpoint
        .send(ask, |client| {
            client
                .get(url.clone())
                .header(ACCEPT, MANIFEST_TYPES.join(", "))
        })
        .await?;
    let headers = response.headers();
    let claimed = header::text(headers, "docker-content-digest").map(str::to_owned);
    let media_type = header::text(headers, CONTENT_TYPE.as_str()).map(essence);
    let bytes = endpoint.body(response, LONGEST, &ask.doing).await?;

    let digest = Digest::of(&bytes);
    let asked = match target {
        Target::Digest(asked) => Some(asked.clone()),
        // Another kind of digest cannot be compared, and need not be: a tag promises no digest.
        Target::Tag(_) => claimed.and_then(|text| text.parse().ok()),
    };
    if asked.is_some_and(|asked| asked != digest) {
        return Err(RegistryError::Corrupt {
            host: endpoint.host.clone(),
            doing: ask.doing.clone(),
            found: Box::new(digest),
        });
    }
    let media_type =
        settle(&bytes, media_type).map_err(|reason| endpoint.wrong(&ask.doing, reason))?;
    Ok(Manifest {
        bytes,
        digest,
        media_type,
    })
}

pub(super) async fn head(
    endpoint: &Endpoint,
    ask: &Ask,
    repository: &Repository,
    target: &Target,
) -> Result<Descriptor, RegistryError> {
    let url = endpoint.url(repository, &["manifests", &target.to_string()]);
    let response = endpoint
        .send(ask, |client| {
            client
                .head(url.clone())
                .header(ACCEPT, MANIFEST_TYPES.join(", "))
        })
        .await?;
    let headers = response.headers();
    let text = |name| header::text(headers, name);
    let digest = text("docker-content-digest").and_then(|text| text.parse::<Digest>().ok());
    let size = text(CONTENT_LENGTH.as_str()).and_then(|text| text.parse().ok());
    let media_type = text(CONTENT_TYPE.as_str()).map(essence);
    let same = |digest: &Digest| match target {
        Target::Digest(asked) => asked == digest,
        Target::Tag(_) => true,
    };
    match (digest, size, media_type) {
        (Some(digest), Some(size), Some(media_type))
            if same(&digest) && MANIFEST_TYPES.contains(&media_type.as_str()) =>
        {
            Ok(Descriptor {
                media_type,
                ..Descriptor::of_blob(digest, size)
            })
        }
        // These headers are optional; the document itself always has the facts.
        _ => Ok(get(endpoint, ask, repository, target).await?.descriptor()),
    }
}

/// A media type without its parameters, in lower case.
fn essence(value: &str) -> String {
    let (essence, _) = value.split_once(';').unwrap_or((value, ""));
    essence.trim().to_ascii_lowercase()
}

/// The media type of the header and the document, which must agree.
fn settle(bytes: &[u8], header: Option<String>) -> Result<String, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Document {
        media_type: Option<String>,
    }
    let document: Document =
        serde_json::from_slice(bytes).map_err(|_| "it is not a manifest".to_owned())?;
    let known = |text: &String| MANIFEST_TYPES.contains(&text.as_str());
    match (header.filter(known), document.media_type) {
        (Some(header), None) => Ok(header),
        (Some(header), Some(own)) if header == own => Ok(own),
        (None, Some(own)) if known(&own) => Ok(own),
        (Some(header), Some(own)) => Err(format!(
            "it is sent as `{header}` and calls itself `{}`",
            excerpt(&own)
        )),
        (None, own) => Err(format!(
            "its media type {} is neither an image's nor an index's",
            own.map_or("is unknown and".to_owned(), |own| format!(
                "`{}`",
                excerpt(&own)
            ))
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_and_the_document_must_agree() {
        let [index, image, ..] = MANIFEST_TYPES;
        let document = |own: &str| format!(r#"{{"schemaVersion":2,"mediaType":"{own}"}}"#);
        let settled =
            |text: &str, header: Option<&str>| settle(text.as_bytes(), header.map(essence)).ok();
        assert_eq!(settled("{}", Some(index)).as_deref(), Some(index));
        assert_eq!(
            settled(&document(image), Some(image)).as_deref(),
            Some(image)
        );
        assert_eq!(
            settled(&document(image), Some("application/json; charset=utf-8")).as_deref(),
            Some(image)
        );
        assert_eq!(settled(&document(image), None).as_deref(), Some(image));
        assert_eq!(settled(&document(image), Some(index)), None);
        assert_eq!(settled("{}", None), None);
        assert_eq!(settled("<html>", Some(index)), None);
        assert_eq!(settled(&document("a/b"), None), None);
    }
}
