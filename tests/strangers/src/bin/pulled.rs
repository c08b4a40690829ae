//! Pulls an image's manifest and its blobs into a directory: `pull registry.example/app:1 DIR`.
//!
//! An index is followed to its entry for `linux/amd64`. Run it again and only what is missing is
//! fetched.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use stackforge_transfer::registry::{Descriptor, Keychain, Options, Reference, Registry, Target};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, dir] = arguments.as_slice() else {
        return Err("usage: pull IMAGE DIR".into());
    };
    let (image, dir): (Reference, _) = (image.parse()?, Path::new(dir));
    let keychain = Arc::new(Keychain::of_user());
    let registry = Registry::connect(image.host(), keychain, &Options::default())?;

    let mut manifest = registry
        .manifest(image.repository(), &image.target())
        .await?;
    let mut document: Value = serde_json::from_slice(&manifest.bytes)?;
    if let Some(entries) = document["manifests"].as_array() {
        let entry = entries.iter().find(|entry| {
            let platform = &entry["platform"];
            platform["os"] == "linux" && platform["architecture"] == "amd64"
        });
        let entry = entry.ok_or("the image is not there for linux/amd64")?;
        let digest = entry["digest"].as_str().unwrap_or_default().parse()?;
        let target = Target::Digest(digest);
        manifest = registry.manifest(image.repository(), &target).await?;
        document = serde_json::from_slice(&manifest.bytes)?;
    }

    let layers = document["layers"].as_array().into_iter().flatten();
    for blob in layers.chain([&document["config"]]) {
        let digest = blob["digest"].as_str().unwrap_or_default().parse()?;
        let size = blob["size"].as_u64().ok_or("a blob has no size")?;
        let blob = Descriptor::of_blob(digest, size);
        let fetched = registry.fetch_blob(image.repository(), &blob, dir).await?;
        println!(
            "{} ({} bytes fetched)",
            fetched.path.display(),
            fetched.bytes
        );
    }
    std::fs::write(dir.join("manifest.json"), &manifest.bytes)?;
    println!("{} is {}", image, manifest.digest);
    Ok(())
}
