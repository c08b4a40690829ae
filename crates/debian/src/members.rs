//! The members of a package's tar archives, checked before they are used.
//!
//! Accepted is what dpkg writes and reads: plain tar with GNU long names. Refused are absolute paths,
//! `..`, control characters, device nodes, sockets, sparse files, pax headers, and names above
//! [`MAX_NAME`] bytes. A file's content is never held in memory.

use std::io::{self, Read};

use tar::EntryType;

const MAX_NAME: u64 = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PackedKind {
    Directory,
    File {
        size: u64,
    },
    Symlink {
        target: String,
    },
    /// A hard link. Its target is a path inside the same archive, normalised as [`Member::path`] is.
    Hardlink {
        target: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Path without leading `./` or trailing `/`; empty for the root.
    pub path: String,
    pub kind: PackedKind,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    /// Modification time in seconds since 1970.
    pub mtime: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    #[error("reading a tar archive")]
    Read(#[from] io::Error),
    #[error("tar member `{path}`: {reason}")]
    Refused { path: String, reason: &'static str },
}

/// Passes each member and, for a file, its content to `visit`, in the archive's order.
pub(crate) fn for_each_member<E: From<MemberError>>(
    archive: impl Read,
    mut visit: impl FnMut(Member, &mut dyn Read) -> Result<(), E>,
) -> Result<(), E> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().map_err(MemberError::from)?.raw(true);
    let (mut long_name, mut long_link) = (None, None);
    for entry in entries {
        let mut entry = entry.map_err(MemberError::from)?;
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => {
                long_name = Some(read_name(&mut entry)?);
                continue;
            }
            EntryType::GNULongLink => {
                long_link = Some(read_name(&mut entry)?);
                continue;
            }
            _ => {}
        }
        let header = entry.header();
        let raw_path = long_name
            .take()
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let path = clean(&raw_path)?;
        let raw_link = long_link
            .take()
            .or_else(|| header.link_name_bytes().map(|name| name.into_owned()));
        let refuse = |reason| MemberError::Refused {
            path: path.escape_debug().to_string(),
            reason,
        };
        let link = || {
            raw_link
                .clone()
                .ok_or_else(|| refuse("it is a link without a target"))
        };
        let size = header.entry_size().map_err(MemberError::from)?;
        let kind = match kind {
            EntryType::Directory => PackedKind::Directory,
            EntryType::Regular | EntryType::Continuous => PackedKind::File { size },
            EntryType::Symlink => PackedKind::Symlink {
                target: symlink_target(&path, link()?)?,
            },
            EntryType::Link => PackedKind::Hardlink {
                target: clean(&link()?)?,
            },
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                return Err(refuse("it is a device node or a pipe").into());
            }
            _ => return Err(refuse("its type is none that dpkg writes").into()),
        };
        if !matches!(kind, PackedKind::File { .. }) && size != 0 {
            return Err(refuse("it has content and is not a file").into());
        }
        if path.is_empty() && kind != PackedKind::Directory {
            return Err(refuse("the root is not a directory").into());
        }
        let member = Member {
            kind,
            mode: header.mode().map_err(MemberError::from)? & 0o7777,
            uid: header.uid().map_err(MemberError::from)?,
            gid: header.gid().map_err(MemberError::from)?,
            mtime: header.mtime().map_err(MemberError::from)?,
            path,
        };
        visit(member, &mut entry)?;
    }
    Ok(())
}

fn read_name(entry: &mut impl Read) -> Result<Vec<u8>, MemberError> {
    let mut name = Vec::new();
    entry.take(MAX_NAME + 1).read_to_end(&mut name)?;
    if name.len() as u64 > MAX_NAME {
        return Err(MemberError::Refused {
            path: String::new(),
            reason: "its name is too long",
        });
    }
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

fn text(raw: &[u8], reason: &'static str) -> Result<String, MemberError> {
    match std::str::from_utf8(raw) {
        Ok(text) if !text.chars().any(char::is_control) => Ok(text.to_owned()),
        _ => Err(MemberError::Refused {
            path: raw.escape_ascii().take(200).map(char::from).collect(),
            reason,
        }),
    }
}

fn clean(raw: &[u8]) -> Result<String, MemberError> {
    let path = text(raw, "its name is not UTF-8 or holds a control character")?;
    let refuse = |reason| MemberError::Refused {
        path: path.clone(),
        reason,
    };
    if path.starts_with('/') {
        return Err(refuse("its path is absolute"));
    }
    let mut clean = String::with_capacity(path.len());
    for part in path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        if part == ".." || part.len() > 255 {
            return Err(refuse(
                "its path holds `..` or a part longer than 255 bytes",
            ));
        }
        if !clean.is_empty() {
            clean.push('/');
        }
        clean.push_str(part);
    }
    if clean.len() > 4095 {
        return Err(refuse("its path is longer than 4095 bytes"));
    }
    Ok(clean)
}

fn symlink_target(path: &str, raw: Vec<u8>) -> Result<String, MemberError> {
    let target = text(&raw, "its target is not UTF-8 or holds a control character")?;
    if target.is_empty() || target.len() > 4095 {
        return Err(MemberError::Refused {
            path: path.to_owned(),
            reason: "its target is empty or too long",
        });
    }
    Ok(target)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn tar_of(members: &[(&str, EntryType, &str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, kind, link, content) in members {
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            if !link.is_empty() {
                header.set_link_name_literal(link).unwrap();
            }
            header.set_mode(if *kind == EntryType::Directory {
                0o755
            } else {
                0o644
            });
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(1_000);
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn list(archive: &[u8]) -> Result<Vec<Member>, MemberError> {
        let mut members = Vec::new();
        for_each_member(archive, |member, content| {
            io::copy(content, &mut io::sink())?;
            members.push(member);
            Ok::<_, MemberError>(())
        })?;
        Ok(members)
    }

    #[test]
    fn reads_what_dpkg_writes() {
        let long = format!("./usr/{}", "x/".repeat(80));
        let archive = tar_of(&[
            ("./", EntryType::Directory, "", b""),
            ("./bin/", EntryType::Directory, "", b""),
            ("./bin/a", EntryType::Regular, "", b"hello"),
            ("./bin/b", EntryType::Link, "./bin/a", b""),
            ("./bin/c", EntryType::Symlink, "../../x", b""),
            (
                "././@LongLink",
                EntryType::GNULongName,
                "",
                format!("{long}\0").as_bytes(),
            ),
            ("./cut", EntryType::Directory, "", b""),
        ]);
        let members = list(&archive).unwrap();
        let paths: Vec<&str> = members.iter().map(|member| member.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "",
                "bin",
                "bin/a",
                "bin/b",
                "bin/c",
                long[2..].trim_end_matches('/')
            ]
        );
        assert_eq!(members[2].kind, PackedKind::File { size: 5 });
        assert_eq!(
            members[3].kind,
            PackedKind::Hardlink {
                target: "bin/a".into()
            }
        );
        assert_eq!(
            members[4].kind,
            PackedKind::Symlink {
                target: "../../x".into()
            }
        );
    }

    #[test]
    fn refuses_what_escapes_or_is_no_file() {
        for (path, kind, link) in [
            ("/etc/passwd", EntryType::Regular, ""),
            ("./a/../../b", EntryType::Regular, ""),
            ("./a\nb", EntryType::Regular, ""),
            ("./dev/null", EntryType::Char, ""),
            ("./dev/sda", EntryType::Block, ""),
            ("./pipe", EntryType::Fifo, ""),
            ("./link", EntryType::Link, "../x"),
            ("./link", EntryType::Symlink, ""),
            ("./", EntryType::Regular, ""),
            ("./pax", EntryType::XHeader, ""),
        ] {
            assert!(list(&tar_of(&[(path, kind, link, b"")])).is_err(), "{path}");
        }
        assert!(
            list(&tar_of(&[(
                "x",
                EntryType::GNULongName,
                "",
                &[b'a'; 20 << 10]
            )]))
            .is_err()
        );
        assert!(list(&tar_of(&[("x", EntryType::Directory, "", b"content")])).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..2000), at in 0usize..512, byte: u8) {
            let _ = list(&bytes);
            let mut archive = tar_of(&[("./bin/a", EntryType::Regular, "", b"hello"), ("./b", EntryType::Link, "bin/a", b"")]);
            archive[at] = byte;
            let _ = list(&archive);
        }
    }
}
