//! Zip archives, which are mostly wheels: their directory, and their members as sources.
//!
//! In: a [`Source`]. Out: an [`Archive`] of [`Member`]s, read from the directory at its end by ranges,
//! and each member's compressed bytes or its content. Two programs must never read two different
//! archives from one file, so everything they could disagree on is an error: names that repeat, escape
//! or hide one another, members that overlap, local headers that differ from the directory, bytes
//! between the parts of the directory. An archive inside something that can only be read forward is
//! read by [`Passing`]. Never unpacks, and never descends into an archive that is a member; a caller
//! that does so decides how deep.
//!
//! `APPNOTE.TXT` is PKWARE's specification 6.3.10. The `zip` crate keeps the last of two equal names
//! and does not check for overlaps, so it is not used.

mod directory;
mod error;
mod member;
mod names;
mod passing;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::source::{Inflate, Once, ReadError, Source, Window};
use error::Fault;

pub use error::{Problem, ZipError};
pub use member::{Member, Method};
pub use passing::{Part, Passing};

/// The directory of an archive.
#[derive(Debug, Clone)]
pub struct Archive {
    /// The name that the caller gave the archive, for messages.
    pub name: String,
    /// The members in the order of the directory.
    pub members: Vec<Member>,
}

impl Archive {
    /// Reads the directory and checks all names. `name` is for messages.
    ///
    /// # Errors
    /// If the directory is damaged, if programs could read it differently, or if `source` cannot be
    /// read.
    pub fn read(name: &str, source: &mut (impl Source + ?Sized)) -> Result<Self, ZipError> {
        let members = directory::read(source)
            .and_then(|mut members| {
                directory::check_names(&members)?;
                member::bound(&mut members)?;
                Ok(members)
            })
            .map_err(|fault| fault.in_archive(name))?;
        Ok(Self {
            name: name.to_owned(),
            members,
        })
    }

    /// Returns the byte range of a member's compressed content, if its local header agrees with the
    /// directory.
    ///
    /// # Errors
    /// If the local header differs from the directory, or `source` cannot be read.
    pub fn locate(
        &self,
        member: &Member,
        source: &mut (impl Source + ?Sized),
    ) -> Result<Range<u64>, ZipError> {
        member
            .locate(source)
            .map_err(|fault| fault.in_archive(&self.name))
    }

    /// Returns the content of a member, inflated as it is read. A deflated member's CRC-32 is checked
    /// by the first read of its last byte; a stored one's is never checked.
    ///
    /// # Errors
    /// If the local header differs from the directory, or `source` cannot be read. Damaged content is
    /// an error when it is read.
    pub fn open<S: Source>(&self, member: &Member, source: S) -> Result<Content<S>, ZipError> {
        let window = self.window(member, source)?;
        Ok(match member.method {
            Method::Stored => Content::Stored(window),
            Method::Deflate => Content::Deflate(Inflate::new(window, member.size, member.crc32)),
        })
    }

    /// Returns the content of a deflated member, forward only and faster. `None` for a stored member,
    /// which can be read at any offset anyway.
    ///
    /// # Errors
    /// The same as for [`Archive::open`].
    pub fn once<S: Source>(
        &self,
        member: &Member,
        source: S,
    ) -> Result<Option<Once<Window<S>>>, ZipError> {
        match member.method {
            Method::Stored => Ok(None),
            Method::Deflate => {
                let window = self.window(member, source)?;
                Ok(Some(Once::new(window, member.size, member.crc32)))
            }
        }
    }

    /// Returns the compressed bytes of a member.
    fn window<S: Source>(&self, member: &Member, mut source: S) -> Result<Window<S>, ZipError> {
        let range = self.locate(member, &mut source)?;
        Window::new(source, range.start, range.end - range.start).map_err(|e| {
            Fault::from(e)
                .in_member(&member.name)
                .in_archive(&self.name)
        })
    }
}

/// The content of a member.
pub enum Content<S> {
    /// The content as stored in the archive.
    Stored(Window<S>),
    /// The content inflated as it is read.
    Deflate(Inflate<Window<S>>),
}

impl<S: Source> Source for Content<S> {
    fn size(&self) -> u64 {
        match self {
            Self::Stored(window) => window.size(),
            Self::Deflate(inflate) => inflate.size(),
        }
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        match self {
            Self::Stored(window) => window.read_at(offset, buf),
            Self::Deflate(inflate) => inflate.read_at(offset, buf),
        }
    }
}
