//! Directories in which the compilers of one library keep objects between builds.
//!
//! `objects/ARCH/LIBRARY` belongs to one library, so that the code of another, which runs while that is
//! compiled, cannot put objects into it. What lies in it was written by foreign code: here it is weighed, removed,
//! and read and written below that directory alone, whatever links lie there.
//!
//! An object is a file `a/b/abHEX`, as sccache names it: 64 hex digits below directories named as the first of them.

use super::error::StoreError;
use super::files::{entries, weight};
use super::handle::Store;
use super::list::{Entry, EntryKind};
use super::lock::Alone;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, renameat, unlinkat};
use stackforge_binary::source::{FileSource, Source};
use stackforge_binary::tar::{Attributes, Format, MemberKind, Reader, Writer};
use stackforge_binary::zip::Archive;
use stackforge_types::beneath::{Within, open_beneath};
use stackforge_types::{Digest, Platform};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{self, BufReader, BufWriter, Read};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const FOLDER: &str = "objects";
/// What is mounted into the sandbox, whose code may open it to others. The directory above stays closed.
const CONTENT: &str = "content";
/// Most folders above an object that are named as its digits.
const MOST_FOLDERS: usize = 4;
const CLOSED: Within = Within::OneMount;
/// Largest object that leaves the store, in bytes: foreign code may leave a file of any size that takes no space.
const MOST_OBJECT: u64 = 1 << 30;
/// Most bytes of objects in one tar.
const MOST_PACKED: u64 = 20 << 30;

/// The directory of one library's objects.
#[derive(Debug)]
pub struct ObjectFolder {
    path: PathBuf,
    opened: File,
    _alone: Alone,
}

impl ObjectFolder {
    /// Returns the directory that a compile gets.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of the objects, and no other file's.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn names(&self) -> Result<BTreeSet<String>, StoreError> {
        let mut found = BTreeSet::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for path in entries(&self.path.join(&folder))? {
                let Some(last) = path.file_name().and_then(|n| n.to_str()) else {
                    continue;
                };
                let name = match folder.as_str() {
                    "" => last.to_owned(),
                    folder => format!("{folder}/{last}"),
                };
                // Links are left out.
                let kind = path.symlink_metadata().map(|m| m.file_type());
                match kind {
                    Ok(kind) if kind.is_file() && is_object(&name) => drop(found.insert(name)),
                    Ok(kind) if kind.is_dir() && leads_to_objects(&name) => folders.push(name),
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// Opens an object, and returns its size in bytes.
    ///
    /// # Errors
    /// If it is not a regular file below the directory, or `name` is not an object's.
    pub fn read(&self, name: &str) -> Result<(File, u64), StoreError> {
        let open = || {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let file = File::from(open_beneath(
                &self.opened,
                name,
                flags,
                Mode::empty(),
                CLOSED,
            )?);
            let found = file.metadata()?;
            let is = found.is_file() && is_object(name);
            is.then_some((file, found.len()))
                .ok_or_else(|| io::ErrorKind::InvalidFilename.into())
        };
        open().map_err(|e| StoreError::at("read", &self.path.join(name), e))
    }

    /// Writes an object, in place of one of that name.
    ///
    /// # Errors
    /// If `name` is not an object's, or the directory cannot be written.
    pub fn write(&self, name: &str, mut content: impl Read) -> Result<(), StoreError> {
        let mut write = || {
            if !is_object(name) {
                return Err(io::ErrorKind::InvalidFilename.into());
            }
            let (above, last) = name.rsplit_once('/').unwrap_or((".", name));
            let folder = self.folder(above)?;
            let own = format!(".stackforge-{}", std::process::id());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let _ = unlinkat(&folder, &own, AtFlags::empty());
            let mode = Mode::from_raw_mode(0o644);
            let mut file = File::from(open_beneath(&folder, &own, flags, mode, CLOSED)?);
            io::copy(&mut content, &mut file)?;
            Ok(renameat(&folder, &own, &folder, last)?)
        };
        write().map_err(|e: io::Error| StoreError::at("write", &self.path.join(name), e))
    }

    /// Writes objects to a tar, and returns the names of those that it has: not of objects that cannot be read, are
    /// larger than 1 GiB, or do not fit into 20 GiB together.
    ///
    /// # Errors
    /// If `file` cannot be written.
    pub fn pack(&self, names: BTreeSet<String>, file: File) -> io::Result<BTreeSet<String>> {
        let mut tar = Writer::new(Format::Ustar, BufWriter::new(file));
        let mut packed = BTreeSet::new();
        for name in names {
            // sccache may have removed the oldest ones meanwhile.
            let Ok((object, size)) = self.read(&name) else {
                continue;
            };
            if size > MOST_OBJECT || tar.content() + size > MOST_PACKED {
                continue;
            }
            tar.file(&name, Attributes::new(0o644), size, object.take(size))?;
            packed.insert(name);
        }
        let file = tar.finish()?.into_inner()?;
        file.sync_all()?;
        Ok(packed)
    }

    /// Takes the objects of a tar whose names are not in `here`, and adds those to it.
    ///
    /// # Errors
    /// If the tar is damaged, or has a file that is not listed or whose name is not an object's.
    pub fn unpack(
        &self,
        tar: impl Read,
        is_listed: impl Fn(&str) -> bool,
        here: &mut BTreeSet<String>,
    ) -> Result<(), StoreError> {
        let failed = |e| StoreError::at("read the objects for", &self.path, e);
        let mut tar = Reader::new(BufReader::new(tar));
        while let Some(entry) = tar.next().map_err(|e| failed(io::Error::other(e)))? {
            let name = entry.header.path.clone();
            if entry.header.kind != MemberKind::File || !is_listed(&name) {
                let what = format!("there is `{}`, which is not listed", name.escape_debug());
                return Err(failed(io::Error::other(what)));
            }
            if !here.contains(&name) {
                self.write(&name, entry)?;
                here.insert(name);
            }
        }
        Ok(())
    }

    /// Whether an object is what sccache wrote: an archive whose every member has its checksum.
    pub(super) fn is_whole(&self, name: &str) -> bool {
        let opened = self.read(name).ok();
        let Some(mut file) = opened.and_then(|(file, _)| FileSource::of(file).ok()) else {
            return false;
        };
        let Ok(archive) = Archive::read(name, &mut file) else {
            return false;
        };
        let mut members = archive.members.iter();
        members.all(|member| {
            let content = archive.open(member, &mut file);
            content.is_ok_and(|content| checksum(content) == Some(member.crc32))
        })
    }

    /// Removes an object.
    pub(super) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let remove = || {
            let (above, last) = name.rsplit_once('/').unwrap_or((".", name));
            Ok(unlinkat(self.folder(above)?, last, AtFlags::empty())?)
        };
        remove().map_err(|e: io::Error| StoreError::at("remove", &self.path.join(name), e))
    }

    /// Opens a folder below the directory, and creates what is missing of it.
    fn folder(&self, path: &str) -> io::Result<File> {
        let mut folder = self.opened.try_clone()?;
        for name in path.split('/') {
            match mkdirat(&folder, name, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            folder = open_beneath(&folder, name, flags, Mode::empty(), CLOSED)?.into();
        }
        Ok(folder)
    }
}

/// Returns the CRC-32 of the content.
fn checksum(mut content: impl Source) -> Option<u32> {
    let mut crc = flate2::Crc::new();
    let mut piece = vec![0; 256 << 10];
    let (mut at, size) = (0, content.size());
    while at < size {
        let count = (size - at).min(piece.len() as u64) as usize;
        content.read_at(at, &mut piece[..count]).ok()?;
        crc.update(&piece[..count]);
        at += count as u64;
    }
    Some(crc.sum())
}

/// Whether `name` is that of an object.
fn is_object(name: &str) -> bool {
    let mut parts: Vec<&str> = name.split('/').collect();
    let Some(last) = parts.pop() else {
        return false;
    };
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let folders = parts.iter().zip(last.chars());
    last.len() == 64
        && last.bytes().all(hex)
        && (1..=MOST_FOLDERS).contains(&parts.len())
        && folders
            .into_iter()
            .all(|(folder, c)| *folder == c.to_string())
}

/// Whether a directory may hold objects.
fn leads_to_objects(name: &str) -> bool {
    let mut parts = name.split('/');
    parts.clone().count() <= MOST_FOLDERS && parts.all(|p| p.len() == 1)
}

impl Store {
    /// Returns the directory for the objects of `library`, the name of a distribution, and creates it if it is missing.
    /// `None` while another process has it: sccache's local storage takes one server at a time.
    ///
    /// # Errors
    /// If the store cannot be written, or `library` cannot name a directory.
    pub fn objects(
        &self,
        platform: Platform,
        library: &str,
    ) -> Result<Option<ObjectFolder>, StoreError> {
        let folder = self.open_objects(platform, library)?;
        if let Some(folder) = &folder {
            // A hit changes no file of the directory, and its age is that of its last use.
            let above = folder.path.parent().unwrap_or(&folder.path);
            let used = File::open(above).and_then(|f| f.set_modified(SystemTime::now()));
            used.map_err(|e| StoreError::at("write", above, e))?;
        }
        Ok(folder)
    }

    /// Like [`Store::objects`], without calling the directory used.
    pub(super) fn open_objects(
        &self,
        platform: Platform,
        library: &str,
    ) -> Result<Option<ObjectFolder>, StoreError> {
        let folder = self.dir(&format!("{FOLDER}/{}", platform.arch()))?;
        // Objects that another user's sandbox made cannot be replaced by this one's.
        let own = format!("{library}{}", of_user());
        let above = folder.join(&own);
        let failed = |e| StoreError::at("create", &above, e);
        if above.parent() != Some(&*folder) || own.starts_with('.') {
            return Err(failed(io::ErrorKind::InvalidFilename.into()));
        }
        let key = key(platform.arch(), &own);
        let Some(alone) = self.try_alone(&key)? else {
            return Ok(None);
        };
        self.lease([&key])?;
        let path = above.join(CONTENT);
        for folder in [&above, &path] {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
                _ => {}
            }
        }
        Ok(Some(ObjectFolder {
            opened: File::open(&path).map_err(failed)?,
            path,
            _alone: alone,
        }))
    }

    /// Returns the libraries that this user has objects of.
    pub(super) fn libraries_with_objects(&self) -> Result<Vec<(Platform, String)>, StoreError> {
        let user = rustix::process::geteuid().as_raw();
        let mut found = Vec::new();
        for platform in Platform::ALL {
            for path in entries(&self.root().join(FOLDER).join(platform.arch()))? {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let own = path
                    .symlink_metadata()
                    .is_ok_and(|m| m.uid() == user && m.is_dir());
                if let Some(library) = name.strip_suffix(&of_user()).filter(|_| own) {
                    found.push((platform, library.to_owned()));
                }
            }
        }
        Ok(found)
    }

    pub(super) fn object_folders(&self) -> Result<Vec<Entry>, StoreError> {
        let mut found = Vec::new();
        for folder in entries(&self.root().join(FOLDER))? {
            let arch = folder.file_name().unwrap_or_default().to_string_lossy();
            for path in entries(&folder)? {
                let library = path.file_name().unwrap_or_default().to_string_lossy();
                let (size, _) = weight(&path);
                // Not of what lies in it: foreign code may set any time there.
                let used = path.metadata().and_then(|m| m.modified());
                let used = used.unwrap_or(SystemTime::UNIX_EPOCH);
                found.push(Entry {
                    kind: EntryKind::Objects,
                    name: format!("{library} for {arch}"),
                    digest: Some(key(&arch, &library)),
                    size,
                    used,
                    path,
                });
            }
        }
        Ok(found)
    }
}

/// What the names of a user's directories end with.
fn of_user() -> String {
    match rustix::process::geteuid() {
        user if user.is_root() => String::new(),
        user => format!("-{}", user.as_raw()),
    }
}

/// What a lease on the directory names.
fn key(arch: &str, library: &str) -> Digest {
    Digest::of(format!("{FOLDER}/{arch}/{library}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

    #[test]
    fn each_library_has_a_directory_that_goes_when_nobody_uses_it() {
        let dir = tempfile::tempdir().unwrap();
        let user = Store::open(Some(dir.path())).unwrap();
        let objects = |platform, library| {
            let found = user.objects(platform, library).unwrap();
            found.unwrap().path().to_owned()
        };
        let one = objects(Platform::LinuxAmd64, "flash-attn");
        std::fs::create_dir(one.join("a")).unwrap();
        std::fs::write(one.join("a/object"), "12345").unwrap();
        assert_eq!(objects(Platform::LinuxAmd64, "flash-attn"), one);
        for (platform, library) in [
            (Platform::LinuxArm64, "flash-attn"),
            (Platform::LinuxAmd64, "flash_attn"),
        ] {
            assert_ne!(objects(platform, library), one);
        }
        // While one process has it, another compiles without.
        let held = user.objects(Platform::LinuxAmd64, "flash-attn").unwrap();
        let second = Store::open(Some(dir.path())).unwrap();
        let again = second.objects(Platform::LinuxAmd64, "flash-attn").unwrap();
        assert!(held.is_some() && again.is_none());
        drop((held, again));
        let listed = user.list().unwrap().entries;
        let listed: Vec<_> = listed.iter().map(|e| (e.kind, e.size)).collect();
        assert_eq!(
            listed,
            [
                (EntryKind::Objects, 5),
                (EntryKind::Objects, 0),
                (EntryKind::Objects, 0)
            ]
        );
        let other = Store::open(Some(dir.path())).unwrap();
        let none = Limits {
            max_size: Some(0),
            ..Limits::default()
        };
        assert_eq!(other.gc(&none).unwrap().in_use, 5);
        assert!(one.join("a/object").exists());
        drop(user);
        assert_eq!(other.gc(&none).unwrap().left, 0);
        assert!(!one.exists());
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        for bad in ["", ".", "..", "a/b", "../x", "/etc", ".hidden"] {
            let made = store.objects(Platform::LinuxAmd64, bad);
            assert!(made.is_err(), "{bad}: {made:?}");
        }
    }

    #[test]
    fn objects_are_read_and_written_by_their_names_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let objects = store.objects(Platform::LinuxAmd64, "x").unwrap().unwrap();
        let one = format!("a/b/ab{}", "0".repeat(62));
        let two = format!("1/2/3/123{}", "f".repeat(61));
        for name in [&one, &two] {
            objects.write(name, name.as_bytes()).unwrap();
            objects.write(name, name.as_bytes()).unwrap();
            let (mut file, size) = objects.read(name).unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!((&text, size), (name, name.len() as u64));
        }
        let digits = "0".repeat(64);
        for bad in [
            String::new(),
            digits.clone(),
            format!("a/b/{digits}"),
            format!("0/0/{}", "0".repeat(63)),
            format!("0/0/{}", "G".repeat(64)),
            format!("/0/{digits}"),
            format!("../0/{digits}"),
            format!("0/0/0/0/0/{digits}"),
            format!("other/0/{digits}"),
        ] {
            assert!(objects.write(&bad, &b""[..]).is_err(), "{bad}");
            assert!(objects.read(&bad).is_err(), "{bad}");
        }
        let expected: BTreeSet<String> = [one, two].into();
        assert_eq!(objects.names().unwrap(), expected);
    }

    #[test]
    fn what_foreign_code_left_leads_nowhere() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let objects = store.objects(Platform::LinuxAmd64, "x").unwrap().unwrap();
        let digits = "0".repeat(62);
        // A folder that is a link, a link in place of an object, a pipe that would be waited for.
        std::fs::create_dir_all(outside.path().join("b")).unwrap();
        std::fs::write(outside.path().join(format!("b/ab{digits}")), "secret").unwrap();
        symlink(outside.path(), objects.path().join("a")).unwrap();
        std::fs::create_dir_all(objects.path().join("c/d")).unwrap();
        symlink(
            "/etc/passwd",
            objects.path().join(format!("c/d/cd{digits}")),
        )
        .unwrap();
        let pipe = objects.path().join(format!("c/d/cd1{}", &digits[1..]));
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, Mode::RWXU, 0).unwrap();
        std::fs::create_dir_all(objects.path().join("e")).unwrap();
        std::fs::write(objects.path().join("e/f"), "no folder").unwrap();

        assert_eq!(objects.names().unwrap(), BTreeSet::new());
        for name in [
            format!("a/b/ab{digits}"),
            format!("c/d/cd{digits}"),
            format!("c/d/cd1{}", &digits[1..]),
        ] {
            assert!(objects.read(&name).is_err(), "{name}");
        }
        for name in [
            format!("a/b/ab2{}", &digits[1..]),
            format!("e/f/ef{digits}"),
        ] {
            assert!(objects.write(&name, &b"x"[..]).is_err(), "{name}");
        }
        // What lies at an object's own place is replaced and not followed.
        let linked = format!("c/d/cd{digits}");
        objects.write(&linked, &b"object"[..]).unwrap();
        assert_eq!(objects.read(&linked).unwrap().1, 6);
        assert_ne!(std::fs::read("/etc/passwd").unwrap(), b"object");
        assert_eq!(
            std::fs::read_dir(outside.path().join("b")).unwrap().count(),
            1
        );
    }

    fn name(digit: char) -> String {
        format!("{digit}/{digit}/{}", digit.to_string().repeat(64))
    }

    fn folder() -> (tempfile::TempDir, ObjectFolder) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Some(dir.path())).unwrap();
        let folder = store.objects(Platform::LinuxAmd64, "x").unwrap().unwrap();
        (dir, folder)
    }

    #[test]
    fn a_layer_brings_what_is_listed_and_not_here() {
        let (_from, source) = folder();
        for digit in ['a', 'b', 'c'] {
            let content = digit.to_string().repeat(1000);
            source.write(&name(digit), content.as_bytes()).unwrap();
        }
        let file = tempfile::tempfile().unwrap();
        let mut names = source.names().unwrap();
        // One of nothing but holes, which is larger than any object.
        source.write(&name('e'), &b""[..]).unwrap();
        let sparse = File::options()
            .write(true)
            .open(source.path().join(name('e')))
            .unwrap();
        sparse.set_len(MOST_OBJECT + 1).unwrap();
        // One that is gone when it is packed.
        names.insert(name('d'));
        let packed = source.pack(names, file.try_clone().unwrap()).unwrap();
        assert_eq!(packed, ['a', 'b', 'c'].map(name).into());
        let layer = || {
            use std::io::Seek as _;
            let mut file = file.try_clone().unwrap();
            file.rewind().unwrap();
            file
        };

        let (_to, target) = folder();
        target.write(&name('a'), &b"mine"[..]).unwrap();
        let mut here = target.names().unwrap();
        let listed = |name: &str| packed.contains(name);
        target.unpack(layer(), listed, &mut here).unwrap();
        assert_eq!(here, packed);
        assert_eq!(target.names().unwrap(), packed);
        assert_eq!(target.read(&name('a')).unwrap().1, 4, "mine stays");
        assert_eq!(target.read(&name('b')).unwrap().1, 1000);

        // A layer with a file that is not listed is refused, and so is a listed file whose name is not an object's.
        let (_other, target) = folder();
        let mut none = BTreeSet::new();
        let less = |found: &str| found == name('a');
        assert!(target.unpack(layer(), less, &mut none).is_err());
        let mut tar = Writer::new(Format::Ustar, Vec::new());
        tar.file("x", Attributes::new(0o644), 1, &b"x"[..]).unwrap();
        let bad = tar.finish().unwrap();
        let any = |_: &str| true;
        assert!(target.unpack(bad.as_slice(), any, &mut none).is_err());
        let cut = &std::io::read_to_string(layer()).unwrap().into_bytes()[..700];
        assert!(target.unpack(cut, any, &mut BTreeSet::new()).is_err());
    }

    #[test]
    fn an_object_is_whole_while_its_members_have_their_checksums() {
        let (_dir, folder) = folder();
        use stackforge_binary::samples::archive::{Build, File};
        let good = Build::of(vec![File::new("obj", b"machine code")]).bytes();
        let at = good.windows(7).position(|w| w == b"machine").unwrap();
        let mut flipped = good.clone();
        flipped[at] ^= 1;
        for (digit, bytes, whole) in [
            ('a', good.clone(), true),
            ('b', flipped, false),
            ('c', good[..good.len() - 1].to_vec(), false),
            ('d', Vec::new(), false),
        ] {
            folder.write(&name(digit), bytes.as_slice()).unwrap();
            assert_eq!(folder.is_whole(&name(digit)), whole, "{digit}");
        }
        assert!(!folder.is_whole(&name('e')), "it is not there");
        folder.remove(&name('b')).unwrap();
        assert_eq!(folder.names().unwrap(), ['a', 'c', 'd'].map(name).into());
    }
}
