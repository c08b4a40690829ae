//! The JSON schemas of the OCI image specification, as Debian packages them: judges of what is written.

use serde_json::Value;
use std::error::Error;
use std::path::Path;

const SCHEMAS: &str = "/usr/share/gocode/src/github.com/opencontainers/image-spec/schema";

fn read(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

/// A schema without the address of its draft, which these write in a way of their own.
fn schema(name: &str) -> Value {
    let mut schema = read(&Path::new(SCHEMAS).join(name));
    schema.as_object_mut().unwrap().remove("$schema");
    schema
}

/// Schemas name each other by the last part of their addresses.
struct Beside;

impl jsonschema::Retrieve for Beside {
    fn retrieve(
        &self,
        uri: &jsonschema::Uri<String>,
    ) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let name = uri.path().as_str().rsplit('/').next().unwrap_or_default();
        Ok(schema(name))
    }
}

/// How a document breaks the schema of `image-index`, `image-manifest`, `config` or `image-layout`.
pub fn wrong(kind: &str, document: &Value) -> Vec<String> {
    let schema = jsonschema::options()
        .with_draft(jsonschema::Draft::Draft4)
        .with_retriever(Beside)
        .build(&schema(&format!("{kind}-schema.json")))
        .unwrap();
    let errors = schema.iter_errors(document);
    errors
        .map(|e| format!("{kind} {}: {e}", e.instance_path()))
        .collect()
}

/// How the documents of a layout break their schemas; one document each of a kind at the least.
pub fn wrong_in(layout: &Path) -> Vec<String> {
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        read(&layout.join("blobs").join(digest.replace(':', "/")))
    };
    let index = read(&layout.join("index.json"));
    let mut all = wrong("image-layout", &read(&layout.join("oci-layout")));
    all.extend(wrong("image-index", &index));
    let manifests = index["manifests"].as_array().unwrap();
    assert!(!manifests.is_empty());
    for manifest in manifests.iter().map(blob) {
        all.extend(wrong("image-manifest", &manifest));
        all.extend(wrong("config", &blob(&manifest["config"])));
    }
    all
}
