//! Shares the objects of compiles through the registry of compiled wheels: one artifact for each library and
//! architecture, whose layers are tars of objects. Its configuration lists their names, so a machine fetches only
//! layers with objects that it lacks, and adds a layer with those that the registry lacks.
//!
//! Everything happens between compiles, outside of the sandbox in which foreign code runs. Whoever may push to the
//! repository may put code into images, as with wheels; `cache.verify` takes only what a key has signed.

use super::{Failure, Shared, warn};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stackforge_stack::labels;
use stackforge_transfer::registry::{
    Descriptor, MANIFEST_TYPES, Payload, Reference, RegistryError, Tag, Target,
};
use stackforge_types::Digest;
use std::collections::BTreeSet;
use std::fs::File;
use tokio::task::block_in_place;

const ARTIFACT: &str = "application/vnd.stackforge.objects.v1";
const CONFIG: &str = "application/vnd.stackforge.objects.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// With more layers, or more bytes in them, the next push begins anew with what is here.
const MOST_LAYERS: usize = 16;
const MOST_BYTES: u64 = 20 << 30;
/// Longest configuration that is read, in bytes.
const MOST_CONFIG: u64 = 32 << 20;

/// The configuration of an artifact.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Names {
    /// The names of the objects in each layer.
    layers: Vec<BTreeSet<String>>,
}

/// What the registry has of a library.
#[derive(Default)]
struct Remote {
    layers: Vec<Descriptor>,
    names: Names,
}

impl Shared<'_> {
    /// Adds the objects that the registry has to those of a library here.
    pub async fn fetch_objects(&self, library: &str) {
        match self.fetch_missing(library).await {
            Ok(0) => {}
            Ok(count) => tracing::info!("{count} objects of {library} come from the cache"),
            Err(e) => warn(&format!("has no usable objects of {library}"), &*e),
        }
    }

    /// Adds the objects of a library that the registry lacks to those that it has.
    pub async fn push_objects(&self, library: &str) {
        if let Err(e) = self.push_missing(library).await {
            warn(&format!("does not take the objects of {library}"), &*e);
        }
    }

    async fn fetch_missing(&self, library: &str) -> Result<usize, Failure> {
        let Some(remote) = self.remote(library).await? else {
            return Ok(0);
        };
        let Some(folder) = self.store.objects(self.plan.platform, library)? else {
            return Ok(0);
        };
        let mut here = block_in_place(|| folder.names())?;
        let before = here.len();
        for (layer, names) in remote.layers.iter().zip(&remote.names.layers) {
            if names.is_subset(&here) {
                continue;
            }
            let scratch = self.store.scratch()?;
            let part = scratch.path().join("part");
            let fetched = (self.registry)
                .fetch_blob_through(&self.repository, layer, scratch.path(), part)
                .await?;
            let layer = File::open(&fetched.path)?;
            block_in_place(|| folder.unpack(layer, |name| names.contains(name), &mut here))?;
        }
        Ok(here.len() - before)
    }

    async fn push_missing(&self, library: &str) -> Result<(), Failure> {
        // Who takes only what is signed, and cannot sign, would replace what others can take.
        if self.keys.verifies() && !self.keys.signs() {
            return Ok(());
        }
        let Some(folder) = self.store.objects(self.plan.platform, library)? else {
            return Ok(());
        };
        // Asked anew: others may have pushed during the compile.
        let mut remote = match self.remote(library).await {
            Ok(remote) => remote.unwrap_or_default(),
            Err(error) if error.is::<RegistryError>() => return Err(error),
            // What has no signature, or is something else, is replaced.
            Err(error) => {
                tracing::debug!(error, "the objects of {library} in the cache begin anew");
                Remote::default()
            }
        };
        let bytes: u64 = remote.layers.iter().map(|l| l.size).sum();
        if remote.layers.len() >= MOST_LAYERS || bytes > MOST_BYTES {
            remote = Remote::default();
        }
        let has = |name: &String| remote.names.layers.iter().any(|names| names.contains(name));
        let mut new = block_in_place(|| folder.names())?;
        new.retain(|name| !has(name));
        let scratch = self.store.scratch()?;
        let path = scratch.path().join("layer.tar");
        let new = block_in_place(|| folder.pack(new, File::create(&path)?))?;
        if new.is_empty() {
            return Ok(());
        }
        let size = std::fs::metadata(&path)?.len();
        let digest = block_in_place(|| Digest::of_reader(File::open(&path)?))?;
        let payload = Payload::File(path);
        self.registry
            .push_blob(&self.repository, &digest, size, &payload, &[])
            .await?;
        remote.layers.push(Descriptor::of_blob(digest, size));
        remote.names.layers.push(new);
        let config = Bytes::from(serde_json::to_vec(&remote.names)?);
        let config_size = config.len();
        let config = self.registry.push_bytes(&self.repository, config).await?;
        let document = document(library, (&config, config_size), &remote.layers);
        self.publish(&self.objects(library)?, &document).await
    }

    /// Returns what the registry has of a library. `None` if it has nothing.
    async fn remote(&self, library: &str) -> Result<Option<Remote>, Failure> {
        let reference = self.objects(library)?;
        let target = reference.target();
        let manifest = match self.registry.manifest(&self.repository, &target).await {
            Ok(manifest) => manifest,
            Err(e) if e.is_missing() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let signed = self
            .keys
            .check(&self.registry, &reference, &manifest.digest);
        signed.await?;
        let (config, layers) = read(&manifest.bytes, library)?;
        let names = self
            .registry
            .small_blob(&self.repository, &config, MOST_CONFIG)
            .await?;
        let names: Names = serde_json::from_slice(&names)?;
        if names.layers.len() != layers.len() {
            return Err("its configuration lists other layers".into());
        }
        Ok(Some(Remote { layers, names }))
    }

    fn objects(&self, library: &str) -> Result<Reference, RegistryError> {
        let tag: Tag = format!("objects-{}-{library}", self.plan.platform.arch()).parse()?;
        let target = Target::Tag(tag);
        Ok(Reference::new(
            self.registry.host(),
            &self.repository,
            target,
        ))
    }
}

fn document(library: &str, config: (&Digest, usize), layers: &[Descriptor]) -> Value {
    let layers = layers
        .iter()
        .map(|l| json!({ "mediaType": LAYER, "digest": l.digest.to_string(), "size": l.size }));
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPES[1],
        "artifactType": ARTIFACT,
        "config": { "mediaType": CONFIG, "digest": config.0.to_string(), "size": config.1 },
        "layers": layers.collect::<Vec<_>>(),
        "annotations": { labels::LIBRARY: library },
    })
}

/// Returns an artifact's configuration and layers.
fn read(manifest: &[u8], library: &str) -> Result<(Descriptor, Vec<Descriptor>), String> {
    let document: Value = serde_json::from_slice(manifest).map_err(|e| e.to_string())?;
    if document["artifactType"] != ARTIFACT || document["annotations"][labels::LIBRARY] != library {
        return Err("its tag names something else".to_owned());
    }
    let descriptor = |value: &Value| {
        let digest = value["digest"].as_str().and_then(|d| d.parse().ok());
        match (digest, value["size"].as_u64()) {
            (Some(digest), Some(size)) => Ok(Descriptor::of_blob(digest, size)),
            _ => Err("a part of it has no digest".to_owned()),
        }
    };
    let layers = document["layers"].as_array().map_or(&[][..], Vec::as_slice);
    let layers: Vec<Descriptor> = layers.iter().map(descriptor).collect::<Result<_, _>>()?;
    let sizes = layers
        .iter()
        .try_fold(0u64, |sum, l| sum.checked_add(l.size));
    if layers.len() > MOST_LAYERS || sizes.is_none_or(|sum| sum > 2 * MOST_BYTES) {
        return Err("it is larger than any that stackforge pushes".to_owned());
    }
    Ok((descriptor(&document["config"])?, layers))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn an_artifact_is_of_its_library() {
        let config = Digest::of(b"config");
        let layer = Descriptor::of_blob(Digest::of(b"layer"), 5);
        let good = document("flash-attn", (&config, 7), &[layer]);
        let of = |document: &Value| read(document.to_string().as_bytes(), "flash-attn");
        let (read_config, layers) = of(&good).unwrap();
        assert_eq!((read_config.digest, read_config.size), (config, 7));
        assert_eq!((layers.len(), layers[0].size), (1, 5));
        assert!(read(good.to_string().as_bytes(), "xformers").is_err());
        for (path, value) in [
            ("/artifactType", Value::Null),
            ("/config/digest", Value::Null),
            ("/config/size", json!(-1)),
            ("/layers/0/digest", json!("sha256:x")),
            ("/layers/0/size", json!(u64::MAX)),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(path).unwrap() = value;
            assert!(of(&bad).is_err(), "{path}");
        }
        let mut many = good.clone();
        many["layers"] = json!(vec![good["layers"][0].clone(); MOST_LAYERS + 1]);
        assert!(of(&many).is_err());
        assert!(read(b"not json", "x").is_err());
    }
}
