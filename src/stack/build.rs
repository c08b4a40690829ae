//! Reads and checks the catalog, so that a wrong one never compiles, and hands it to the crate
//! as JSON, with the templates beside it, both deflated. A changed catalog, image or template rebuilds the crate.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Cargo may run a program that it compiled in another folder, so this one's path is asked for here.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&own).join("../..");
    for path in ["catalog", "images", "templates"] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    match compile(&root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            println!("cargo::error={e}");
            ExitCode::FAILURE
        }
    }
}

fn compile(root: &Path) -> Result<(), Box<dyn Error>> {
    let images = root.join("images");
    let keyring = |name: &str| images.join(format!("keyrings/{name}.gpg")).is_file();
    let read = stackforge_catalog::Catalog::read(&root.join("catalog"), &images, &keyring)?;
    deflated("catalog.json", &serde_json::to_vec(&read)?)?;
    let mut templates = BTreeMap::new();
    texts(&root.join("templates"), "", &mut templates)?;
    deflated("templates.json", &serde_json::to_vec(&templates)?)?;
    deflated(
        "diagnoses.yaml",
        &std::fs::read(root.join("catalog/diagnoses.yaml"))?,
    )
}

/// Collects the text files below a folder, by path.
fn texts(
    folder: &Path,
    above: &str,
    out: &mut BTreeMap<String, String>,
) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = format!("{above}{}", name.ok_or("a file name that is not UTF-8")?);
        if path.is_dir() {
            texts(&path, &format!("{name}/"), out)?;
        } else if let Ok(text) = String::from_utf8(std::fs::read(&path)?) {
            out.insert(name, text);
        }
    }
    Ok(())
}

/// Writes the length of a content, in four bytes, and the content deflated.
fn deflated(name: &str, content: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::best());
    let mut bytes = vec![0; compressor.deflate_compress_bound(content.len())];
    let length = compressor.deflate_compress(content, &mut bytes)?;
    let mut whole = u32::try_from(content.len())?.to_le_bytes().to_vec();
    whole.extend(&bytes[..length]);
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(Path::new(&out).join(name), whole)?;
    Ok(())
}
