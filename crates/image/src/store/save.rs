//! Writes files that a user names: an archive, a report, a lock file.
//!
//! A regular file is replaced atomically once all its bytes are on disk, and keeps its mode and owner. A
//! symbolic link is followed and kept. Pipes, devices and stdout get the bytes as they are written.
//! The store's own files are written by [`super::write_atomically`].

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Seek as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use stackforge_types::system;
use tempfile::{NamedTempFile, TempPath};

/// Mode of a new file before the umask.
const NEW: u32 = 0o666;
/// Most symbolic links that Linux follows in one path.
const MOST_LINKS: usize = 40;

static STDOUT_HAS_OUTPUT: AtomicBool = AtomicBool::new(false);

/// Whether a [`Save`] of this process wrote to stdout. Then no text for people may be printed there.
pub fn stdout_has_output() -> bool {
    STDOUT_HAS_OUTPUT.load(Ordering::Relaxed)
}

/// Replaces the file at `path`, or writes to the pipe or device there.
///
/// # Errors
/// If the file cannot be written. The old file is then unchanged.
pub fn save(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = Save::begin(path)?;
    file.write_all(content)?;
    file.finish()
}

/// Writes a new file with that mode at `path`. It gets its name once all of it is on disk, so a full disk
/// leaves nothing that blocks the next try.
///
/// # Errors
/// `AlreadyExists` if something is there.
pub fn save_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // Checked before anything is written.
    if path.symlink_metadata().is_ok() {
        return Err(rustix::io::Errno::EXIST.into());
    }
    let (mut file, temporary) = temporary(folder(path))?;
    let own = file.metadata()?.mode() & mode;
    file.set_permissions(Permissions::from_mode(own))?;
    file.write_all(content)?;
    file.sync_all()?;
    let temporary = match temporary {
        Some(temporary) => temporary,
        None => linked(&file, folder(path))?,
    };
    temporary.persist_noclobber(path).map_err(|e| e.error)
}

/// A file that is being written. If it is dropped before [`Save::finish`], the old file stays as it was.
#[derive(Debug)]
pub struct Save {
    file: File,
    /// `None` if the bytes are written directly to a pipe, a device or a descriptor.
    replaces: Option<Replaces>,
}

#[derive(Debug)]
struct Replaces {
    path: PathBuf,
    before: Option<Metadata>,
    /// `None` while the file is unnamed, so that a killed process leaves nothing.
    temporary: Option<TempPath>,
}

impl Save {
    /// Begins a file for `path`.
    ///
    /// # Errors
    /// If `path` cannot be written, or is a directory.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let path = match followed(path)? {
            End::Descriptor(file) => {
                return Ok(Self {
                    file,
                    replaces: None,
                });
            }
            End::Path(path) => path,
        };
        let before = match std::fs::symlink_metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            found => Some(found?),
        };
        if before.as_ref().is_some_and(|metadata| !metadata.is_file()) {
            let file = File::options().write(true).open(&path)?;
            return Ok(Self {
                file,
                replaces: None,
            });
        }
        let (file, temporary) = temporary(folder(&path))?;
        Ok(Self {
            file,
            replaces: Some(Replaces {
                path,
                before,
                temporary,
            }),
        })
    }

    /// The open file, for writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Syncs the file and gives it its name.
    ///
    /// # Errors
    /// If the file system is full, or `path` became something that cannot be replaced. The old file is then
    /// unchanged.
    pub fn finish(self) -> io::Result<()> {
        let Some(replaces) = self.replaces else {
            return Ok(());
        };
        if let Some(before) = &replaces.before {
            // Only root may give a file to another owner; otherwise it belongs to the user who wrote it.
            let _ = std::os::unix::fs::fchown(&self.file, Some(before.uid()), Some(before.gid()));
            let mode = Permissions::from_mode(before.mode() & 0o7777);
            self.file.set_permissions(mode)?;
        }
        self.file.sync_all()?;
        let temporary = match replaces.temporary {
            Some(temporary) => temporary,
            None => linked(&self.file, folder(&replaces.path))?,
        };
        temporary.persist(&replaces.path).map_err(|e| e.error)
    }
}

impl Write for Save {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Where a chain of symbolic links ends.
enum End {
    Path(PathBuf),
    /// An open descriptor of a process, for instance `/dev/stdout`.
    Descriptor(File),
}

fn followed(path: &Path) -> io::Result<End> {
    let mut path = path.to_owned();
    for _ in 0..=MOST_LINKS {
        if let Some(file) = descriptor(&path) {
            return file.map(End::Descriptor);
        }
        match std::fs::read_link(&path) {
            Ok(to) => path = folder(&path).join(to),
            Err(_) => return Ok(End::Path(path)),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// The open descriptor that a path such as `/proc/PID/fd/1` stands for. `None` for other paths.
fn descriptor(path: &Path) -> Option<io::Result<File>> {
    let number = path.file_name()?.to_str()?;
    number.parse::<u32>().ok()?;
    let parent = folder(path).canonicalize().ok()?;
    if !system::holds_descriptors(&parent) {
        return None;
    }
    let own = system::holds_own_descriptors(&parent);
    // A duplicate shares the file offset with printed output; opening the file again would not.
    let duplicate = match number {
        "1" if own => {
            STDOUT_HAS_OUTPUT.store(true, Ordering::Relaxed);
            io::stdout().as_fd().try_clone_to_owned()
        }
        "2" if own => io::stderr().as_fd().try_clone_to_owned(),
        _ => return Some(File::options().write(true).truncate(true).open(path)),
    };
    Some(duplicate.map(File::from))
}

fn folder(path: &Path) -> &Path {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// A temporary file in `folder`, unnamed if the file system supports that.
fn temporary(folder: &Path) -> io::Result<(File, Option<TempPath>)> {
    if let Ok(file) = system::unnamed(folder, NEW) {
        return Ok((file, None));
    }
    let (file, path) = named(folder)?.into_parts();
    Ok((file, Some(path)))
}

fn named(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".tmp-")
        .permissions(Permissions::from_mode(NEW))
        .tempfile_in(folder)
}

/// Gives an unnamed file a temporary name, because linking cannot replace an existing file.
fn linked(file: &File, folder: &Path) -> io::Result<TempPath> {
    loop {
        let path = folder.join(format!(".tmp-{:016x}", fastrand::u64(..)));
        match system::linked(file, &path) {
            Ok(()) => return TempPath::try_from_path(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            // A file system may support unnamed files but not linking them.
            Err(_) => return copied(file, folder),
        }
    }
}

fn copied(mut file: &File, folder: &Path) -> io::Result<TempPath> {
    let mut named = named(folder)?;
    file.seek(io::SeekFrom::Start(0))?;
    io::copy(&mut file, &mut named)?;
    let mode = file.metadata()?.permissions();
    named.as_file().set_permissions(mode)?;
    named.as_file().sync_all()?;
    Ok(named.into_temp_path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::symlink;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let name = |e: io::Result<std::fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut all: Vec<String> = entries.map(name).collect();
        all.sort();
        all
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_link_stays_and_its_target_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("there")).unwrap();
        std::fs::write(at("there/file"), "old").unwrap();
        symlink("there/second", at("first")).unwrap();
        symlink("file", at("there/second")).unwrap();
        let before = std::fs::metadata(at("there/file")).unwrap().ino();
        save(&at("first"), b"new").unwrap();
        assert_eq!(std::fs::read(at("there/file")).unwrap(), b"new");
        assert_ne!(std::fs::metadata(at("there/file")).unwrap().ino(), before);
        assert!(at("first").is_symlink() && at("there/second").is_symlink());
        // A dangling link creates its target.
        symlink("there/third", at("dangling")).unwrap();
        save(&at("dangling"), b"made").unwrap();
        assert!(at("dangling").is_symlink());
        assert_eq!(std::fs::read(at("there/third")).unwrap(), b"made");
        assert_eq!(names(dir.path()), ["dangling", "first", "there"]);
        assert_eq!(names(&at("there")), ["file", "second", "third"]);
        symlink("loop", at("loop")).unwrap();
        assert!(save(&at("loop"), b"x").is_err());
    }

    #[test]
    fn a_new_file_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        save_new(&path, b"one", 0o600).unwrap();
        assert_eq!(mode(&path), 0o600);
        symlink("nowhere", dir.path().join("link")).unwrap();
        for occupied in [path.clone(), dir.path().join("link"), dir.path().to_owned()] {
            let refused = save_new(&occupied, b"two", 0o666).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        assert_eq!(names(dir.path()), ["file", "link"]);
    }

    #[test]
    fn a_file_keeps_its_mode_and_is_whole_or_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        save(&path, b"one").unwrap();
        assert_eq!(mode(&path) & 0o600, 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        save(&path, b"two").unwrap();
        assert_eq!(mode(&path), 0o640);
        let mut half = Save::begin(&path).unwrap();
        half.write_all(b"thr").unwrap();
        drop(half);
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(names(dir.path()), ["file"]);
        assert!(save(dir.path(), b"x").is_err(), "a directory");
        assert!(save(&dir.path().join("none/file"), b"x").is_err());
    }

    #[test]
    fn file_systems_without_unnamed_files_or_links_will_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let (file, temporary) = named(dir.path()).unwrap().into_parts();
        let mut save = Save {
            file,
            replaces: Some(Replaces {
                path: path.clone(),
                before: None,
                temporary: Some(temporary),
            }),
        };
        save.write_all(b"named").unwrap();
        save.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"named");
        assert_eq!(mode(&path) & 0o600, 0o600);

        let (mut file, _temporary) = super::temporary(dir.path()).unwrap();
        file.write_all(b"copied").unwrap();
        copied(&file, dir.path()).unwrap().persist(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"copied");
        assert_eq!(names(dir.path()), ["file"]);
    }

    #[test]
    fn a_pipe_and_a_device_get_the_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || std::fs::read(path).unwrap()
        });
        save(&path, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert_eq!(names(dir.path()), ["pipe"]);
        save(Path::new("/dev/null"), b"x").unwrap();
        assert!(!Path::new("/dev/null").is_file());
        assert!(save(Path::new("/dev/full"), b"x").is_err());
    }

    #[test]
    fn an_open_file_is_written_into() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        let before = file.metadata().unwrap().ino();
        let descriptor = Path::new("/dev/fd").join(file.as_raw_fd().to_string());
        save(&descriptor, b"bytes").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"bytes");
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), before);
    }
}
