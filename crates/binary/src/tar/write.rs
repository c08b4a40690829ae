//! The writer of tar streams: deterministic, forward, one member after the other.
//!
//! In: names, attributes and contents. Out: a tar in one of the [`Format`]s. Layers and the keys of
//! steps are digests of what is written here, so a change of one byte makes every cache miss.

use std::io::{self, Read, Write};

use tar::{Builder, EntryType, Header};

/// How a header is marked, and how it says what the fields of ustar cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// POSIX ustar. A name of more than 100 bytes is split between two fields, and one that cannot be
    /// split is preceded by GNU tar's header for long names, as is a long target. Names lose `.` and
    /// doubled `/`.
    Ustar,
    /// The same, but the type of a file is a zero byte, as in tar before POSIX. Archives of images and
    /// source distributions have always been written so.
    UstarOldFiles,
    /// GNU tar: names and targets of more than 100 bytes are preceded by a header for long names.
    /// Names and targets are written exactly as they are given, and large owners in base 256.
    Gnu,
}

/// The attributes of a member, beside its name and its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// The owner. `None` leaves the fields empty, which readers take for root.
    pub owner: Option<Owner>,
    /// Modification time in seconds since 1970.
    pub mtime: u64,
}

impl Attributes {
    /// Attributes without an owner, modified at the start of 1970.
    pub const fn new(mode: u32) -> Self {
        Self {
            mode,
            owner: None,
            mtime: 0,
        }
    }
}

/// Who owns a member, by number only, so that no reader looks up a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Number of the user.
    pub uid: u64,
    /// Number of the group.
    pub gid: u64,
}

impl Owner {
    /// The user and the group root.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };
}

/// Writes a tar stream. Names are relative paths in UTF-8 without a NUL byte; the writer does not check
/// that a name occurs once or that its parent comes before it.
///
/// Each method writes to the output at once, and holds at most one header in memory. After an error the
/// output is not a valid tar. Only what [`Writer::finish`] returned is complete, although a writer that
/// is dropped also tries to write the end.
pub struct Writer<W: Write> {
    tar: Builder<W>,
    format: Format,
    members: u64,
    content: u64,
}

impl<W: Write> Writer<W> {
    /// Creates a writer. It writes blocks of 512 bytes, so `out` should be buffered.
    pub fn new(format: Format, out: W) -> Self {
        Self {
            tar: Builder::new(out),
            format,
            members: 0,
            content: 0,
        }
    }

    /// Returns the number of members so far.
    pub fn members(&self) -> u64 {
        self.members
    }

    /// Returns the size of all files so far, in bytes.
    pub fn content(&self) -> u64 {
        self.content
    }

    /// Writes a directory. The root is the empty path.
    ///
    /// # Errors
    /// If the name is not allowed, or the output fails.
    pub fn directory(&mut self, path: &str, attributes: Attributes) -> io::Result<()> {
        let name = match path {
            "" => "./".to_owned(),
            path => format!("{path}/"),
        };
        let header = self.header(EntryType::Directory, attributes, 0);
        self.append(header, &name, "", io::empty(), 0)
    }

    /// Writes a file. `content` must have exactly `size` bytes.
    ///
    /// # Errors
    /// If the name is not allowed, `content` fails or has another size, or the output fails.
    pub fn file(
        &mut self,
        path: &str,
        attributes: Attributes,
        size: u64,
        content: impl Read,
    ) -> io::Result<()> {
        let header = self.header(EntryType::Regular, attributes, size);
        self.append(header, path, "", content, size)
    }

    /// Writes a symbolic link. `target` is its text.
    ///
    /// # Errors
    /// If the name is not allowed, or the output fails.
    pub fn symlink(&mut self, path: &str, target: &str, attributes: Attributes) -> io::Result<()> {
        let header = self.header(EntryType::Symlink, attributes, 0);
        self.append(header, path, target, io::empty(), 0)
    }

    /// Writes a second name of the member `target`.
    ///
    /// # Errors
    /// If the name is not allowed, or the output fails.
    pub fn hardlink(&mut self, path: &str, target: &str, attributes: Attributes) -> io::Result<()> {
        let header = self.header(EntryType::Link, attributes, 0);
        self.append(header, path, target, io::empty(), 0)
    }

    /// Writes a named pipe.
    ///
    /// # Errors
    /// If the name is not allowed, or the output fails.
    pub fn fifo(&mut self, path: &str, attributes: Attributes) -> io::Result<()> {
        let header = self.header(EntryType::Fifo, attributes, 0);
        self.append(header, path, "", io::empty(), 0)
    }

    /// Gives the next member extended attributes, as a pax header.
    ///
    /// # Errors
    /// If the output fails.
    pub fn xattrs(&mut self, attributes: &[(&str, &[u8])]) -> io::Result<()> {
        let names = attributes
            .iter()
            .map(|(name, value)| (format!("SCHILY.xattr.{name}"), *value));
        let records: Vec<(String, &[u8])> = names.collect();
        let records = records.iter().map(|(name, value)| (name.as_str(), *value));
        self.tar.append_pax_extensions(records)
    }

    /// Writes the end, two blocks of zeros, and returns the output, which is not flushed.
    ///
    /// # Errors
    /// If the output fails.
    pub fn finish(self) -> io::Result<W> {
        self.tar.into_inner()
    }

    /// A header that lacks its names and its checksum.
    fn header(&self, kind: EntryType, attributes: Attributes, size: u64) -> Header {
        let mut header = match self.format {
            Format::Ustar | Format::UstarOldFiles => Header::new_ustar(),
            Format::Gnu => Header::new_gnu(),
        };
        if !(self.format == Format::UstarOldFiles && kind.is_file()) {
            header.set_entry_type(kind);
        }
        header.set_mode(attributes.mode);
        header.set_mtime(attributes.mtime);
        header.set_size(size);
        if let Some(owner) = attributes.owner {
            header.set_uid(owner.uid);
            header.set_gid(owner.gid);
        }
        header
    }

    fn append(
        &mut self,
        mut header: Header,
        name: &str,
        link: &str,
        content: impl Read,
        size: u64,
    ) -> io::Result<()> {
        let mut content = Counted {
            inner: content,
            left: size,
        };
        match self.format {
            Format::Ustar | Format::UstarOldFiles if link.is_empty() => {
                self.tar.append_data(&mut header, name, &mut content)?;
            }
            Format::Ustar | Format::UstarOldFiles => {
                self.tar.append_link(&mut header, name, link)?;
            }
            Format::Gnu => {
                self.long(EntryType::GNULongLink, link)?;
                self.long(EntryType::GNULongName, name)?;
                put(&mut header, name, link);
                self.tar.append(&header, &mut content)?;
            }
        }
        if content.left != 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "a member is shorter than its header says",
            ));
        }
        self.members += 1;
        self.content += size;
        Ok(())
    }

    /// Writes GNU tar's header for a long name or target, if the next member needs it.
    fn long(&mut self, kind: EntryType, text: &str) -> io::Result<()> {
        if text.len() <= NAME {
            return Ok(());
        }
        let attributes = Attributes {
            owner: Some(Owner::ROOT),
            ..Attributes::new(0o644)
        };
        let mut header = self.header(kind, attributes, text.len() as u64 + 1);
        put(&mut header, "././@LongLink", "");
        self.tar.append(&header, text.as_bytes().chain(&b"\0"[..]))
    }
}

/// Length in bytes of a header's fields for the name and the target.
const NAME: usize = 100;

/// Puts names into a header byte for byte, cut to the length of their fields, and sums it up. The
/// setters of [`Header`] change a name: they remove `.` and doubled `/`.
fn put(header: &mut Header, name: &str, link: &str) {
    let old = header.as_old_mut();
    for (field, text) in [(&mut old.name, name), (&mut old.linkname, link)] {
        let length = text.len().min(NAME);
        field[..length].copy_from_slice(&text.as_bytes()[..length]);
    }
    header.set_cksum();
}

/// Counts what is read. The crate writes content of any length, and a member of another length would
/// shift all that follow.
struct Counted<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "a member is longer than its header says",
            )
        })?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::{MemberKind, Reader};
    use stackforge_types::Digest;

    const PLAIN: Attributes = Attributes {
        mode: 0o4755,
        owner: Some(Owner {
            uid: 0,
            gid: 3_000_000,
        }),
        mtime: 7,
    };

    #[test]
    fn gnu_names_and_targets_come_back_as_they_are() {
        let long = format!("usr/{}x", "d/".repeat(70));
        let target = format!("..//./{}", "t/".repeat(60));
        let mut writer = Writer::new(Format::Gnu, Vec::new());
        writer.directory("", PLAIN).unwrap();
        writer.file(&long, PLAIN, 5, &b"hello"[..]).unwrap();
        writer.symlink("link", &target, PLAIN).unwrap();
        writer.hardlink("hard", &long, PLAIN).unwrap();
        assert_eq!((writer.members(), writer.content()), (4, 5));
        let bytes = writer.finish().unwrap();
        let mut reader = Reader::new(bytes.as_slice());
        let mut next = || reader.next().unwrap().unwrap().header;
        assert_eq!((next().path.as_str(), next().path), ("", long.clone()));
        let link = next();
        assert_eq!((link.kind, link.link), (MemberKind::SymLink, Some(target)));
        assert_eq!((link.mode, link.gid, link.mtime), (0o4755, 3_000_000, 7));
        let hard = next();
        assert_eq!((hard.kind, hard.link), (MemberKind::HardLink, Some(long)));
        assert!(reader.next().unwrap().is_none());
    }

    #[test]
    fn ustar_names_of_any_length_come_back() {
        let attributes = Attributes {
            owner: None,
            ..PLAIN
        };
        for name in [
            "short".to_owned(),
            format!("{}f", "folder/".repeat(20)),
            format!("{}f", "folder/".repeat(60)),
            "é".repeat(90),
        ] {
            let mut writer = Writer::new(Format::Ustar, Vec::new());
            writer.symlink(&name, &"t/".repeat(60), attributes).unwrap();
            let bytes = writer.finish().unwrap();
            let mut reader = Reader::new(bytes.as_slice());
            let header = reader.next().unwrap().unwrap().header;
            assert_eq!((header.path, header.uid), (name, 0));
            assert_eq!(header.link, Some("t/".repeat(60)));
        }
        let mut writer = Writer::new(Format::Ustar, Vec::new());
        assert!(writer.directory("../above", attributes).is_err());
    }

    #[test]
    fn content_of_another_length_is_an_error() {
        for format in [Format::Ustar, Format::UstarOldFiles, Format::Gnu] {
            let mut writer = Writer::new(format, Vec::new());
            assert!(writer.file("a", PLAIN, 4, &b"hello"[..]).is_err());
            assert!(writer.file("a", PLAIN, 6, &b"hello"[..]).is_err());
        }
    }

    /// The digest is of the bytes that layers of Debian packages had before other parts wrote with the
    /// same code.
    #[test]
    fn gnu_keeps_its_bytes() {
        let long = format!("{}ü", "n".repeat(99));
        let target = format!("../{}", "t/".repeat(60));
        let mut writer = Writer::new(Format::Gnu, Vec::new());
        writer.directory("", PLAIN).unwrap();
        writer.directory("usr", PLAIN).unwrap();
        writer.directory(&long, PLAIN).unwrap();
        writer.file(&long, PLAIN, 5, &b"hello"[..]).unwrap();
        writer.symlink(&long, &target, PLAIN).unwrap();
        writer.hardlink("hard", &long, PLAIN).unwrap();
        assert_eq!(
            Digest::of(&writer.finish().unwrap()).to_string(),
            "sha256:dc5cb8a0dcbd3dd2c85720eb061b1f7e5fd59e07d354ff643914e4593e880c24"
        );
    }
}
