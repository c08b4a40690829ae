//! Reads an image reference and a wheel's file name, and says what they mean.
//!
//! `names nvcr.io/nvidia/cuda:13.0.0 numpy-2.3.1-cp312-cp312-manylinux_2_28_x86_64.whl`

use std::error::Error;

use stackforge_types::reference::Reference;
use stackforge_types::wheel::{WheelName, WheelTarget};
use stackforge_types::{Platform, Sm};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, wheel] = arguments.as_slice() else {
        return Err("usage: names IMAGE WHEEL".into());
    };
    let image: Reference = image.parse()?;
    println!("image {image}");
    println!("  registry   {}", image.host());
    println!("  repository {}", image.repository());
    println!("  manifest   {}", image.target());

    let wheel: WheelName = wheel.parse()?;
    println!("wheel {} {}", wheel.name, wheel.version);
    for platform in Platform::ALL {
        let target = WheelTarget {
            python: "3.12".parse()?,
            platform,
            glibc: 36,
        };
        let fits = match wheel.rank(&target) {
            Some(_) => "fits",
            None => "does not fit",
        };
        println!("  {fits} CPython 3.12 on {platform} with glibc 2.36");
    }

    let sm: Sm = "sm_90a".parse()?;
    println!("{sm} is code for compute capability {} alone", sm.base());
    Ok(())
}
