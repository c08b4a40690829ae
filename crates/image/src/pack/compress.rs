//! Compresses one piece to one gzip member or zstd frame.

use std::io;

use super::Compression;

pub(super) enum Compressor {
    Gzip(libdeflater::Compressor),
    Zstd(u8, Option<zstd::bulk::Compressor<'static>>),
}

impl Compressor {
    pub(super) fn new(compression: Compression) -> Self {
        match compression {
            Compression::Gzip(level) => {
                let level = i32::from(level.clamp(1, 12));
                // libdeflate has only these levels.
                let level = libdeflater::CompressionLvl::new(level).unwrap_or_default();
                Self::Gzip(libdeflater::Compressor::new(level))
            }
            Compression::Zstd(level) => Self::Zstd(level.clamp(1, 19), None),
        }
    }

    pub(super) fn compress(&mut self, plain: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(compressor) => {
                let mut out = vec![0; compressor.gzip_compress_bound(plain.len())];
                let len = (compressor.gzip_compress(plain, &mut out)).map_err(io::Error::other)?;
                out.truncate(len);
                // libdeflate writes Unix as the operating system; here it is unknown.
                out[9] = 0xff;
                Ok(out)
            }
            Self::Zstd(level, made) => {
                let compressor = match made {
                    Some(compressor) => compressor,
                    None => made.insert(zstd::bulk::Compressor::new(i32::from(*level))?),
                };
                compressor.compress(plain)
            }
        }
    }
}
