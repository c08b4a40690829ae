//! A draft of an image, and the documents that it becomes.

use std::collections::BTreeMap;

use oci_spec::image::ImageConfiguration;
use serde_json::{Map, Value, json};

use super::error::AssembleError;
use crate::oci::Layer;
use stackforge_types::date::rfc3339;
use stackforge_types::{Digest, Platform};

/// Media type of an image's manifest (OCI image specification 1.1).
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Media type of an image's configuration (OCI image specification 1.1).
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// Everything that determines an image.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The platform that the image runs on.
    pub platform: Platform,
    /// Creation time in the configuration and its history, in seconds since 1970.
    pub epoch: u32,
    /// The base's configuration, if there is a base: its history, user, volumes and so on are kept.
    pub base: Option<ImageConfiguration>,
    /// The layers, lowest first, including those of the base.
    pub layers: Vec<Layer>,
    /// How many of the layers the base's history describes.
    pub from_base: usize,
    /// Environment variables as name and value; they override the base's.
    pub env: Vec<(String, String)>,
    /// The default command; if empty, the base's.
    pub cmd: Vec<String>,
    /// Labels; they override the base's.
    pub labels: BTreeMap<String, String>,
    /// Further keys of the configuration's `config`. An object is added to the base's, another value replaces it, and
    /// null removes it.
    pub keys: Map<String, Value>,
}

/// An image: its documents, and the layers that they name.
#[derive(Debug, Clone)]
pub struct Assembled {
    /// The platform that the image runs on.
    pub platform: Platform,
    /// The manifest, byte for byte.
    pub manifest: Vec<u8>,
    /// The configuration, byte for byte.
    pub config: Vec<u8>,
    /// Digest of the manifest.
    pub digest: Digest,
    /// Digest of the configuration: Docker's image ID.
    pub config_digest: Digest,
    /// The layers, lowest first.
    pub layers: Vec<Layer>,
}

impl Assembled {
    /// The image's blobs, by their role in the image.
    pub fn blobs(&self) -> BTreeMap<String, Digest> {
        let layers = self.layers.iter().enumerate();
        let layers = layers.map(|(n, l)| (format!("layer:{n:03}"), l.digest.clone()));
        let documents = [("config", &self.config_digest), ("manifest", &self.digest)];
        let documents = documents.map(|(name, digest)| (name.to_owned(), digest.clone()));
        layers.chain(documents).collect()
    }
}

impl Draft {
    /// Makes the image's documents. Same draft, same bytes.
    ///
    /// # Errors
    /// [`AssembleError::Json`] if a document cannot be written as JSON.
    pub fn assemble(self) -> Result<Assembled, AssembleError> {
        let config = bytes(&self.config()?)?;
        let config_digest = Digest::of(&config);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": { "mediaType": CONFIG, "digest": config_digest, "size": config.len() },
            "layers": self.layers.iter().map(descriptor).collect::<Vec<_>>(),
        });
        let manifest = bytes(&manifest)?;
        Ok(Assembled {
            platform: self.platform,
            digest: Digest::of(&manifest),
            config_digest,
            manifest,
            config,
            layers: self.layers,
        })
    }

    /// The configuration, in maps with ordered keys: the maps of the library's own types have no order.
    fn config(&self) -> Result<Value, AssembleError> {
        let created = rfc3339(self.epoch);
        let mut document = match &self.base {
            Some(base) => serde_json::to_value(base).map_err(AssembleError::Json)?,
            None => json!({}),
        };
        document["architecture"] = self.platform.arch().into();
        document["os"] = "linux".into();
        document["created"] = created.clone().into();
        let diff_ids: Vec<_> = self.layers.iter().map(|l| &l.diff_id).collect();
        document["rootfs"] = json!({ "type": "layers", "diff_ids": diff_ids });

        let mut history = match document["history"].take() {
            Value::Array(history) => history,
            _ => Vec::new(),
        };
        for layer in &self.layers[self.from_base.min(self.layers.len())..] {
            history.push(json!({
                "created": created,
                "created_by": format!("stackforge: {}", layer.about),
            }));
        }
        document["history"] = history.into();

        let config = &mut document["config"];
        if !config.is_object() {
            *config = json!({});
        }
        // BuildKit sets this for an image without a base; a base's own value stays.
        if self.base.is_none() {
            config["WorkingDir"] = "/".into();
        }
        let mut env: Vec<String> = match config["Env"].take() {
            Value::Array(env) => env
                .iter()
                .filter_map(|e| e.as_str().map(str::to_owned))
                .collect(),
            _ => Vec::new(),
        };
        for (name, value) in &self.env {
            let own = format!("{name}={value}");
            let same = |e: &&mut String| e.split_once('=').is_some_and(|(n, _)| n == name);
            match env.iter_mut().find(same) {
                Some(before) => *before = own,
                None => env.push(own),
            }
        }
        config["Env"] = env.into();
        if !self.cmd.is_empty() {
            config["Cmd"] = json!(self.cmd);
            // Otherwise the base's entry point would get our command as its arguments.
            if let Some(config) = config.as_object_mut() {
                config.remove("Entrypoint");
            }
        }
        for (name, value) in &self.labels {
            config["Labels"][name] = value.as_str().into();
        }
        for (key, value) in &self.keys {
            set(config, key, value);
        }
        Ok(document)
    }
}

fn set(config: &mut Value, key: &str, value: &Value) {
    let own = &mut config[key];
    match (own.as_object_mut(), value) {
        (Some(own), Value::Object(more)) => own.extend(more.clone()),
        _ => own.clone_from(value),
    }
    if value.is_null()
        && let Some(config) = config.as_object_mut()
    {
        config.remove(key);
    }
}

fn descriptor(layer: &Layer) -> Value {
    let mut descriptor = json!({
        "mediaType": layer.media_type,
        "digest": layer.digest,
        "size": layer.size,
    });
    if !layer.annotations.is_empty() {
        descriptor["annotations"] = json!(layer.annotations);
    }
    descriptor
}

fn bytes(document: &Value) -> Result<Vec<u8>, AssembleError> {
    serde_json::to_vec(document).map_err(AssembleError::Json)
}
