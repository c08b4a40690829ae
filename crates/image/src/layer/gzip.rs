//! Gzip members, which concatenated are one gzip stream (RFC 1952), and eStargz's footer.
//!
//! In: bytes to compress, or an existing deflate stream. Out: members without a name or a time, which depend
//! on the input alone.

use super::LayerError;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// A member's header: deflate, no flags, no time, unknown system.
pub(super) const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
pub(super) const FOOTER_LEN: usize = 51;

/// A member's trailer: CRC-32, and the length modulo 2³².
pub(super) fn trailer(crc32: u32, size: u64) -> [u8; 8] {
    let mut trailer = [0; 8];
    trailer[..4].copy_from_slice(&crc32.to_le_bytes());
    trailer[4..].copy_from_slice(&(size as u32).to_le_bytes());
    trailer
}

/// An empty member whose extra field holds the offset of the table of contents.
pub(super) fn footer(toc: u64) -> [u8; FOOTER_LEN] {
    let mut footer = [0; FOOTER_LEN];
    footer[..10].copy_from_slice(&HEADER);
    // An extra field follows: 26 bytes, of which the subfield `SG` is 22.
    footer[3] = 4;
    footer[10..16].copy_from_slice(&[26, 0, b'S', b'G', 22, 0]);
    footer[16..38].copy_from_slice(format!("{toc:016x}STARGZ").as_bytes());
    // One last stored block, which is empty.
    footer[38..43].copy_from_slice(&[1, 0, 0, 0xff, 0xff]);
    footer
}

/// Compresses whole members and reuses its tables.
pub(super) struct Compressor {
    deflate: Compress,
}

impl Compressor {
    pub(super) fn new(level: u32) -> Self {
        Self {
            deflate: Compress::new(Compression::new(level.min(9)), false),
        }
    }

    /// Appends the member that inflates to `plain`.
    pub(super) fn member(&mut self, plain: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        self.deflate.reset();
        out.extend_from_slice(&HEADER);
        loop {
            let consumed = self.deflate.total_in() as usize;
            out.reserve((plain.len() - consumed) / 2 + 128);
            let status = (self.deflate)
                .compress_vec(&plain[consumed..], out, FlushCompress::Finish)
                .map_err(std::io::Error::other)?;
            if status == Status::StreamEnd {
                break;
            }
        }
        let mut crc = Crc::new();
        crc.update(plain);
        out.extend_from_slice(&trailer(crc.sum(), plain.len() as u64));
        Ok(())
    }
}

/// Compresses what is compressed once and fetched often: the result is smaller, but it is slower than
/// [`Compressor`].
#[derive(Default)]
pub(super) struct Dense(Option<libdeflater::Compressor>);

impl Dense {
    /// libdeflate's level. Its slowest, 12, makes libcudnn_graph.so 2 % smaller than this.
    const LEVEL: i32 = 9;

    /// Returns the member that inflates to `plain`, whose checksum is known.
    pub(super) fn member(&mut self, plain: &[u8], crc: &Crc) -> Result<Vec<u8>, LayerError> {
        let level = libdeflater::CompressionLvl::new(Self::LEVEL).unwrap_or_default();
        let compressor = (self.0).get_or_insert_with(|| libdeflater::Compressor::new(level));
        let mut out = HEADER.to_vec();
        out.resize(
            HEADER.len() + compressor.deflate_compress_bound(plain.len()),
            0,
        );
        let len = compressor
            .deflate_compress(plain, &mut out[HEADER.len()..])
            .map_err(|e| LayerError::Write(std::io::Error::other(e)))?;
        out.truncate(HEADER.len() + len);
        out.extend_from_slice(&trailer(crc.sum(), plain.len() as u64));
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::MultiGzDecoder;
    use std::io::Read as _;

    /// A layer must not depend on which thread compressed a chunk, or what it compressed before.
    #[test]
    fn what_was_compressed_before_does_not_matter() {
        let parts = [vec![3; 200_000], b"kernel".repeat(9000), Vec::new()];
        let mut used = Dense::default();
        for part in parts.iter().chain(&parts) {
            let mut crc = Crc::new();
            crc.update(part);
            let member = used.member(part, &crc).unwrap();
            assert_eq!(member, Dense::default().member(part, &crc).unwrap());
            let mut found = Vec::new();
            MultiGzDecoder::new(&member[..])
                .read_to_end(&mut found)
                .unwrap();
            assert_eq!(found, *part);
        }
    }

    #[test]
    fn members_in_a_row_are_one_stream() {
        let mut compressor = Compressor::new(6);
        let mut out = Vec::new();
        let noise: Vec<u8> = (0..300_000u32)
            .map(|i| (i.wrapping_mul(i) >> 7) as u8)
            .collect();
        for part in [&b"one "[..], b"", &noise] {
            compressor.member(part, &mut out).unwrap();
        }
        out.extend_from_slice(&footer(0x1234));
        let mut found = Vec::new();
        MultiGzDecoder::new(&out[..])
            .read_to_end(&mut found)
            .unwrap();
        assert_eq!(found, [&b"one "[..], &noise].concat());
    }

    #[test]
    fn what_a_compressor_did_before_changes_nothing() {
        let mut compressor = Compressor::new(6);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        compressor.member(b"content content", &mut first).unwrap();
        compressor.member(b"other", &mut Vec::new()).unwrap();
        compressor.member(b"content content", &mut second).unwrap();
        assert_eq!(first, second);
    }
}
