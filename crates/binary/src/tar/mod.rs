//! Tar streams from untrusted sources, read forward only, and the one [`Writer`] of tar streams. They
//! are mostly layers.
//!
//! In: any [`Read`], never rewound. Out: [`Entry`]s, each a checked [`Header`] and its content. ustar,
//! pax (POSIX.1-2017, pax, "Extended Header") and GNU tar's long names and base-256 numbers are read;
//! sparse and multi-volume members are errors. So is everything that programs read differently: two
//! names for one member, content after the header of a directory, a zero block between members. Never
//! holds more than [`MOST_PAX`] bytes of records for a member and [`MOST_GLOBAL`] for the whole stream,
//! whatever the stream claims. The `tar` crate reads long names and records without a bound, which
//! needs gigabytes for a compressed layer of a few kilobytes.
//!
//! Bytes of a name that are not UTF-8 become `\xNN`, reversibly (`name.rs`), so two names that differ
//! in the stream also differ here.

mod block;
mod error;
mod header;
mod name;
mod pax;
mod skip;
#[cfg(test)]
mod tests;
mod write;

use std::io::{self, Read, Seek};

use block::{Ahead, BLOCK, Block, Flag};
use error::fault;
use pax::Records;

pub use error::{Problem, TarError};
pub use header::{Header, MemberKind};
pub use name::{bytes, text};
pub use pax::{MOST_GLOBAL, MOST_PAX};
pub use write::{Attributes, Format, Owner, Writer};

/// Longest name or link target of a member, in bytes: four times Linux's limit on a path.
pub const MOST_NAME: u64 = 16 << 10;

/// Reads a tar stream, member by member.
pub struct Reader<R> {
    inner: R,
    /// Skips bytes by reading or seeking, and returns the number of bytes that existed.
    skip: fn(&mut R, u64) -> io::Result<u64>,
    /// Offset of the next byte of `inner`.
    offset: u64,
    /// Unread content of the current entry, and the zeros after it.
    content: u64,
    padding: u64,
    global: Records,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Reading,
    Ended,
    Failed,
}

impl<R: Read> Reader<R> {
    /// Creates a reader. It reads blocks of 512 bytes, so `inner` should be buffered.
    pub fn new(inner: R) -> Self {
        Self::with(inner, skip::read)
    }

    fn with(inner: R, skip: fn(&mut R, u64) -> io::Result<u64>) -> Self {
        Self {
            inner,
            skip,
            offset: 0,
            content: 0,
            padding: 0,
            global: Records::default(),
            state: State::Reading,
        }
    }

    /// Returns the next member. `None` once the archive has ended; `inner` has then been read to its
    /// end, so that a digest over it covers every byte.
    ///
    /// # Errors
    /// If the stream cannot be read, is damaged, exceeds a limit, or has something that programs read
    /// differently. Nothing can be read after an error.
    #[expect(clippy::should_implement_trait, reason = "an entry borrows the reader")]
    pub fn next(&mut self) -> Result<Option<Entry<'_, R>>, TarError> {
        match self.state {
            State::Reading => {}
            State::Ended => return Ok(None),
            State::Failed => return Err(fault(self.offset, Problem::Failed)),
        }
        match self.advance() {
            Ok(Some(header)) => {
                self.content = header.size;
                self.padding = header.size.wrapping_neg() % BLOCK;
                Ok(Some(Entry {
                    header,
                    start: self.offset,
                    reader: self,
                }))
            }
            Ok(None) => {
                self.state = State::Ended;
                Ok(None)
            }
            Err(error) => {
                self.state = State::Failed;
                Err(error)
            }
        }
    }

    fn advance(&mut self) -> Result<Option<Header>, TarError> {
        self.pass(self.content)?;
        self.content = 0;
        // umoci leaves out the zeros after the last member, and Go's reader accepts that.
        self.skip(self.padding)?;
        self.padding = 0;
        let mut ahead = Ahead::default();
        loop {
            let at = self.offset;
            let block = match self.block()? {
                Some(block) if !block.is_zero() => block,
                end => {
                    if !ahead.is_empty() {
                        return Err(fault(at, Problem::Dangling));
                    }
                    self.end(end.is_some())?;
                    return Ok(None);
                }
            };
            let here = |problem| fault(at, problem);
            block.check().map_err(here)?;
            match block.flag().map_err(here)? {
                Flag::Member(kind) => {
                    return block
                        .header(kind, ahead, &self.global)
                        .map(Some)
                        .map_err(here);
                }
                Flag::LongName => self.long(&block, &mut ahead.name)?,
                Flag::LongLink => self.long(&block, &mut ahead.link)?,
                Flag::Records => {
                    let data = self.meta(&block, MOST_PAX)?;
                    let mut records = Records::default();
                    records.read(&data, MOST_PAX).map_err(here)?;
                    if ahead.records.replace(records).is_some() {
                        return Err(here(Problem::Twice("extended header")));
                    }
                }
                Flag::Global => {
                    let data = self.meta(&block, MOST_GLOBAL)?;
                    self.global.read(&data, MOST_GLOBAL).map_err(here)?;
                }
            }
        }
    }

    /// Reads a GNU long name or link target: text that ends with a zero.
    fn long(&mut self, block: &Block, to: &mut Option<Vec<u8>>) -> Result<(), TarError> {
        let at = self.offset - BLOCK;
        let mut text = self.meta(block, MOST_NAME)?;
        let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        text.truncate(end);
        match to.replace(text) {
            None => Ok(()),
            Some(_) => Err(fault(at, Problem::Twice("long name"))),
        }
    }

    /// Reads the content of a member that describes another one.
    fn meta(&mut self, block: &Block, most: u64) -> Result<Vec<u8>, TarError> {
        let at = self.offset - BLOCK;
        let size = block.size().map_err(|problem| fault(at, problem))?;
        if size > most {
            return Err(fault(at, Problem::Long { size, most }));
        }
        let mut data = vec![0; size as usize];
        let found = self.fill(&mut data)? as u64;
        if found < size {
            return Err(self.short(size - found));
        }
        self.pass(size.wrapping_neg() % BLOCK)?;
        Ok(data)
    }

    /// Reads the next block. `None` if the stream has ended.
    fn block(&mut self) -> Result<Option<Block>, TarError> {
        let mut bytes = [0; BLOCK as usize];
        match self.fill(&mut bytes)? as u64 {
            0 => Ok(None),
            BLOCK => Ok(Some(Block(bytes))),
            found => Err(self.short(BLOCK - found)),
        }
    }

    /// Handles the end of the archive: a first zero block, or the end of the stream without one.
    fn end(&mut self, zero: bool) -> Result<(), TarError> {
        if !zero {
            return Ok(());
        }
        let at = self.offset;
        if self.block()?.is_some_and(|second| !second.is_zero()) {
            return Err(fault(at, Problem::LoneZero));
        }
        // Engines ignore what follows.
        self.skip(u64::MAX)?;
        Ok(())
    }

    /// Reads as much of `buf` as the stream has, and returns the number of bytes.
    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, TarError> {
        let found = skip::fill(&mut self.inner, buf)
            .map_err(|source| fault(self.offset, Problem::Read(source)))?;
        self.offset += found as u64;
        Ok(found)
    }

    fn skip(&mut self, n: u64) -> Result<u64, TarError> {
        let found = (self.skip)(&mut self.inner, n)
            .map_err(|source| fault(self.offset, Problem::Read(source)))?;
        self.offset += found;
        Ok(found)
    }

    /// Skips bytes that must exist.
    fn pass(&mut self, n: u64) -> Result<(), TarError> {
        match self.skip(n)? {
            found if found == n => Ok(()),
            found => Err(self.short(n - found)),
        }
    }

    fn short(&self, missing: u64) -> TarError {
        fault(self.offset, Problem::Short { missing })
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Creates a reader that seeks over content that is not read.
    pub fn seeking(inner: R) -> Self {
        Self::with(inner, skip::seek)
    }
}

/// A member, whose content it reads. The [`Reader`] skips unread content.
pub struct Entry<'a, R> {
    /// The member's header.
    pub header: Header,
    start: u64,
    reader: &'a mut Reader<R>,
}

impl<R> Entry<'_, R> {
    /// Returns the offset in the stream at which the content begins.
    pub fn start(&self) -> u64 {
        self.start
    }
}

impl<R: Read> Read for Entry<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let reader = &mut *self.reader;
        let most = reader.content.min(buf.len() as u64) as usize;
        if most == 0 {
            return Ok(0);
        }
        let found = reader.inner.read(&mut buf[..most])?;
        if found == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                reader.short(reader.content),
            ));
        }
        reader.offset += found as u64;
        reader.content -= found as u64;
        Ok(found)
    }
}
