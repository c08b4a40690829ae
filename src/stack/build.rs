//! Reads and checks the catalog, so that a wrong one never compiles, and hands it to the crate
//! as JSON. A changed catalog, image or template rebuilds the crate.

use std::path::Path;
use std::process::ExitCode;

/// The root of the source tree, in which cargo does not run this.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn main() -> ExitCode {
    for path in ["catalog", "images", "templates"] {
        println!("cargo::rerun-if-changed={ROOT}/{path}");
    }
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            println!("cargo::error={e}");
            ExitCode::FAILURE
        }
    }
}

fn compile() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(ROOT);
    let images = root.join("images");
    let keyring = |name: &str| images.join(format!("keyrings/{name}.gpg")).is_file();
    let read = stackforge_catalog::Catalog::read(&root.join("catalog"), &images, &keyring)?;
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(
        Path::new(&out).join("catalog.json"),
        serde_json::to_vec(&read)?,
    )?;
    Ok(())
}
