//! The bytes of a blob that is sent: in memory, or in a file.

use std::io::SeekFrom;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream;
use reqwest::Body;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use stackforge_types::{Digest, Sha256};

use super::RegistryError;

/// Bytes that are read and sent at a time.
const PIECE: u64 = 256 << 10;

/// Where a blob's bytes are.
#[derive(Debug, Clone)]
pub enum Payload {
    /// Bytes in memory.
    Memory(Bytes),
    /// A whole file.
    File(PathBuf),
    /// A file from an offset in bytes on, such as the member of an archive.
    Part(PathBuf, u64),
}

impl Payload {
    /// Reads and hashes `size` bytes, or a whole file.
    pub(super) async fn digest(&self, size: u64) -> Result<Digest, RegistryError> {
        let (path, start, most) = match self {
            Self::Memory(bytes) => return Ok(Digest::of(bytes)),
            Self::File(path) => (path, 0, u64::MAX),
            Self::Part(path, start) => (path, *start, size),
        };
        let digest = digest_of(path, start, most).await;
        digest.map_err(|source| RegistryError::File {
            doing: "reading",
            path: path.clone(),
            source,
        })
    }

    /// A request body with a range of the bytes, read while it is sent. Calls `sent` with the size of each
    /// piece.
    pub(super) fn body(
        &self,
        range: Range<u64>,
        sent: impl Fn(u64) + Clone + Send + Sync + 'static,
    ) -> Body {
        match self.clone() {
            Self::Memory(bytes) => {
                // A range past the end is sent short, which the server refuses by its Content-Length.
                let end = range.end.min(bytes.len() as u64);
                let pieces = (range.start..end).step_by(PIECE as usize).map(move |at| {
                    let piece = bytes.slice(at as usize..end.min(at + PIECE) as usize);
                    sent(piece.len() as u64);
                    Ok::<_, std::io::Error>(piece)
                });
                Body::wrap_stream(stream::iter(pieces))
            }
            Self::File(path) => file_body(path, 0, range, sent),
            Self::Part(path, start) => file_body(path, start, range, sent),
        }
    }
}

/// Hashes at most `most` bytes of a file from `start` on.
async fn digest_of(path: &Path, start: u64, most: u64) -> std::io::Result<Digest> {
    let mut file = tokio::fs::File::open(path).await?;
    file.seek(SeekFrom::Start(start)).await?;
    let mut file = file.take(most);
    let (mut hash, mut piece) = (Sha256::new(), vec![0; PIECE as usize]);
    loop {
        match file.read(&mut piece).await? {
            0 => return Ok(Digest::from_hash(&hash.finalize())),
            count => hash.update(&piece[..count]),
        }
    }
}

/// A request body with a range of a blob that starts at `base` in a file.
fn file_body(
    path: PathBuf,
    base: u64,
    range: Range<u64>,
    sent: impl Fn(u64) + Clone + Send + Sync + 'static,
) -> Body {
    let start = (None, range.start);
    Body::wrap_stream(stream::try_unfold(start, move |(file, at)| {
        let (path, sent, end) = (path.clone(), sent.clone(), range.end);
        async move {
            let mut file = match file {
                Some(file) => file,
                None => {
                    let mut file = tokio::fs::File::open(&path).await?;
                    file.seek(SeekFrom::Start(base + at)).await?;
                    file
                }
            };
            let mut piece = vec![0; PIECE.min(end - at) as usize];
            if piece.is_empty() {
                return Ok(None);
            }
            let count = file.read(&mut piece).await?;
            if count == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            piece.truncate(count);
            sent(count as u64);
            let next = (Some(file), at + count as u64);
            Ok::<_, std::io::Error>(Some((Bytes::from(piece), next)))
        }
    }))
}
