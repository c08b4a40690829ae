//! Reads a layer's tar: decompressed, and at its end verified against the image's digests.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;

use super::parse::Compression;
use stackforge_binary::source::{FileSource, Source as _, Window};
use stackforge_types::{Digest, Sha256};

const BUFFER: usize = 64 << 10;

/// The tar of a layer. The last read fails unless every byte was right, so only a caller that reads to the
/// end knows that the tar is verified.
pub struct Tar {
    stream: Stream,
    /// Digest of the blob. `None` if only the diff ID is known.
    digest: Option<Digest>,
    proof: Proof,
    state: State,
}

/// The bytes of a tar, which are not verified.
pub struct Stream(Packed);

/// Verifies a tar; the caller passes it the bytes that it read.
pub struct Proof {
    diff_id: Digest,
    hash: Sha256,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Reading,
    Verified,
    Failed,
}

type Blob = BufReader<Hashing>;

enum Packed {
    None(Blob),
    Gzip(Box<MultiGzDecoder<Blob>>),
    Zstd(zstd::Decoder<'static, Blob>),
}

/// A layer's bytes do not match the image's digests.
#[derive(Debug, thiserror::Error)]
pub enum Unproven {
    /// The blob has another digest.
    #[error("the layer's blob has the digest {found} in place of {expected}; copy the image again")]
    Blob {
        /// The digest in the manifest.
        expected: Digest,
        /// The digest of the bytes.
        found: Digest,
    },
    /// The tar has another digest.
    #[error("the layer's tar has the diff ID {found}, the configuration says {expected}")]
    DiffId {
        /// The diff ID in the configuration.
        expected: Digest,
        /// The digest of the bytes.
        found: Digest,
    },
    /// An earlier read failed verification.
    #[error("the layer was found to be wrong before")]
    Before,
}

impl Stream {
    pub(super) fn new(
        blob: Window<FileSource>,
        compression: Compression,
        hash: Option<Sha256>,
    ) -> io::Result<Self> {
        let blob = BufReader::with_capacity(BUFFER, Hashing { blob, at: 0, hash });
        Ok(Self(match compression {
            Compression::None => Packed::None(blob),
            Compression::Gzip => Packed::Gzip(Box::new(MultiGzDecoder::new(blob))),
            // Takes windows of up to 128 MiB, the most that zstd's levels use.
            Compression::Zstd => Packed::Zstd(zstd::Decoder::with_buffer(blob)?),
        }))
    }

    fn blob(&mut self) -> &mut Blob {
        match &mut self.0 {
            Packed::None(blob) => blob,
            Packed::Gzip(decoder) => decoder.get_mut(),
            Packed::Zstd(decoder) => decoder.get_mut(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Packed::None(blob) => blob.read(buf),
            Packed::Gzip(decoder) => decoder.read(buf),
            Packed::Zstd(decoder) => decoder.read(buf),
        }
    }
}

impl Proof {
    pub(super) fn new(diff_id: Digest) -> Self {
        Self {
            diff_id,
            hash: Sha256::new(),
        }
    }

    /// Hashes the next bytes of the tar.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    /// Fails unless the bytes so far are the whole tar.
    ///
    /// # Errors
    /// [`Unproven`], within an [`io::Error`].
    pub fn verify(&mut self) -> io::Result<()> {
        let found = Digest::from_hash(&std::mem::take(&mut self.hash).finalize());
        if found != self.diff_id {
            let expected = self.diff_id.clone();
            return Err(unproven(Unproven::DiffId { expected, found }));
        }
        Ok(())
    }
}

impl Tar {
    pub(super) fn new(stream: Stream, digest: Option<Digest>, diff_id: Digest) -> Self {
        Self {
            stream,
            digest,
            proof: Proof::new(diff_id),
            state: State::Reading,
        }
    }

    /// Verifies the blob and the tar. Called after the tar's last byte.
    fn verify(&mut self) -> io::Result<()> {
        let blob = self.stream.blob();
        // The blob's digest covers all its bytes, also those after the tar's end.
        loop {
            match blob.fill_buf()?.len() {
                0 => break,
                n => blob.consume(n),
            }
        }
        if let (Some(expected), Some(hash)) = (&self.digest, blob.get_mut().hash.take()) {
            let found = Digest::from_hash(&hash.finalize());
            if found != *expected {
                let expected = expected.clone();
                return Err(unproven(Unproven::Blob { expected, found }));
            }
        }
        self.proof.verify()
    }
}

impl Read for Tar {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.state {
            State::Reading if buf.is_empty() => return Ok(0),
            State::Reading => {}
            State::Verified => return Ok(0),
            State::Failed => return Err(unproven(Unproven::Before)),
        }
        let done = match self.stream.read(buf) {
            Ok(0) => self.verify().map(|()| {
                self.state = State::Verified;
                0
            }),
            Ok(n) => {
                self.proof.update(&buf[..n]);
                Ok(n)
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => return Err(e),
            Err(e) => Err(e),
        };
        if done.is_err() {
            self.state = State::Failed;
        }
        done
    }
}

fn unproven(why: Unproven) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// The bytes of a blob in order, hashed if its digest is known.
struct Hashing {
    blob: Window<FileSource>,
    at: u64,
    hash: Option<Sha256>,
}

impl Read for Hashing {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = (self.blob.size() - self.at).min(buf.len() as u64) as usize;
        self.blob
            .read_at(self.at, &mut buf[..n])
            .map_err(io::Error::other)?;
        if let Some(hash) = &mut self.hash {
            hash.update(&buf[..n]);
        }
        self.at += n as u64;
        Ok(n)
    }
}
