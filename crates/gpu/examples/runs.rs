//! Says how a GPU runs some code: `runs GPU CODE...`, where PTX is written `ptx9.0`.

use stackforge_gpu::{Coverage, coverage};
use stackforge_types::Sm;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let gpu: Sm = arguments.next().ok_or("usage: runs GPU CODE...")?.parse()?;
    let (mut sass, mut ptx) = (Vec::new(), Vec::new());
    for code in arguments {
        match code.strip_prefix("ptx") {
            Some(sm) => ptx.push(sm.parse::<Sm>()?),
            None => sass.push(code.parse::<Sm>()?),
        }
    }
    match coverage(&sass, &ptx, gpu, false) {
        Coverage::Native(sm) => println!("natively, by the code for {sm}"),
        Coverage::Jit(sm) => println!("compiled by the driver, from the PTX for {sm}"),
        Coverage::None => println!("not at all"),
    }
    Ok(())
}
