//! Reads and checks the catalog, so that a wrong one never compiles, and hands it to the crate
//! as JSON. A changed catalog, image or template rebuilds the crate.

#[allow(
    dead_code,
    unused_imports,
    reason = "the crate's own types, of which reading needs some"
)]
#[path = "src/catalog/mod.rs"]
mod catalog;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    for path in ["catalog", "images", "templates", "src/catalog"] {
        println!("cargo::rerun-if-changed={path}");
    }
    // The crate's catalog knows its own data; the one in here is about to read it.
    println!("cargo::rustc-cfg=catalog_compiled");
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            println!("cargo::error={e}");
            ExitCode::FAILURE
        }
    }
}

fn compile() -> Result<(), Box<dyn std::error::Error>> {
    let keyring = |name: &str| Path::new(&format!("images/keyrings/{name}.gpg")).is_file();
    let read = catalog::Catalog::read(Path::new("catalog"), Path::new("images"), &keyring)?;
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(
        Path::new(&out).join("catalog.json"),
        serde_json::to_vec(&read)?,
    )?;
    Ok(())
}
