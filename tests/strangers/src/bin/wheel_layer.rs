//! Makes one layer of a wheel and reads it again: `wheel_layer WHEEL LAYER.tar.gz`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::path::Path;

use stackforge_image::layer::{FileSource, Install, Scheme, Spec, Wheel, write};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [wheel, layer] = arguments.as_slice() else {
        return Err("usage: wheel_layer WHEEL LAYER.tar.gz".into());
    };
    let path = Path::new(wheel);
    let name = path
        .file_name()
        .ok_or("no file")?
        .to_str()
        .ok_or("no UTF-8")?;
    let wheel = Wheel::open(name, FileSource::open(path)?)?;
    let changed = BTreeMap::new();
    let install = Install {
        wheel: &wheel,
        requested: true,
        drop: &[],
        changed: &changed,
    };
    let spec = Spec {
        scheme: Scheme::posix_prefix("/usr/local", "3.11"),
        python: "/usr/local/bin/python3".to_owned(),
        epoch: 0,
        level: 6,
        threads: 1,
    };
    let made = write(&spec, &[install], File::create(layer)?)?;
    println!(
        "{} files, {} bytes, {}",
        made.files, made.layer.size, made.layer.digest
    );
    println!("diff ID {}", made.layer.diff_id);
    Ok(())
}
