//! Measures a gzip member. Its length is known only after inflating it.

use flate2::{Decompress, FlushDecompress, Status};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const PIECE: u64 = 64 << 10;
/// Bytes of a gzip header without optional fields, as stackforge writes it; and of CRC-32 and length.
const HEADER: u64 = 10;
const TRAILER: u64 = 8;

/// Returns the bytes of the gzip member at `offset`, which ends before `end` and inflates to `length` bytes.
pub fn length(path: &Path, offset: u64, end: u64, length: u64) -> Option<u64> {
    let file = File::open(path).ok()?;
    let mut header = [0; HEADER as usize];
    file.read_exact_at(&mut header, offset).ok()?;
    if !header.starts_with(&[0x1f, 0x8b, 8, 0]) {
        return None;
    }
    let mut inflate = Decompress::new(false);
    let mut input = vec![0; PIECE as usize];
    let mut output = vec![0; 4 * PIECE as usize];
    let mut at = offset + HEADER;
    loop {
        let wanted = PIECE.min(end.checked_sub(at)?) as usize;
        if wanted == 0 {
            return None;
        }
        file.read_exact_at(&mut input[..wanted], at).ok()?;
        let (before, made) = (inflate.total_in(), inflate.total_out());
        let none = FlushDecompress::None;
        let status = inflate
            .decompress(&input[..wanted], &mut output, none)
            .ok()?;
        at += inflate.total_in() - before;
        if status == Status::StreamEnd {
            let whole = at.checked_add(TRAILER)?;
            return (inflate.total_out() == length && whole <= end).then_some(whole - offset);
        }
        let stuck = inflate.total_in() == before && inflate.total_out() == made;
        if stuck || inflate.total_out() > length {
            return None;
        }
    }
}
