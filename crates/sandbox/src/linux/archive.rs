//! Writes what a run changed as the tar of an image's layer.
//!
//! In: the directory that a run wrote to. Out: a tar whose bytes depend only on what the files are: members
//! are sorted by name, owners are numbers as the program saw them, and no time is later than a given one.
//! A removed path becomes the whiteout that the OCI image format has for it. Sockets and devices are left
//! out, because no layer has them.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use stackforge_binary::tar::{Attributes, Format, Owner, Writer};

use super::changes::{Change, ChangeKind, changes};
use super::request::Archive;

/// Attributes that belong to a layer: capabilities of programs, and what programs note themselves.
const KEPT: [&str; 2] = ["security.capability", "user."];

pub(crate) fn write(archive: &Archive) -> io::Result<()> {
    let listed = changes(&archive.changed).map_err(io::Error::other)?;
    let out = File::options()
        .write(true)
        .truncate(true)
        .open(&archive.out)?;
    let mut tar = Writer::new(Format::Gnu, BufWriter::with_capacity(1 << 20, out));
    if archive.whole {
        let owner = Some(Owner::ROOT);
        let mtime = archive.latest;
        let root = Attributes {
            mode: 0o755,
            owner,
            mtime,
        };
        tar.directory("", root)?;
    }
    for change in &listed {
        member(&mut tar, archive, change)?;
    }
    tar.finish()?.flush()
}

fn member<W: io::Write>(tar: &mut Writer<W>, archive: &Archive, change: &Change) -> io::Result<()> {
    let path = text(&change.path)?;
    let attributes = Attributes {
        mode: change.mode,
        owner: Some(Owner {
            uid: change.uid.into(),
            gid: change.gid.into(),
        }),
        mtime: u64::try_from(change.mtime)
            .unwrap_or_default()
            .min(archive.latest),
    };
    let kept = change.attributes.iter().filter_map(|(name, value)| {
        let name = name.to_str()?;
        let kept = KEPT.iter().any(|kept| name.starts_with(kept));
        kept.then_some((name, value.as_slice()))
    });
    let kept: Vec<(&str, &[u8])> = kept.collect();
    if !matches!(change.kind, ChangeKind::Special | ChangeKind::Whiteout) && !kept.is_empty() {
        tar.xattrs(&kept)?;
    }
    match &change.kind {
        ChangeKind::Directory { opaque } => {
            tar.directory(path, attributes)?;
            if *opaque {
                whiteout(tar, &format!("{path}/.wh..wh..opq"), archive.latest)?;
            }
            Ok(())
        }
        ChangeKind::File { size } => {
            let file = File::options()
                .read(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(archive.changed.join(&change.path))?;
            tar.file(path, attributes, *size, file)
        }
        ChangeKind::HardLink(first) => tar.hardlink(path, text(first)?, attributes),
        ChangeKind::Symlink(target) => tar.symlink(path, text(target)?, attributes),
        ChangeKind::Whiteout => {
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let name = &path[parent.len()..];
            let name = name.strip_prefix('/').unwrap_or(name);
            let slash = if parent.is_empty() { "" } else { "/" };
            whiteout(tar, &format!("{parent}{slash}.wh.{name}"), archive.latest)
        }
        ChangeKind::Fifo => tar.fifo(path, attributes),
        ChangeKind::Special => Ok(()),
    }
}

fn whiteout<W: io::Write>(tar: &mut Writer<W>, path: &str, mtime: u64) -> io::Result<()> {
    let attributes = Attributes {
        owner: Some(Owner::ROOT),
        mtime,
        ..Attributes::new(0o600)
    };
    tar.file(path, attributes, 0, io::empty())
}

/// Layers name files in UTF-8.
fn text(path: &Path) -> io::Result<&str> {
    path.to_str().ok_or_else(|| {
        let bytes = path.as_os_str().as_bytes().escape_ascii();
        let why = format!("the name `{bytes}` is not UTF-8");
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackforge_binary::tar::{MemberKind as Member, Reader};

    fn archived(changed: &Path) -> Vec<u8> {
        let out = tempfile::NamedTempFile::new().unwrap();
        let archive = Archive {
            changed: changed.to_owned(),
            out: out.path().to_owned(),
            latest: 1_000,
            whole: false,
        };
        write(&archive).unwrap();
        std::fs::read(out.path()).unwrap()
    }

    #[test]
    fn equal_files_give_equal_bytes_whenever_they_were_made() {
        let tree = |names: &[&str]| {
            let dir = tempfile::tempdir().unwrap();
            for name in names {
                let path = dir.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, name).unwrap();
            }
            std::fs::hard_link(dir.path().join("b/c"), dir.path().join("d")).unwrap();
            std::os::unix::fs::symlink("/etc/shadow", dir.path().join("e")).unwrap();
            archived(dir.path())
        };
        let (one, other) = (tree(&["a", "b/c"]), tree(&["b/c", "a"]));
        assert_eq!(one, other);
        let mut reader = Reader::new(one.as_slice());
        let mut members = Vec::new();
        while let Some(entry) = reader.next().unwrap() {
            let header = entry.header;
            assert!(header.mtime <= 1_000);
            members.push((header.path, header.kind, header.link));
        }
        let member =
            |path: &str, kind, link: Option<&str>| (path.to_owned(), kind, link.map(str::to_owned));
        assert_eq!(
            members,
            [
                member("a", Member::File, None),
                member("b", Member::Directory, None),
                member("b/c", Member::File, None),
                member("d", Member::HardLink, Some("b/c")),
                member("e", Member::SymLink, Some("/etc/shadow")),
            ]
        );
    }

    #[test]
    fn names_that_no_layer_can_have_are_an_error() {
        use std::os::unix::ffi::OsStrExt as _;
        let dir = tempfile::tempdir().unwrap();
        let name = std::ffi::OsStr::from_bytes(b"\xff");
        std::fs::write(dir.path().join(name), "").unwrap();
        let out = tempfile::NamedTempFile::new().unwrap();
        let archive = Archive {
            changed: dir.path().to_owned(),
            out: out.path().to_owned(),
            latest: 0,
            whole: true,
        };
        let error = write(&archive).unwrap_err().to_string();
        assert_eq!(error, "the name `\\xff` is not UTF-8");
    }
}
