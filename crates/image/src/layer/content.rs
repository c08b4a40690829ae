//! Turns a file's content into gzip members: the wheel's own deflate stream, or bytes compressed here.
//!
//! In: a [`Content`]. Out: [`Part`]s, each with compressed bytes and what they inflate to, in pieces, so
//! that a member of any size needs a few hundred KiB of memory. A member's length, end and CRC-32 must match
//! the wheel's directory.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::LayerError;
use super::cut::Changed;
use super::gzip::{self, Compressor, Dense};
use super::ordered::Parts;
use super::record::{self, Sha256};
use super::wheel::Wheel;
use stackforge_binary::source::{ReadError, Source};
use stackforge_binary::zip::Member;

/// Most inflated bytes of a part, where a deflate stream is passed on.
const PLAIN: usize = 256 << 10;
const COMPRESSED: u64 = 64 << 10;

#[derive(Clone, Copy)]
pub(super) enum Content<'a, S> {
    Bytes(&'a [u8]),
    /// A whole deflate stream.
    Deflated(&'a Wheel<S>, &'a Member),
    /// A part of a stored member: an offset and a length in bytes.
    Stored(&'a Wheel<S>, &'a Member, u64, u64),
    /// A part of a file that replaces a member: an offset and a length in bytes.
    Changed(&'a Wheel<S>, &'a Member, &'a Changed, u64, u64),
}

pub(super) struct Part {
    pub gzip: Vec<u8>,
    pub plain: Vec<u8>,
    pub role: Role,
}

pub(super) enum Role {
    Head,
    /// Bytes of a content that continues or ends with an `End`.
    Content,
    /// End of a chunk that was compressed here: its digest and its checksum.
    End(Option<(Sha256, Crc)>),
}

/// Buffers that a thread reuses.
pub(super) struct Worker {
    compressor: Compressor,
    dense: Dense,
    inflate: Decompress,
}

pub(super) type Out = Parts<Part, LayerError>;

impl Worker {
    pub(super) fn new(level: u32) -> Self {
        Self {
            compressor: Compressor::new(level),
            dense: Dense::default(),
            inflate: Decompress::new(false),
        }
    }

    pub(super) fn member(&mut self, plain: &[u8]) -> Result<Vec<u8>, LayerError> {
        let mut gzip = Vec::new();
        self.compressor
            .member(plain, &mut gzip)
            .map_err(LayerError::Write)?;
        Ok(gzip)
    }

    pub(super) fn head(&mut self, plain: Vec<u8>, out: &Out) -> Result<bool, LayerError> {
        if plain.is_empty() {
            return Ok(true);
        }
        let gzip = self.member(&plain)?;
        let role = Role::Head;
        Ok(out.put(Part { gzip, plain, role }))
    }

    pub(super) fn content<S: Source + Clone>(
        &mut self,
        content: &Content<'_, S>,
        out: &Out,
    ) -> Result<(), LayerError> {
        let plain = match *content {
            Content::Deflated(wheel, member) => return self.deflated(wheel, member, out),
            Content::Bytes(bytes) => bytes.to_vec(),
            Content::Changed(wheel, member, changed, offset, len) => {
                let mut plain = vec![0; len as usize];
                (changed.read_exact_at(&mut plain, offset))
                    .map_err(|source| wheel.content(member, ReadError::Io { offset, source }))?;
                plain
            }
            Content::Stored(wheel, member, offset, len) => {
                let mut source = wheel.source.clone();
                let range = wheel.archive.locate(member, &mut source)?;
                let mut plain = vec![0; len as usize];
                (source.read_at(range.start + offset, &mut plain))
                    .map_err(|e| wheel.content(member, e))?;
                plain
            }
        };
        let mut crc = Crc::new();
        crc.update(&plain);
        let digest = record::sha256(&plain);
        let gzip = match content {
            Content::Changed(..) => self.dense.member(&plain, &crc)?,
            _ => self.member(&plain)?,
        };
        let role = Role::End(Some((digest, crc)));
        out.put(Part { gzip, plain, role });
        Ok(())
    }

    fn deflated<S: Source + Clone>(
        &mut self,
        wheel: &Wheel<S>,
        member: &Member,
        out: &Out,
    ) -> Result<(), LayerError> {
        let failed = |e| wheel.content(member, e);
        let mut source = wheel.source.clone();
        let range = wheel.archive.locate(member, &mut source)?;
        self.inflate.reset(false);
        let mut gzip = gzip::HEADER.to_vec();
        let room = |made: u64| PLAIN.min((member.size - made) as usize + 1);
        let mut plain = Vec::with_capacity(room(0));
        let mut piece = vec![0; COMPRESSED.min(member.compressed) as usize];
        let mut crc = Crc::new();
        let mut at = range.start;
        loop {
            let len = COMPRESSED.min(range.end - at) as usize;
            source.read_at(at, &mut piece[..len]).map_err(failed)?;
            at += len as u64;
            let mut rest = &piece[..len];
            loop {
                let (consumed, made) = (self.inflate.total_in(), self.inflate.total_out());
                let status = (self.inflate)
                    .decompress_vec(rest, &mut plain, FlushDecompress::None)
                    .map_err(|_| failed(ReadError::Damaged { offset: made }))?;
                let (new, offset) = (self.inflate.total_in() - consumed, self.inflate.total_out());
                gzip.extend_from_slice(&rest[..new as usize]);
                rest = &rest[new as usize..];
                if offset > member.size {
                    let size = member.size;
                    return Err(failed(ReadError::Longer { offset, size }));
                }
                if status == Status::StreamEnd {
                    crc.update(&plain);
                    let left = range.end - at + rest.len() as u64;
                    check_end(member, offset, left).map_err(failed)?;
                    wheel.check_crc(member, crc.sum())?;
                    gzip.extend_from_slice(&gzip::trailer(member.crc32, member.size));
                    let role = Role::End(None);
                    out.put(Part { gzip, plain, role });
                    return Ok(());
                }
                if plain.len() == plain.capacity() {
                    crc.update(&plain);
                    let part = Part {
                        gzip: std::mem::take(&mut gzip),
                        plain: std::mem::replace(&mut plain, Vec::with_capacity(room(offset))),
                        role: Role::Content,
                    };
                    if !out.put(part) {
                        return Ok(());
                    }
                } else if rest.is_empty() {
                    break;
                } else if new == 0 && offset == made {
                    return Err(failed(ReadError::Damaged { offset }));
                }
            }
            if at == range.end {
                let offset = self.inflate.total_out();
                return Err(failed(ReadError::Damaged { offset }));
            }
        }
    }
}

/// Checks the end of a stream that inflated to `made` bytes and left `left` compressed bytes unread.
fn check_end(member: &Member, made: u64, left: u64) -> Result<(), ReadError> {
    let offset = made;
    if made < member.size {
        let size = member.size;
        return Err(ReadError::Shorter { offset, size });
    }
    if left > 0 {
        return Err(ReadError::Trailing { offset, left });
    }
    Ok(())
}
