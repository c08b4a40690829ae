//! Assembles a blob from local pieces and fetched ranges.
//!
//! In: the blob as [`Piece`]s in order. Out: the same file as a plain fetch gives, which gets its final name
//! only after verification. It grows from its start like a plain fetch, so either can resume what a killed
//! process left. If the server has no ranges, or the result has another digest, only the attempt is lost:
//! the blob is then fetched plainly.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _};

use super::event::Event;
use super::manifest::Descriptor;
use super::{Registry, RegistryError};
use crate::part::{PartFile, blocking};
use crate::retry::Backoff;
use stackforge_types::reference::Repository;

/// Most bytes of one request; each running request may hold as many in memory.
const LONGEST: u64 = 2 << 20;
/// Most concurrent requests.
const AT_ONCE: usize = 4;
const BUFFER: usize = 256 << 10;

/// A part of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of a local file.
    Local {
        /// The file.
        path: PathBuf,
        /// Offset in the file in bytes.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Bytes that are in memory.
    Memory(Bytes),
    /// Bytes that have to be fetched.
    Remote {
        /// Number of bytes.
        length: u64,
    },
}

impl Piece {
    /// Number of the blob's bytes in this piece.
    pub fn len(&self) -> u64 {
        match self {
            Self::Local { length, .. } | Self::Remote { length } => *length,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the piece has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn without_start(&self, bytes: u64) -> Self {
        match self {
            Self::Local {
                path,
                offset,
                length,
            } => Self::Local {
                path: path.clone(),
                offset: offset + bytes,
                length: length - bytes,
            },
            Self::Memory(own) => Self::Memory(own.slice(bytes as usize..)),
            Self::Remote { length } => Self::Remote {
                length: length - bytes,
            },
        }
    }
}

/// The pieces from an offset on, each with its own offset; long remote pieces are split.
fn pieces_from(pieces: &[Piece], from: u64) -> Vec<(u64, Piece)> {
    let mut rest = Vec::new();
    let mut at = 0;
    for piece in pieces {
        let end = at + piece.len();
        if end > from {
            let start = at.max(from);
            let piece = piece.without_start(start - at);
            match piece {
                Piece::Remote { length } => {
                    for part in (0..length).step_by(LONGEST as usize) {
                        let length = LONGEST.min(length - part);
                        rest.push((start + part, Piece::Remote { length }));
                    }
                }
                piece => rest.push((start, piece)),
            }
        }
        at = end;
    }
    rest
}

impl Registry {
    /// Fills the part file from pieces. False if that is not possible; then the file holds only right bytes,
    /// or is empty.
    pub(super) async fn patch(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        pieces: &[Piece],
        mut part: PartFile,
        bytes: &mut u64,
    ) -> Result<(PartFile, bool), RegistryError> {
        if pieces.iter().map(Piece::len).sum::<u64>() != blob.size {
            return Ok((part, false));
        }
        let path = part.path().to_owned();
        let failed = |source| RegistryError::writing(&path, source);
        let mut arriving = stream::iter(pieces_from(pieces, part.have()))
            .map(|(at, piece)| async move {
                match piece {
                    Piece::Remote { length } => {
                        let range = at..at + length;
                        let came = self.range(repository, blob, range).await?;
                        Ok::<_, RegistryError>(came.map(|bytes| (length, Piece::Memory(bytes))))
                    }
                    piece => Ok(Some((0, piece))),
                }
            })
            .buffered(AT_ONCE);
        while let Some(next) = arriving.next().await {
            let Some((fetched, piece)) = next? else {
                return Ok((part, false));
            };
            *bytes += fetched;
            let length = piece.len();
            let complete;
            (part, complete) = blocking(move || append(&mut part, &piece).map(|done| (part, done)))
                .await
                .map_err(failed)?;
            if !complete {
                return Ok((part, false));
            }
            if fetched == 0 {
                let digest = blob.digest.clone();
                let bytes = length;
                self.notify(Event::Reused { digest, bytes });
            }
        }
        let complete = part.digest() == blob.digest;
        if !complete {
            part.restart().map_err(failed)?;
            let (digest, bytes) = (blob.digest.clone(), blob.size);
            self.notify(Event::Lost { digest, bytes });
        }
        Ok((part, complete))
    }

    /// Reads a whole range into memory. `None` if the server does not support ranges.
    ///
    /// # Errors
    /// If the blob is missing, or the network fails for as long as [`RetryPolicy`](crate::RetryPolicy)
    /// allows.
    pub async fn range(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, RegistryError> {
        let mut backoff = Backoff::default();
        let mut all = BytesMut::new();
        loop {
            let from = range.start + all.len() as u64;
            match self
                .append_part(repository, blob, from..range.end, &mut all)
                .await
            {
                Ok(false) => return Ok(None),
                Ok(true) if all.len() as u64 == range.end - range.start => {
                    return Ok(Some(all.freeze()));
                }
                Ok(true) => {
                    let ask = self.about_blob("reading", repository, &blob.digest, "pull");
                    let error = RegistryError::Truncated {
                        host: self.host().to_owned(),
                        doing: ask.doing,
                        received: range.start + all.len() as u64,
                        size: range.end,
                    };
                    self.pause_or_fail(&mut backoff, error).await?;
                }
                Err(error) => self.pause_or_fail(&mut backoff, error).await?,
            }
        }
    }

    /// Appends as much of a range as one connection brings. False if the server ignored the range.
    async fn append_part(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        range: Range<u64>,
        all: &mut BytesMut,
    ) -> Result<bool, RegistryError> {
        let mut stream = self.blob(repository, &blob.digest, range).await?;
        if !stream.ranged() || stream.size().is_some_and(|size| size != blob.size) {
            return Ok(false);
        }
        while let Some(chunk) = stream.next().await? {
            all.extend_from_slice(&chunk);
            self.paced(chunk.len() as u64).await;
            self.notify(Event::Received {
                digest: blob.digest.clone(),
                bytes: chunk.len() as u64,
            });
        }
        Ok(true)
    }
}

/// Appends a piece. False if a local file is shorter than expected; it may be damaged, so nothing is kept of
/// what it gave.
fn append(part: &mut PartFile, piece: &Piece) -> io::Result<bool> {
    match piece {
        Piece::Memory(bytes) => part.append(bytes).map(|()| true),
        Piece::Local {
            path,
            offset,
            length,
        } => match append_local(part, path, *offset, *length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                part.restart().map(|()| false)
            }
            done => done.map(|()| true),
        },
        // Remote pieces were fetched before.
        Piece::Remote { .. } => Ok(true),
    }
}

fn append_local(part: &mut PartFile, path: &Path, offset: u64, length: u64) -> io::Result<()> {
    let mut from = File::open(path)?;
    from.seek(SeekFrom::Start(offset))?;
    let mut buffer = vec![0; BUFFER.min(usize::try_from(length).unwrap_or(BUFFER))];
    let mut left = length;
    while left > 0 {
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(BUFFER));
        from.read_exact(&mut buffer[..wanted])?;
        part.append(&buffer[..wanted])?;
        left -= wanted as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_begins_in_the_middle_of_a_piece() {
        let local = |offset, length| Piece::Local {
            path: "old".into(),
            offset,
            length,
        };
        let remote = |length| Piece::Remote { length };
        let pieces = [
            remote(10),
            local(100, 20),
            Piece::Memory(Bytes::from_static(b"abcde")),
            remote(LONGEST + 1),
        ];
        let left = pieces_from(&pieces, 15);
        assert_eq!(left[0], (15, local(105, 15)));
        assert_eq!(left[1], (30, Piece::Memory(Bytes::from_static(b"abcde"))));
        assert_eq!(left[2], (35, remote(LONGEST)));
        assert_eq!(left[3], (35 + LONGEST, remote(1)));
        assert_eq!(pieces_from(&pieces, 33)[0].1, Piece::Memory("de".into()));
        assert!(pieces_from(&pieces, 36 + LONGEST).is_empty());
    }
}
