//! Unpacks an image into a directory: `unpack_image LAYOUT REFERENCE DIR`.
//!
//! `LAYOUT` is a directory or an archive in the OCI image layout, or what `docker save` writes.

use std::error::Error;
use std::path::Path;

use stackforge_image::oci;
use stackforge_image::unpack::{Owner, over};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [layout, reference, dir] = arguments.as_slice() else {
        return Err("usage: unpack_image LAYOUT REFERENCE DIR".into());
    };
    let image = oci::open(Path::new(layout), Some(reference), None)?;
    std::fs::create_dir(dir)?;
    for layer in &image.layers {
        // Digest and diff ID are checked while the layer is read.
        let unpacked = over(layer.tar()?, Path::new(dir), Owner::of_process())?;
        println!("{}: {} files", layer.digest, unpacked.files);
    }
    Ok(())
}
