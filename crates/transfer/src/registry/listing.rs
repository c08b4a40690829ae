//! Lists a repository's tags, and the referrers of a manifest.
//!
//! Both lists come in pages. In a registry without the referrers API the referrers are an index under a tag
//! named after the digest (specification, "Referrers Tag Schema").

use std::collections::BTreeMap;

use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE, LINK};
use serde::Deserialize;

use stackforge_types::Digest;

use super::endpoint::{Ask, Endpoint};
use super::manifest::{self, Descriptor, MANIFEST_TYPES};
use super::{Registry, RegistryError};
use crate::header;
use stackforge_types::reference::{Repository, Tag, Target};

/// Most pages, each of at most 4 MiB.
const MOST_PAGES: usize = 1000;

impl Registry {
    /// Returns every tag, in the registry's order. Names that are not valid tags are left out.
    ///
    /// # Errors
    /// If the repository is missing or may not be read, or the list is damaged or has more than
    /// 1000 pages.
    pub async fn tags(&self, repository: &Repository) -> Result<Vec<Tag>, RegistryError> {
        #[derive(Deserialize)]
        struct Page {
            tags: Option<Vec<String>>,
        }
        let what = format!("tags of `{repository}`");
        let ask = self.ask("listing", what, repository, "pull");
        self.read(|endpoint| {
            let ask = &ask;
            async move {
                let mut url = endpoint.url(repository, &["tags", "list"]);
                url.set_query(Some("n=1000"));
                let mut tags = Vec::new();
                pages(&endpoint, ask, url, |bytes, _| {
                    let page: Page = serde_json::from_slice(bytes).ok()?;
                    let page = page.tags.unwrap_or_default();
                    tags.extend(page.iter().filter_map(|tag| tag.parse::<Tag>().ok()));
                    Some(())
                })
                .await?;
                Ok(tags)
            }
        })
        .await
    }

    /// Returns the referrers of a manifest, all or those of one artifact type. Empty if there are none.
    ///
    /// # Errors
    /// If the list may not be read, or is damaged or has more than 1000 pages.
    pub async fn referrers(
        &self,
        repository: &Repository,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, RegistryError> {
        let what = format!("referrers of `{repository}@{subject}`");
        let ask = self.ask("listing", what, repository, "pull");
        let mut found = self
            .read(|endpoint| {
                let ask = &ask;
                async move { referrers(&endpoint, ask, repository, subject, artifact_type).await }
            })
            .await?;
        // A registry may not support the filter.
        if artifact_type.is_some() {
            found.retain(|descriptor| descriptor.artifact_type.as_deref() == artifact_type);
        }
        Ok(found)
    }
}

/// The tag under which a registry without the API keeps the referrers of a manifest.
pub(super) fn fallback_tag(subject: &Digest) -> Result<Tag, RegistryError> {
    Ok(subject.to_string().replacen(':', "-", 1).parse()?)
}

async fn referrers(
    endpoint: &Endpoint,
    ask: &Ask,
    repository: &Repository,
    subject: &Digest,
    artifact_type: Option<&str>,
) -> Result<Vec<Descriptor>, RegistryError> {
    let mut url = endpoint.url(repository, &["referrers", &subject.to_string()]);
    if let Some(artifact_type) = artifact_type {
        url.query_pairs_mut()
            .append_pair("artifactType", artifact_type);
    }
    let mut found = Vec::new();
    let listed = pages(endpoint, ask, url, |bytes, media_type| {
        // Some servers answer an unknown path with an HTML page.
        if media_type != Some(MANIFEST_TYPES[0]) {
            return None;
        }
        found.extend(descriptors(bytes)?);
        Some(())
    })
    .await;
    match listed {
        Ok(()) => return Ok(found),
        Err(
            RegistryError::Missing { .. }
            | RegistryError::Protocol { .. }
            | RegistryError::Status {
                status: 400 | 405 | 501,
                ..
            },
        ) => {}
        Err(error) => return Err(error),
    }
    let target = Target::Tag(fallback_tag(subject)?);
    match manifest::get(endpoint, ask, repository, &target).await {
        Ok(index) => descriptors(&index.bytes)
            .ok_or_else(|| endpoint.wrong(&ask.doing, "it is not an index".to_owned())),
        Err(RegistryError::Missing { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The manifests of an index. `None` if it is not an index. An entry whose digest is not SHA-256 cannot be
/// fetched by it and is left out.
pub(super) fn descriptors(index: &[u8]) -> Option<Vec<Descriptor>> {
    #[derive(Deserialize)]
    struct Index {
        manifests: Vec<Entry>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry {
        media_type: String,
        digest: String,
        size: u64,
        artifact_type: Option<String>,
        #[serde(default)]
        annotations: Option<BTreeMap<String, String>>,
    }
    let index: Index = serde_json::from_slice(index).ok()?;
    let entries = index.manifests.into_iter().filter_map(|entry| {
        Some(Descriptor {
            media_type: entry.media_type,
            digest: entry.digest.parse().ok()?,
            size: entry.size,
            artifact_type: entry.artifact_type,
            annotations: entry.annotations.unwrap_or_default(),
        })
    });
    Some(entries.collect())
}

/// Reads every page from `url` on; `take` gets a page and its media type, and returns `None` for a page that
/// it cannot read.
async fn pages(
    endpoint: &Endpoint,
    ask: &Ask,
    mut url: Url,
    mut take: impl FnMut(&[u8], Option<&str>) -> Option<()>,
) -> Result<(), RegistryError> {
    for _ in 0..MOST_PAGES {
        let response = endpoint
            .send(ask, |client| {
                let accept = format!("{}, application/json", MANIFEST_TYPES[0]);
                client.get(url.clone()).header(ACCEPT, accept)
            })
            .await?;
        let headers = response.headers();
        let next = header::text(headers, LINK.as_str())
            .and_then(header::next_page)
            .map(|address| endpoint.follow(response.url(), address, &ask.doing))
            .transpose()?;
        let media_type = header::text(headers, CONTENT_TYPE.as_str()).map(|value| {
            value
                .split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        });
        let bytes = endpoint
            .body(response, manifest::LONGEST, &ask.doing)
            .await?;
        take(&bytes, media_type.as_deref())
            .ok_or_else(|| endpoint.wrong(&ask.doing, "it is not a list".to_owned()))?;
        match next {
            Some(next) if next != url => url = next,
            _ => return Ok(()),
        }
    }
    Err(endpoint.wrong(&ask.doing, "the list does not end".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_read_and_what_is_none_is_not() {
        let digest = Digest::of(b"x");
        let text = format!(
            r#"{{"schemaVersion":2,"manifests":[
                {{"mediaType":"m","digest":"{digest}","size":7,"artifactType":"a","annotations":null}},
                {{"mediaType":"m","digest":"sha512:00","size":7}}]}}"#
        );
        let found = descriptors(text.as_bytes()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].artifact_type.as_deref(), Some("a"));
        for bad in ["", "{}", "[]", r#"{"manifests":[{"size":-1}]}"#] {
            assert!(descriptors(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_fallback_tag_is_named_after_the_digest() {
        let digest = Digest::of(b"x");
        let tag = fallback_tag(&digest).unwrap();
        assert_eq!(tag.as_str(), format!("sha256-{}", digest.hex()));
    }
}
