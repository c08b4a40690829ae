//! Collects headers of fatbins from an object that is streamed once.
//!
//! In: the object's bytes, in pieces, before the position of its sections is known (an ELF object has
//! it at its end). Out: the headers of everything that looks like a container, kept for
//! [`super::entries`], which reads them once the sections are known. What turns out to be missing then
//! has to be read again. Bytes that look like a container outside these sections are kept in vain.

use crate::source::{Sparse, u32_at, u64_at};

use super::walk::{HEADER, MAGIC, PADDING};

/// Magic, version and header length, which are the same in every format since CUDA 4.
const START: [u8; 8] = [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], 1, 0, 16, 0];
const ENTRY: u64 = 64;
/// Limit on the headers that are kept of one object. Real objects have some MiB; a hostile one may
/// consist of nothing else.
const MOST_KEPT: usize = 32 << 20;

/// Searches an object, streamed in pieces, for containers.
#[derive(Default)]
pub struct Scan {
    /// Offset in the object at which to look next.
    next: u64,
    /// End of the current container.
    container: Option<u64>,
    /// Outside of containers, the end of what may be padding.
    padding: u64,
    /// Whether there were only zeros since the last container. Pruning leaves many.
    zeros: bool,
    /// Bytes from `next` on that have passed: a header that was cut.
    held: Vec<u8>,
    passed: u64,
}

impl Scan {
    /// Takes the next piece of the object, and adds what may matter of it to `kept`, up to a limit.
    pub fn pass(&mut self, piece: &[u8], kept: &mut Sparse) {
        if kept.kept() > MOST_KEPT {
            return;
        }
        let start = self.passed - self.held.len() as u64;
        self.passed += piece.len() as u64;
        let mut whole = std::mem::take(&mut self.held);
        let bytes = if whole.is_empty() {
            piece
        } else {
            whole.extend_from_slice(piece);
            &whole
        };
        while let Some(rest) = (self.next.checked_sub(start))
            .and_then(|skip| bytes.get(usize::try_from(skip).ok()?..))
            .filter(|rest| !rest.is_empty())
        {
            let looked = match self.container {
                None => self.between(rest, kept),
                Some(end) => self.inside(end, rest, kept),
            };
            if looked.is_none() {
                let rest = &bytes[(self.next - start) as usize..];
                self.held = rest.to_vec();
                return;
            }
        }
    }

    /// Looks for the next container. `None` if its header is cut.
    fn between(&mut self, rest: &[u8], kept: &mut Sparse) -> Option<()> {
        if self.zeros {
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            kept.keep_zeros(self.next..self.next + zeros as u64);
            self.zeros = zeros == rest.len();
        }
        let found = memchr::memmem::find(rest, &START);
        let padding = self.padding.saturating_sub(self.next) as usize;
        kept.keep(self.next, &rest[..found.unwrap_or(rest.len()).min(padding)]);
        // The piece may end with a cut start.
        let skip = found.unwrap_or(rest.len().saturating_sub(START.len() - 1));
        self.next += skip as u64;
        found?;
        let header = rest[skip..].first_chunk::<{ HEADER as usize }>()?;
        kept.keep(self.next, header);
        self.next += HEADER;
        self.container = Some(self.next.saturating_add(u64_at(header, 8)));
        Some(())
    }

    /// Takes the next entry of the container that ends at `end`. `None` if its header is cut.
    fn inside(&mut self, end: u64, rest: &[u8], kept: &mut Sparse) -> Option<()> {
        if end.saturating_sub(self.next) < ENTRY {
            return self.leave(end.max(self.next));
        }
        let header = rest.first_chunk::<{ ENTRY as usize }>()?;
        kept.keep(self.next, header);
        let len = u64::from(u32_at(header, 4)).saturating_add(u64_at(header, 8));
        let next = self.next.saturating_add(len);
        // An invalid entry ends the container. The match may have been false, so the search resumes
        // right after the header.
        if len < ENTRY || next > end {
            return self.leave(self.next + ENTRY);
        }
        self.next = next;
        Some(())
    }

    fn leave(&mut self, at: u64) -> Option<()> {
        (self.next, self.container) = (at, None);
        self.zeros = true;
        self.padding = at.saturating_add(PADDING);
        Some(())
    }
}
