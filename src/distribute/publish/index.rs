//! Writes an index of variants under a tag, with several writers at the same time.
//!
//! In: a variant whose manifest is in the repository. Out: an index under `TAG` with this variant and
//! every other one. Registries have no conditional PUT, so the index never holds the only copy of an
//! entry: each variant first gets a tag of its own, `TAG-VARIANT`, for an index with its one entry. A
//! writer merges the entries of these tags and of the current index, writes the result, and reads the index
//! and the tags again until nothing is missing. The last writer lists the tags after writing, so a variant
//! whose tag came later belongs to a writer that has not finished. A writer that is killed between writing
//! and checking may drop others' entries; the next writer restores them from their tags.
//!
//! Docker, Podman and containerd take the first entry of their platform, so the variant that runs on most
//! machines is first.

use super::PublishError;
use super::variant::Variant;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use serde_json::{Value, json};
use stackforge_stack::labels;
use stackforge_transfer::registry::{
    MANIFEST_TYPES, Manifest, Registry, RegistryError, Repository, Tag, Target,
};
use stackforge_types::Digest;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub const INDEX: &str = MANIFEST_TYPES[0];
/// Tags that are read in parallel.
const AT_ONCE: usize = 8;
/// Writes before a writer gives up. A write is lost only to another writer that succeeded.
const MOST_TURNS: u32 = 200;
/// Longest tag, in characters, by the OCI distribution specification.
const LONGEST_TAG: usize = 128;

/// The location of an index.
pub struct Place<'a> {
    pub registry: &'a Registry,
    pub repository: &'a Repository,
    pub tag: &'a Tag,
}

/// The current state of an index.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    pub digest: Digest,
    pub variants: Vec<Variant>,
}

/// Returns the variants of an index, in the index's order.
pub fn variants(index: &[u8]) -> Vec<Variant> {
    entries(index).iter().filter_map(Variant::read).collect()
}

fn entries(index: &[u8]) -> Vec<Value> {
    let mut index: Value = serde_json::from_slice(index).unwrap_or_default();
    match index["manifests"].take() {
        Value::Array(entries) => entries,
        _ => Vec::new(),
    }
}

/// Returns the tag of one variant of the index at `index`.
pub fn tag_of(index: &Tag, variant: &str) -> Result<Tag, PublishError> {
    let wrong = || PublishError::Name(variant.chars().take(80).collect());
    let text = format!("{index}-{variant}");
    if variant.is_empty() || text.len() > LONGEST_TAG {
        return Err(wrong());
    }
    text.parse().map_err(|_| wrong())
}

impl Place<'_> {
    /// Returns the index. `None` if there is none.
    pub async fn read(&self) -> Result<Option<Manifest>, PublishError> {
        let target = Target::Tag(self.tag.clone());
        let found = self.registry.current(self.repository, &target).await?;
        match found {
            Some(manifest) if manifest.media_type != INDEX => {
                let name = format!("{}:{}", self.repository, self.tag);
                Err(PublishError::NotAnIndex(name))
            }
            found => Ok(found),
        }
    }

    /// Enters a variant, whose manifest has to be in the repository.
    pub async fn add(&self, own: &Tag, variant: &Variant) -> Result<Listed, PublishError> {
        let alone = document(
            vec![variant.entry()],
            json!({ labels::INDEX: self.tag.as_str() }),
        )?;
        let target = Target::Tag(own.clone());
        self.registry
            .put_manifest(self.repository, &target, INDEX, &alone)
            .await?;
        for turn in 0..MOST_TURNS {
            let before = self.read().await?;
            let bytes = self.merged(before.as_ref()).await?;
            let expected = before.as_ref().map(|manifest| &manifest.digest);
            // The index already has every entry.
            if expected == Some(&Digest::of(&bytes)) {
                return Ok(Listed {
                    digest: Digest::of(&bytes),
                    variants: variants(&bytes),
                });
            }
            let written = self
                .registry
                .replace(self.repository, self.tag, expected, INDEX, &bytes)
                .await;
            match written {
                Ok(_) => {}
                Err(RegistryError::Changed { .. }) => {
                    let longest = 20 * u64::from(turn.min(20) + 1);
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=longest))).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let name = format!("{}:{}", self.repository, self.tag);
        Err(PublishError::Busy(name))
    }

    /// Merges the entries of the current index with those of the variants' tags.
    async fn merged(&self, before: Option<&Manifest>) -> Result<Bytes, PublishError> {
        let mut all = before.map_or(Vec::new(), |manifest| entries(&manifest.bytes));
        let parts = self.parts().await?;
        all.retain(|entry| name(entry).is_none_or(|name| !parts.contains_key(name)));
        all.extend(parts.into_values());
        let mut seen = BTreeSet::new();
        all.retain(|entry| {
            seen.insert((entry["digest"].to_string(), name(entry).map(str::to_owned)))
        });
        all.sort_by_cached_key(rank);
        let annotations = before.and_then(|manifest| {
            let mut index: Value = serde_json::from_slice(&manifest.bytes).ok()?;
            Some(index["annotations"].take()).filter(Value::is_object)
        });
        document(all, annotations.unwrap_or_default())
    }

    /// Returns the entries at the variants' tags, by the variants' names.
    async fn parts(&self) -> Result<BTreeMap<String, Value>, PublishError> {
        let prefix = format!("{}-", self.tag);
        let tags = match self.registry.tags(self.repository).await {
            Err(error) if error.is_missing() => Vec::new(),
            tags => tags?,
        };
        let own = tags.into_iter();
        let own = own.filter(|tag| tag.as_str().starts_with(&prefix));
        let found: Vec<Option<(String, Value)>> = stream::iter(own)
            .map(|tag| async move {
                let target = Target::Tag(tag);
                let manifest = self.registry.current(self.repository, &target).await?;
                Ok::<_, RegistryError>(manifest.and_then(|m| self.part(&m)))
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns the one entry of a variant's tag. `None` if the tag belongs to another index.
    fn part(&self, manifest: &Manifest) -> Option<(String, Value)> {
        let index: Value = serde_json::from_slice(&manifest.bytes).ok()?;
        if index["annotations"][labels::INDEX].as_str() != Some(self.tag.as_str()) {
            return None;
        }
        let entry = index["manifests"].as_array()?.first()?;
        Some((name(entry)?.to_owned(), entry.clone()))
    }
}

fn name(entry: &Value) -> Option<&str> {
    entry["annotations"][labels::VARIANT].as_str()
}

fn document(manifests: Vec<Value>, annotations: Value) -> Result<Bytes, PublishError> {
    let mut index = json!({
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": manifests,
    });
    if annotations.is_object() {
        index["annotations"] = annotations;
    }
    let bytes = serde_json::to_vec(&index).map_err(PublishError::Json)?;
    Ok(bytes.into())
}

/// Sort key of an entry: within a platform, the variant that runs on most machines is first.
type Rank = (String, bool, bool, bool, usize, Vec<u32>, String, String);

fn rank(entry: &Value) -> Rank {
    let digest = entry["digest"].as_str().unwrap_or_default().to_owned();
    let Some(variant) = Variant::read(entry) else {
        // Entries that are not images come last.
        return (
            "~".to_owned(),
            true,
            true,
            true,
            0,
            Vec::new(),
            digest,
            String::new(),
        );
    };
    let platform = variant.platform.map_or("~".to_owned(), |p| p.to_string());
    let name = variant.name.clone().unwrap_or_default();
    let facts = variant.facts.unwrap_or_default();
    let code = facts.sms.len() + facts.ptx.len();
    let cuda = facts
        .cuda
        .as_deref()
        .map(stackforge_stack::catalog::numbers);
    (
        platform,
        !facts.l4t.is_empty(),
        facts.isa.is_some(),
        // An image without device code runs anywhere, but is not what someone with a GPU wants.
        code == 0,
        usize::MAX - code,
        cuda.unwrap_or_default(),
        name,
        digest,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::Facts;
    use stackforge_stack::spec::Platform;

    fn entry(name: &str, platform: Platform, facts: &[&str]) -> Value {
        let mut own = Facts::default();
        for fact in facts {
            own.set(fact).unwrap();
        }
        Variant {
            name: Some(name.to_owned()),
            platform: Some(platform),
            digest: Digest::of(name.as_bytes()),
            size: 7,
            media_type: MANIFEST_TYPES[1].to_owned(),
            facts: Ok(own),
        }
        .entry()
    }

    #[test]
    fn what_runs_on_most_machines_stands_first() {
        let (amd64, arm64) = (Platform::LinuxAmd64, Platform::LinuxArm64);
        let mut all = [
            entry("cpu", amd64, &[]),
            entry("thor", arm64, &["sm=110", "cuda=13.0"]),
            entry("orin", arm64, &["sm=87", "cuda=12.6", "l4t=36"]),
            entry("avx512", amd64, &["sm=80,90,100", "isa=avx512"]),
            entry("hopper", amd64, &["sm=90", "cuda=13.0"]),
            entry("server", amd64, &["sm=80,90", "cuda=13.0"]),
            json!({ "mediaType": "m", "digest": Digest::of(b"x"), "size": 1,
                "platform": { "os": "unknown", "architecture": "unknown" } }),
        ];
        all.sort_by_cached_key(rank);
        let names: Vec<_> = all.iter().map(|e| name(e).unwrap_or("-")).collect();
        assert_eq!(
            names,
            ["server", "hopper", "cpu", "avx512", "thor", "orin", "-"]
        );
    }
}
