//! Documents under one tag that many write.
//!
//! In: a part, and how parts become a whole. Out: a document under a tag with every part that there
//! is. Each writer keeps its own part under a tag of its own, `TAG.DIGEST`, and writes the whole until
//! it has all of them: what one overwrites it finds itself, or the other does.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::manifest::Manifest;
use super::{Registry, RegistryError};
use stackforge_types::reference::{Repository, Tag, Target};

/// How often a document is written before a writer gives up; each time somebody else was faster.
const MOST_ATTEMPTS: u32 = 60;
/// Hex digits of a part's digest in its tag.
const SHORT: usize = 12;

/// A whole document of many parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Of the whole document.
    pub media_type: String,
    /// The whole document.
    pub bytes: Bytes,
    /// What it refers to and nobody has pushed yet.
    pub blobs: Vec<Bytes>,
}

impl Registry {
    /// Brings `part` into the document under `tag`. `merge` is given the document and every part
    /// that there is, and makes the whole of them, or nothing when the document has all of them.
    ///
    /// # Errors
    /// If a push fails, `merge` does (its text becomes the reason), or others are faster 60 times.
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

    /// The parts of a document, by their tags; what one has does not change.
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
