//! Walks over containers and their entries.

use std::collections::VecDeque;
use std::ops::Range;

use super::cubin;
use super::entry::{self, Entry, Place};
use super::error::{FatbinError, Fault, Problem};
use crate::elf::Object;
use crate::source::{self, Source, u16_at, u64_at};

pub(super) const MAGIC: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
pub(super) const HEADER: u64 = 16;
/// Most bytes of padding that alignment leaves between containers.
pub(super) const PADDING: u64 = 256;

/// The entries of an object, in the order of the file.
pub struct Entries<'a, S> {
    name: &'a str,
    source: S,
    /// A cubin that was not returned yet.
    cubin: Option<&'a Object>,
    sections: VecDeque<(Place, Range<u64>)>,
    place: Place,
    /// What is left of the current section and of its current container.
    section: Range<u64>,
    body: Range<u64>,
    container: u64,
}

impl<'a, S: Source> Entries<'a, S> {
    pub(super) fn of_cubin(object: &'a Object, source: S) -> Self {
        Self {
            cubin: Some(object),
            ..Self::of_sections(&object.name, source, VecDeque::new())
        }
    }

    pub(super) fn of_sections(
        name: &'a str,
        source: S,
        sections: VecDeque<(Place, Range<u64>)>,
    ) -> Self {
        Self {
            name,
            source,
            cubin: None,
            sections,
            place: Place::Bare,
            section: 0..0,
            body: 0..0,
            container: 0,
        }
    }

    fn advance(&mut self) -> Result<Option<Entry>, Fault> {
        if let Some(object) = self.cubin.take() {
            return cubin::entry(object, &mut self.source).map(Some);
        }
        while self.body.is_empty() {
            if self.section.is_empty() {
                let Some((place, range)) = self.sections.pop_front() else {
                    return Ok(None);
                };
                (self.place, self.section) = (place, range);
            }
            self.open_container()?;
        }
        let (entry, len) = entry::read(
            &mut self.source,
            self.body.clone(),
            self.place,
            self.container,
        )?;
        self.body.start += len;
        Ok(Some(entry))
    }

    /// Takes the next container, or the padding before it, from the section.
    fn open_container(&mut self) -> Result<(), Fault> {
        let at = self.section.start;
        if self.section.end - at < HEADER {
            return self.skip_padding();
        }
        let header: [u8; 16] = source::array(&mut self.source, at)?;
        if header[..4] != MAGIC {
            return self.skip_padding();
        }
        let (version, len) = (u16_at(&header, 4), u16_at(&header, 6));
        if (version, u64::from(len)) != (1, HEADER) {
            return Fault::err(at, Problem::Container { version, len });
        }
        let start = at + HEADER;
        let len = u64_at(&header, 8);
        if len > self.section.end - start {
            return Fault::err(at, Problem::Outside("container"));
        }
        self.body = start..start + len;
        self.container = at;
        self.section.start = start + len;
        Ok(())
    }

    fn skip_padding(&mut self) -> Result<(), Fault> {
        let mut piece = [0; 4096];
        // Padding is usually short, and a source that kept only headers may have no more than a header
        // after it.
        let (mut start, mut len) = (self.section.start, HEADER);
        while !self.section.is_empty() {
            let known = self.source.zeros(self.section.start);
            if known > 0 {
                let left = self.section.end - self.section.start;
                self.section.start += known.min(left);
                (start, len) = (self.section.start, HEADER);
                continue;
            }
            let left = self.section.end - self.section.start;
            let piece = &mut piece[..left.min(len) as usize];
            if self.section.start - start >= PADDING {
                len = (2 * len).min(4096);
            }
            self.source.read_at(self.section.start, piece)?;
            let zeros = piece.iter().take_while(|b| **b == 0).count();
            self.section.start += zeros as u64;
            if zeros < piece.len() {
                break;
            }
        }
        let at = self.section.start;
        let mut magic = [0; 4];
        if self.section.is_empty() {
            return Ok(());
        }
        if self.section.end - at >= HEADER {
            self.source.read_at(at, &mut magic)?;
        }
        if magic == MAGIC {
            return Ok(());
        }
        Fault::err(at, Problem::Magic)
    }
}

impl<S: Source> Iterator for Entries<'_, S> {
    type Item = Result<Entry, FatbinError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if next.is_err() {
            (self.section, self.body) = (0..0, 0..0);
            self.sections.clear();
        }
        next.map_err(|fault| fault.in_object(self.name)).transpose()
    }
}
