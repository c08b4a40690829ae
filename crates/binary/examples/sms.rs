//! Prints for which GPUs a shared object carries code: `sms libcublas.so.13`.

use std::error::Error;
use std::path::Path;

use stackforge_binary::elf::Object;
use stackforge_binary::fatbin::{SECTIONS, bytes_by_sm, entries};
use stackforge_binary::source::FileSource;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: sms FILE")?;
    let path = Path::new(&path);
    let mut file = FileSource::open(path)?;
    let object = Object::read(&path.display().to_string(), &mut file, &SECTIONS)?;
    let found = entries(&object, file).collect::<Result<Vec<_>, _>>()?;

    println!("{} for {}", object.name, object.machine.name());
    for needed in &object.needed {
        println!("  needs {needed}");
    }
    for (sm, bytes) in bytes_by_sm(&found) {
        println!(
            "  SM {sm:6} {:>12} bytes of SASS {:>12} bytes of PTX",
            bytes.sass, bytes.ptx
        );
    }
    if found.is_empty() {
        println!("  no device code");
    }
    Ok(())
}
