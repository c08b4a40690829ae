//! Writes tar members with exactly the names they are given.
//!
//! The `tar` crate's own setters normalise paths, and a link's target must not change. The format is
//! GNU with numeric owners only and long names as GNU extensions, which dpkg, Docker and tar can read.

use std::io::{self, Read, Write};

use tar::{EntryType, Header};

/// The attributes of a member besides its name and content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes {
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub mtime: u64,
}

pub(crate) struct Tarball<W: Write> {
    tar: tar::Builder<W>,
    /// Members so far; `content` counts the bytes of the files' contents.
    pub members: u64,
    pub content: u64,
}

impl<W: Write> Tarball<W> {
    pub(crate) fn new(out: W) -> Self {
        Tarball {
            tar: tar::Builder::new(out),
            members: 0,
            content: 0,
        }
    }

    /// Writes a directory. The root is the empty path.
    pub(crate) fn directory(&mut self, path: &str, attributes: Attributes) -> io::Result<()> {
        let name = if path.is_empty() {
            "./".to_owned()
        } else {
            format!("{path}/")
        };
        self.append(
            EntryType::Directory,
            &name,
            "",
            attributes,
            &mut io::empty(),
            0,
        )
    }

    pub(crate) fn symlink(
        &mut self,
        path: &str,
        target: &str,
        attributes: Attributes,
    ) -> io::Result<()> {
        self.append(
            EntryType::Symlink,
            path,
            target,
            attributes,
            &mut io::empty(),
            0,
        )
    }

    pub(crate) fn hardlink(
        &mut self,
        path: &str,
        target: &str,
        attributes: Attributes,
    ) -> io::Result<()> {
        self.append(
            EntryType::Link,
            path,
            target,
            attributes,
            &mut io::empty(),
            0,
        )
    }

    /// Writes a file. `content` must have exactly `size` bytes.
    pub(crate) fn file(
        &mut self,
        path: &str,
        attributes: Attributes,
        content: &mut dyn Read,
        size: u64,
    ) -> io::Result<()> {
        self.append(EntryType::Regular, path, "", attributes, content, size)
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.tar.finish()?;
        self.tar.get_mut().flush()
    }

    fn append(
        &mut self,
        kind: EntryType,
        name: &str,
        link: &str,
        attributes: Attributes,
        content: &mut dyn Read,
        size: u64,
    ) -> io::Result<()> {
        for (long, kind) in [
            (link, EntryType::GNULongLink),
            (name, EntryType::GNULongName),
        ] {
            if long.len() > 100 {
                let plain = Attributes {
                    mode: 0o644,
                    uid: 0,
                    gid: 0,
                    mtime: 0,
                };
                let size = long.len() as u64 + 1;
                let header = header(kind, "././@LongLink", "", plain, size);
                self.tar
                    .append(&header, long.as_bytes().chain(&b"\0"[..]))?;
            }
        }
        let mut counted = Counted {
            inner: content,
            left: size,
        };
        self.tar
            .append(&header(kind, name, link, attributes, size), &mut counted)?;
        if counted.left != 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "a member is shorter than its header says",
            ));
        }
        self.members += 1;
        self.content += size;
        Ok(())
    }
}

/// Counts what is read. The crate writes any length, and a member of another length would shift all
/// that follow.
struct Counted<'a> {
    inner: &'a mut dyn Read,
    left: u64,
}

impl Read for Counted<'_> {
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

fn header(kind: EntryType, name: &str, link: &str, attributes: Attributes, size: u64) -> Header {
    let mut header = Header::new_gnu();
    let old = header.as_old_mut();
    for (field, text) in [(&mut old.name, name), (&mut old.linkname, link)] {
        let length = text.len().min(field.len());
        field[..length].copy_from_slice(&text.as_bytes()[..length]);
    }
    header.set_mode(attributes.mode);
    header.set_uid(attributes.uid);
    header.set_gid(attributes.gid);
    header.set_mtime(attributes.mtime);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_cksum();
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::{Kind, Member, MemberError, for_each_member};

    const PLAIN: Attributes = Attributes {
        mode: 0o4755,
        uid: 0,
        gid: 3_000_000,
        mtime: 7,
    };

    #[test]
    fn writes_names_and_targets_as_they_are() {
        let long = format!("usr/{}x", "d/".repeat(70));
        let target = format!("..//./{}", "t/".repeat(60));
        let mut bytes = Vec::new();
        let mut tarball = Tarball::new(&mut bytes);
        tarball.directory("", PLAIN).unwrap();
        tarball.file(&long, PLAIN, &mut &b"hello"[..], 5).unwrap();
        tarball.symlink("link", &target, PLAIN).unwrap();
        tarball.hardlink("hard", &long, PLAIN).unwrap();
        assert_eq!((tarball.members, tarball.content), (4, 5));
        tarball.finish().unwrap();
        let mut members: Vec<Member> = Vec::new();
        for_each_member(bytes.as_slice(), |member, _| {
            members.push(member);
            Ok::<_, MemberError>(())
        })
        .unwrap();
        assert_eq!(members[1].path, long);
        assert_eq!(
            (members[1].mode, members[1].gid, members[1].mtime),
            (0o4755, 3_000_000, 7)
        );
        assert_eq!(members[2].kind, Kind::Symlink { target });
        assert_eq!(members[3].kind, Kind::Hardlink { target: long });
    }

    #[test]
    fn refuses_content_of_another_length() {
        let mut tarball = Tarball::new(Vec::new());
        assert!(tarball.file("a", PLAIN, &mut &b"hello"[..], 4).is_err());
        assert!(tarball.file("a", PLAIN, &mut &b"hello"[..], 6).is_err());
    }
}
