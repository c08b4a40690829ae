//! How a layer is compressed, and the compressor of one piece: to one gzip member or zstd frame.

use std::io;

use serde::Serialize;

/// How a layer is compressed, and at which level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Gzip at level 1 to 12 of libdeflate. Every engine and registry takes it.
    Gzip(u8),
    /// Zstandard at level 1 to 19. Smaller and faster; Docker before 23 cannot load it.
    Zstd(u8),
}

impl Compression {
    /// About the size of `gzip -6` where it matters, at twice the speed.
    pub const GZIP: Self = Self::Gzip(5);
    /// Zstandard at its default level.
    pub const ZSTD: Self = Self::Zstd(3);

    /// Media type of such a layer in an OCI manifest.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Gzip(_) => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstd(_) => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }

    /// Bytes of a piece. Larger pieces compress a little better, smaller ones wait less.
    pub(super) fn piece(self) -> usize {
        match self {
            Self::Gzip(_) => 1 << 20,
            Self::Zstd(_) => 4 << 20,
        }
    }
}

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
