//! Makes one image layer of wheels, without unpacking them: `wheel_layer LAYER.tar.gz WHEEL...`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::path::Path;

use stackforge_image::layer::{FileSource, Install, Scheme, Spec, Wheel, write};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [layer, files @ ..] = arguments.as_slice() else {
        return Err("usage: wheel_layer LAYER.tar.gz WHEEL...".into());
    };
    let mut wheels = Vec::new();
    for file in files {
        let path = Path::new(file);
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or("a wheel's name is not UTF-8")?;
        wheels.push(Wheel::open(name, FileSource::open(path)?)?);
    }
    let changed = BTreeMap::new();
    let install = |wheel| Install {
        wheel,
        requested: true,
        drop: &[],
        changed: &changed,
    };
    let installs: Vec<_> = wheels.iter().map(install).collect();

    let spec = Spec {
        scheme: Scheme::posix_prefix("/usr/local", "3.12"),
        python: "/usr/local/bin/python3".to_owned(),
        epoch: 0,
        level: 6,
        threads: std::thread::available_parallelism()?.get(),
    };
    let made = write(&spec, &installs, File::create(layer)?)?;
    println!("{} files in {} bytes", made.files, made.layer.size);
    println!("digest  {}", made.layer.digest);
    println!("diff ID {}", made.layer.diff_id);
    Ok(())
}
