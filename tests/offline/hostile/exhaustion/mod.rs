//! Inputs that are small and ask for much: every claim of a size or a count, and every table that
//! could be read again and again. Work is counted in bytes read, never in time.

mod archives;
mod code;
mod objects;
mod tables;

use std::io::Write as _;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use stackforge_binary::elf::{self, Object};
use stackforge_binary::fatbin;
use stackforge_binary::source::{ReadError, Source, range};

/// Counts the bytes that are read of a source; zeros follow its own up to `size`.
pub struct Counted<'a> {
    bytes: &'a [u8],
    size: u64,
    pub read: u64,
}

impl<'a> Counted<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::sparse(bytes, bytes.len() as u64)
    }

    pub fn sparse(bytes: &'a [u8], size: u64) -> Self {
        Self {
            bytes,
            size,
            read: 0,
        }
    }
}

impl Source for Counted<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        range(offset, buf.len() as u64, self.size)?;
        self.read += buf.len() as u64;
        buf.fill(0);
        let at = (offset as usize).min(self.bytes.len());
        let n = buf.len().min(self.bytes.len() - at);
        buf[..n].copy_from_slice(&self.bytes[at..at + n]);
        Ok(())
    }
}

pub fn read(source: &mut impl Source) -> Result<Object, elf::Problem> {
    Object::read("x", source, &fatbin::SECTIONS).map_err(|e| e.problem)
}

/// Puts little-endian numbers at an offset.
pub fn put<const N: usize>(bytes: &mut [u8], at: usize, numbers: [u64; N], width: usize) {
    for (n, number) in numbers.iter().enumerate() {
        let to = at + n * width;
        bytes[to..to + width].copy_from_slice(&number.to_le_bytes()[..width]);
    }
}

pub fn deflated(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub fn crc32(content: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    crc.sum()
}

/// An entry of a fatbin without code, for `sm_90`.
pub fn entry() -> [u8; 64] {
    let mut entry = [0; 64];
    entry[..8].copy_from_slice(&[2, 0, 1, 1, 64, 0, 0, 0]);
    entry[28] = 90;
    entry
}

pub fn container(body: &[u8]) -> Vec<u8> {
    let mut out = b"\x50\xed\x55\xba\x01\x00\x10\x00".to_vec();
    out.extend((body.len() as u64).to_le_bytes());
    out.extend(body);
    out
}
