//! Every member of a wheel inflated once by zlib-rs, on one core, and nothing done with it.
//!
//! Usage: inflate WHEEL, as `benches/audit.py` runs it beside an audit of the same wheel. Checks no
//! CRC-32, so that it is the least that a reader of all content could take.

use std::path::Path;

use flate2::{Decompress, FlushDecompress, Status};
use stackforge_binary::source::{FileSource, Source as _};
use stackforge_binary::zip::{Archive, Method};

const INPUT: u64 = 256 << 10;
const OUTPUT: usize = 256 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("no wheel is given")?;
    let mut source = FileSource::open(Path::new(&path))?;
    let archive = Archive::read(&path, &mut source)?;
    let mut input = vec![0; INPUT as usize];
    let mut output = vec![0; OUTPUT];
    let mut decoder = Decompress::new(false);
    for member in &archive.members {
        if member.method != Method::Deflate {
            continue;
        }
        let range = archive.locate(member, &mut source)?;
        decoder.reset(false);
        let mut at = range.start;
        let mut status = Status::Ok;
        while status != Status::StreamEnd {
            let len = INPUT.min(range.end - at) as usize;
            if len == 0 {
                return Err("a member is cut".into());
            }
            source.read_at(at, &mut input[..len])?;
            at += len as u64;
            let start = decoder.total_in();
            loop {
                let consumed = (decoder.total_in() - start) as usize;
                let rest = &input[consumed..len];
                let made = decoder.total_out();
                status = decoder.decompress(rest, &mut output, FlushDecompress::None)?;
                let full = decoder.total_out() - made == OUTPUT as u64;
                if status == Status::StreamEnd || (rest.is_empty() && !full) {
                    break;
                }
            }
        }
    }
    Ok(())
}
