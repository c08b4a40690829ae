//! Embedded data is part of the source: a changed catalog or template rebuilds the crate.

fn main() {
    for folder in ["catalog", "images", "templates"] {
        println!("cargo::rerun-if-changed={folder}");
    }
}
