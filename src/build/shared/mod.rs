//! Shares compiled wheels between machines through a registry, by the key of their step.
//!
//! In: `cache.registry` of the configuration, or of the stack if the configuration allows that
//! repository. A wheel that no machine has compiled yet is compiled here and pushed as the only layer of an
//! OCI artifact whose tag is the key, so any registry can keep it. A wheel in the cache is fetched by
//! digest, audited like one that was compiled here, and recorded as if it were. A cache that does not
//! answer, or has a wheel that does not match its key, costs a compile and a warning and never fails a
//! build.

mod objects;

use super::audit::AuditSpec;
use super::trusted::Keys;
use super::{Options, recorded};
use bytes::Bytes;
use serde_json::{Value, json};
use stackforge_image::store::{Action, Store};
use stackforge_plan::Plan;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::labels;
use stackforge_transfer::registry::{
    Descriptor, EMPTY, Keychain, MANIFEST_TYPES, Manifest, Options as Client, Payload, Reference,
    Registry, RegistryError, Repository, Tag, Target,
};
use stackforge_types::Digest;
use stackforge_types::wheel::{WheelName, normalized};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::block_in_place;

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub const ARTIFACT: &str = "application/vnd.stackforge.wheel.v1";
/// Media type of the layer: a wheel is a zip archive and has no media type of its own.
const WHEEL: &str = "application/zip";
const TITLE: &str = "org.opencontainers.image.title";

/// The shared cache of a build.
pub(super) struct Shared<'a> {
    registry: Registry,
    repository: Repository,
    keys: Keys,
    plan: &'a Plan,
    catalog: &'a Catalog,
    store: &'a Store,
}

/// Returns the libraries whose compiled wheel is not in the store.
fn missing(plan: &Plan, store: &Store) -> BTreeSet<String> {
    let lacks = |library: &String| {
        let step = plan.compile(library);
        step.is_none_or(|s| recorded::wheel(store, s).is_none())
    };
    (plan.compiles().map(|c| c.library.clone()))
        .filter(lacks)
        .collect()
}

impl<'a> Shared<'a> {
    /// Opens the cache that the configuration, else the stack, names. `None` if neither does, or the build
    /// does not need it.
    pub fn of(plan: &'a Plan, options: &Options<'a>) -> Option<Self> {
        if let Some(name) = options
            .refused()
            .filter(|_| plan.compiles().next().is_some())
        {
            tracing::warn!(
                "the stack's cache {name} is not used: your configuration does not allow it; add \
                 `cache: {{ allow: [{name}] }}` if you trust whoever may push there"
            );
        }
        let name = options.shared()?;
        if options.offline || plan.compiles().next().is_none() {
            return None;
        }
        // The reference was checked when the configuration was read.
        let reference: Reference = name.parse().ok()?;
        let keys = match Keys::of(options.config) {
            Ok(keys) => keys,
            Err(e) => {
                warn("is not used", &e);
                return None;
            }
        };
        let client = Client::default();
        let keychain = Arc::new(Keychain::of_user());
        match Registry::connect(reference.host(), keychain, &client) {
            Ok(registry) => Some(Self {
                registry,
                repository: reference.repository().clone(),
                keys,
                plan,
                catalog: options.catalog,
                store: options.store,
            }),
            Err(e) => {
                warn("cannot be used", &e);
                None
            }
        }
    }

    /// Fetches the compiled wheels that the store lacks. Those that the cache lacks have to be compiled.
    pub async fn fetch(&self, audit_spec: &AuditSpec<'_>) {
        for library in missing(self.plan, self.store) {
            match self.fetch_one(&library, audit_spec).await {
                Ok(Some(file)) => tracing::info!("{file} comes from the cache"),
                Ok(None) => {}
                Err(e) => warn(&format!("has no usable wheel of {library}"), &*e),
            }
        }
    }

    async fn fetch_one(
        &self,
        library: &str,
        audit_spec: &AuditSpec<'_>,
    ) -> Result<Option<String>, Failure> {
        let Some(step) = self.plan.compile(library) else {
            return Ok(None);
        };
        let reference = self.reference(&step.key)?;
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
        let recipe = self.catalog.recipe(library);
        let distribution = recipe.map_or(library, |r| r.distribution.as_str());
        let (blob, file) = wheel_of(&manifest, &step.key, distribution)?;
        self.store.lease([&blob.digest])?;
        let folder = self.store.dir("blobs/sha256")?;
        let part = self.store.part(&blob.digest)?;
        let fetched = (self.registry).fetch_blob_through(&self.repository, &blob, &folder, part);
        fetched.await?;
        self.store.verified(&blob.digest);
        let path = self.store.named(&blob.digest, &file)?;
        let audit = block_in_place(|| audit_spec.wheel(&path))?;
        if !audit.ok {
            return Err("the audit finds an error in it".into());
        }
        let action = Action {
            step: step.id.to_string(),
            outputs: [("wheel".to_owned(), blob.digest)].into(),
            audit: serde_json::to_value(audit.count()).ok(),
            made: Some(json!({ "from": self.repository.to_string() })),
            ..Action::default()
        };
        self.store.record(&step.key, &action)?;
        Ok(Some(file))
    }

    /// Pushes the wheels of `libraries`, which were compiled here.
    pub async fn push(&self, libraries: &BTreeSet<String>) {
        for library in libraries {
            if let Err(e) = self.push_one(library).await {
                warn(&format!("does not take the wheel of {library}"), &*e);
            }
        }
    }

    async fn push_one(&self, library: &str) -> Result<(), Failure> {
        let Some(step) = self.plan.compile(library) else {
            return Ok(());
        };
        let action = self.store.action(&step.key);
        let Some(wheel) = action.as_ref().and_then(|a| a.outputs.get("wheel")) else {
            return Ok(());
        };
        let names = self.store.names_of(wheel);
        let (Some(file), Some(path)) = (names.first(), self.store.blob(wheel)) else {
            return Ok(());
        };
        let size = std::fs::metadata(&path)?.len();
        let payload = Payload::File(path);
        let manifest = document(&step.key, library, wheel, size, file);
        self.registry
            .push_bytes(&self.repository, Bytes::from_static(b"{}"))
            .await?;
        self.registry
            .push_blob(&self.repository, wheel, size, &payload, &[])
            .await?;
        self.publish(&self.reference(&step.key)?, &manifest).await
    }

    /// Pushes an artifact's manifest, whose blobs are there, and signs it if there is a key.
    async fn publish(&self, reference: &Reference, manifest: &Value) -> Result<(), Failure> {
        let bytes = Bytes::from(manifest.to_string());
        let media_type = MANIFEST_TYPES[1].to_owned();
        self.registry
            .put_manifest(&self.repository, &reference.target(), &media_type, &bytes)
            .await?;
        let pushed = Manifest {
            digest: Digest::of(&bytes),
            bytes,
            media_type,
        };
        let pushed = pushed.descriptor();
        Ok((self.keys).sign(&self.registry, reference, &pushed).await?)
    }

    fn reference(&self, key: &Digest) -> Result<Reference, RegistryError> {
        let target = Target::Tag(tag(key)?);
        Ok(Reference::new(
            self.registry.host(),
            &self.repository,
            target,
        ))
    }
}

fn warn(what: &str, error: &(dyn std::error::Error + 'static)) {
    let why = stackforge_stack::diag::chain(error);
    tracing::warn!("the cache of compiled wheels {what}: {why}");
}

fn tag(key: &Digest) -> Result<Tag, RegistryError> {
    Ok(format!("compile-{}", key.hex()).parse()?)
}

fn document(key: &Digest, library: &str, wheel: &Digest, size: u64, file: &str) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPES[1],
        "artifactType": ARTIFACT,
        "config": { "mediaType": EMPTY, "digest": Digest::of(b"{}").to_string(), "size": 2 },
        "layers": [{
            "mediaType": WHEEL,
            "digest": wheel.to_string(),
            "size": size,
            "annotations": { TITLE: file },
        }],
        "annotations": { labels::KEY: key.to_string(), labels::LIBRARY: library },
    })
}

/// Returns the wheel's descriptor and file name, which has to be one of the distribution.
fn wheel_of(
    manifest: &Manifest,
    key: &Digest,
    distribution: &str,
) -> Result<(Descriptor, String), String> {
    let document: Value = serde_json::from_slice(&manifest.bytes).map_err(|e| e.to_string())?;
    if document["artifactType"] != ARTIFACT
        || document["annotations"][labels::KEY] != key.to_string()
    {
        return Err("its tag names something else".to_owned());
    }
    let Some([layer]) = document["layers"].as_array().map(Vec::as_slice) else {
        return Err("it does not hold one wheel".to_owned());
    };
    let digest = layer["digest"].as_str().and_then(|d| d.parse().ok());
    let (Some(digest), Some(size)) = (digest, layer["size"].as_u64()) else {
        return Err("its wheel has no digest".to_owned());
    };
    let file = layer["annotations"][TITLE].as_str().unwrap_or_default();
    match file.parse::<WheelName>() {
        Ok(name) if name.name == normalized(distribution) => {}
        Ok(_) => return Err(format!("`{file}` is not a wheel of {distribution}")),
        Err(e) => return Err(e.to_string()),
    }
    Ok((Descriptor::of_blob(digest, size), file.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(document: &Value, key: &Digest) -> Result<(Descriptor, String), String> {
        let bytes = Bytes::from(document.to_string());
        let manifest = Manifest {
            digest: Digest::of(&bytes),
            media_type: MANIFEST_TYPES[1].to_owned(),
            bytes,
        };
        wheel_of(&manifest, key, "flash_attn")
    }

    #[test]
    fn an_artifact_is_what_its_key_and_its_name_say() {
        let (key, wheel) = (Digest::of(b"key"), Digest::of(b"wheel"));
        let file = "flash_attn-2.8.3-cp312-cp312-linux_aarch64.whl";
        let good = document(&key, "flash-attn", &wheel, 5, file);
        let (blob, name) = read(&good, &key).unwrap();
        assert_eq!(
            (blob.digest, blob.size, name.as_str()),
            (wheel.clone(), 5, file)
        );
        assert!(tag(&key).unwrap().to_string().starts_with("compile-"));

        let refusal = |document: &Value, key: &Digest| read(document, key).unwrap_err();
        assert!(refusal(&good, &wheel).contains("something else"));
        let other = document(&key, "six", &wheel, 5, "six-1.0-py3-none-any.whl");
        assert!(refusal(&other, &key).contains("not a wheel of flash_attn"));
        let outside = document(&key, "x", &wheel, 5, "../flash_attn-1-py3-none-any.whl");
        refusal(&outside, &key);
        for path in [
            "/layers/0/digest",
            "/layers/0/size",
            "/layers/0",
            "/artifactType",
        ] {
            let mut less = good.clone();
            *less.pointer_mut(path).unwrap() = Value::Null;
            refusal(&less, &key);
        }
        let mut two = good.clone();
        let layer = two["layers"][0].clone();
        two["layers"].as_array_mut().unwrap().push(layer);
        assert!(refusal(&two, &key).contains("one wheel"));
        assert!(refusal(&json!("x"), &key).contains("something else"));
    }
}
