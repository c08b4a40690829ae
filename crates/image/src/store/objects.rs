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
use stackforge_types::beneath::{Within, open_beneath};
use stackforge_types::{Digest, Platform};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const FOLDER: &str = "objects";
/// What is mounted into the sandbox, whose code may open it to others. The directory above stays closed.
const CONTENT: &str = "content";
/// Most folders above an object that are named as its digits.
const MOST_FOLDERS: usize = 4;
const CLOSED: Within = Within::OneMount;

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
        let folder = self.dir(&format!("{FOLDER}/{}", platform.arch()))?;
        // Objects that another user's sandbox made cannot be replaced by this one's.
        let own = match rustix::process::geteuid() {
            user if user.is_root() => library.to_owned(),
            user => format!("{library}-{}", user.as_raw()),
        };
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
        // A hit changes no file of the directory, and its age is that of its last use.
        let used = File::open(&above).and_then(|f| f.set_modified(SystemTime::now()));
        used.map_err(failed)?;
        Ok(Some(ObjectFolder {
            opened: File::open(&path).map_err(failed)?,
            path,
            _alone: alone,
        }))
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
}
