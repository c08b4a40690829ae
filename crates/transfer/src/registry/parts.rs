//! Documents under one tag that many clients write.
//!
//! In: a part, and a function that merges parts. Out: a document under a tag with every existing part. Each
//! writer keeps its own part under its own tag, `TAG.DIGEST`, and rewrites the document until it has all
//! parts: if one writer overwrites another's part, it or the other finds that out and adds it again.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::manifest::Manifest;
use super::{Registry, RegistryError};
use stackforge_types::reference::{Repository, Tag, Target};

/// How often a document is written before a writer gives up.
const MOST_ATTEMPTS: u32 = 60;
/// Hex digits of a part's digest in its tag.
const SHORT: usize = 12;

/// A document merged from parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Media type of the document.
    pub media_type: String,
    /// The document's content.
    pub bytes: Bytes,
    /// Blobs that the document refers to and that are not pushed yet.
    pub blobs: Vec<Bytes>,
}

impl Registry {
    /// Adds `part` to the document under `tag`. `merge` gets the document and every existing part, and
    /// returns the merged document, or `None` if the document has all of them.
    ///
    /// # Errors
    /// If a push fails, `merge` fails (its text becomes the reason), or other writers win 60 times.
    pub async fn contribute(
        &self,
        repository: &Repository,
        tag: &Tag,
        part: &Manifest,
        merge: impl Fn(Option<&Manifest>, &[Manifest]) -> Result<Option<Merged>, String>,
    ) -> Result<(), RegistryError> {
        let own: Tag = format!("{tag}.{}", &part.digest.hex()[..SHORT]).parse()?;
        let target = Target::Tag(own);
        self.put_manifest(repository, &target, &part.media_type, &part.bytes)
            .await?;
        let whole = Target::Tag(tag.clone());
        let mut known = BTreeMap::new();
        let mut last = None;
        for attempt in 0..MOST_ATTEMPTS {
            let current = self.current(repository, &whole).await?;
            self.collect(repository, tag, &mut known).await?;
            let parts: Vec<Manifest> = known.values().cloned().collect();
            let merged = merge(current.as_ref(), &parts)
                .map_err(|reason| self.unusable(repository, &whole, reason))?;
            let Some(merged) = merged else {
                return Ok(());
            };
            for blob in merged.blobs {
                self.push_bytes(repository, blob).await?;
            }
            let expected = current.map(|manifest| manifest.digest);
            let (kind, bytes) = (&merged.media_type, &merged.bytes);
            match self
                .replace(repository, tag, expected.as_ref(), kind, bytes)
                .await
            {
                Ok(_) => {}
                Err(error @ RegistryError::Changed { .. }) => {
                    last = Some(error);
                    let most = 20 << attempt.min(6);
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(..most))).await;
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            let reason = "it changes faster than it can be written".to_owned();
            self.unusable(repository, &whole, reason)
        }))
    }

    /// Adds the parts of a document to `known`, by their tags; the part of a tag never changes.
    async fn collect(
        &self,
        repository: &Repository,
        tag: &Tag,
        known: &mut BTreeMap<Tag, Manifest>,
    ) -> Result<(), RegistryError> {
        let start = format!("{tag}.");
        let is_part = |tag: &Tag| {
            let rest = tag.as_str().strip_prefix(&start);
            rest.is_some_and(|r| r.len() == SHORT && r.bytes().all(|b| b.is_ascii_hexdigit()))
        };
        for tag in self.tags(repository).await?.into_iter().filter(is_part) {
            if known.contains_key(&tag) {
                continue;
            }
            let part = self.current(repository, &Target::Tag(tag.clone())).await?;
            if let Some(part) = part {
                known.insert(tag, part);
            }
        }
        Ok(())
    }

    fn unusable(&self, repository: &Repository, target: &Target, reason: String) -> RegistryError {
        RegistryError::Protocol {
            host: self.host().to_owned(),
            doing: format!("adding to `{repository}:{target}`"),
            reason,
        }
    }
}
