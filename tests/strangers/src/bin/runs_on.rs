//! Says on which of some GPUs a shared object's device code runs: `runs_on FILE SM...`.

use std::error::Error;

use stackforge_binary::elf::Object;
use stackforge_binary::fatbin::{SECTIONS, bytes_by_sm, entries};
use stackforge_binary::source::FileSource;
use stackforge_gpu::coverage;
use stackforge_types::Sm;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: runs_on FILE SM...")?;
    let mut file = FileSource::open(path.as_ref())?;
    let object = Object::read(&path, &mut file, &SECTIONS)?;
    let found = entries(&object, file).collect::<Result<Vec<_>, _>>()?;
    let sizes = bytes_by_sm(&found);
    let (mut sass, mut ptx) = (Vec::new(), Vec::new());
    for (sm, bytes) in &sizes {
        println!(
            "{sm}: {} bytes of SASS, {} bytes of PTX",
            bytes.sass, bytes.ptx
        );
        if bytes.sass > 0 {
            sass.push(*sm);
        }
        if bytes.ptx > 0 {
            ptx.push(*sm);
        }
    }
    for gpu in arguments {
        let gpu: Sm = gpu.parse()?;
        println!("on {gpu}: {:?}", coverage(&sass, &ptx, gpu, false));
    }
    Ok(())
}
