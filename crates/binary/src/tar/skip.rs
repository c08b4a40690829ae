//! Reads and skips bytes as far as they exist.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

const PIECE: usize = 16 << 10;

/// Reads as much of `buf` as exists, and returns the number of bytes.
pub(super) fn fill(from: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < buf.len() {
        match from.read(&mut buf[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(have)
}

pub(super) fn read<R: Read>(from: &mut R, n: u64) -> io::Result<u64> {
    let mut buf = [0; PIECE];
    let mut passed = 0;
    while passed < n {
        let most = (n - passed).min(PIECE as u64) as usize;
        match fill(from, &mut buf[..most])? {
            0 => break,
            found => passed += found as u64,
        }
    }
    Ok(passed)
}

/// Seeks forward, but never beyond the end: such a seek would succeed and hide that bytes are missing.
pub(super) fn seek<R: Read + Seek>(from: &mut R, n: u64) -> io::Result<u64> {
    if n == 0 {
        return Ok(0);
    }
    let here = from.stream_position()?;
    let end = from.seek(SeekFrom::End(0))?.max(here);
    let to = here.saturating_add(n).min(end);
    from.seek(SeekFrom::Start(to))?;
    Ok(to - here)
}
