//! Opens the file that the user names and those that it includes: text, bounded, each inclusion once at a time.

use super::ConvertError;
use super::file::File;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Longest file, in bytes, and the most that all files of one conversion have together.
pub const MAX_BYTES: u64 = 1 << 20;
/// Most files that are opened.
const MOST: usize = 64;
/// How deep files may include each other.
const DEEPEST: usize = 8;

/// Where files are read from: a disk, or a test's memory.
pub trait Disk {
    /// Returns the first `most` bytes of a file.
    ///
    /// # Errors
    /// If there is none, or it is a directory.
    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>>;

    fn is_file(&self, path: &Path) -> bool;

    /// Returns the names of the files in a directory.
    fn list(&self, path: &Path) -> Vec<String>;
}

pub struct Files<'a> {
    disk: &'a dyn Disk,
    /// Files that are being read, outermost first.
    open: Vec<PathBuf>,
    /// Files that were read.
    done: Vec<PathBuf>,
    left: u64,
}

impl<'a> Files<'a> {
    pub fn new(disk: &'a dyn Disk) -> Self {
        Self {
            disk,
            open: Vec::new(),
            done: Vec::new(),
            left: MAX_BYTES,
        }
    }

    /// Reads a file. `by` is the line that names it.
    ///
    /// # Errors
    /// If it cannot be read, is too large, or is not text.
    pub fn open(&mut self, path: &Path, by: Option<&str>) -> Result<File, ConvertError> {
        let path = plain(path);
        let shown = if path.as_os_str() == "-" {
            "stdin".to_owned()
        } else {
            path.display().to_string()
        };
        let by = by.map(str::to_owned);
        if self.done.len() == MOST || self.open.len() == DEEPEST {
            let by = by.unwrap_or(shown);
            return Err(ConvertError::TooMany { by });
        }
        self.done.push(path.clone());
        let bytes = match self.disk.read(&path, self.left + 1) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
                return Err(self.directory(&path, shown));
            }
            Err(source) => return Err(ConvertError::Unreadable { shown, by, source }),
        };
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            return Err(ConvertError::TooLarge { shown, by });
        };
        self.left = left;
        match decoded(&bytes) {
            Ok(text) => Ok(File { path, shown, text }),
            Err(what) => Err(ConvertError::NotText { shown, by, what }),
        }
    }

    /// Reads a file that `by` includes, and hands it to `each`, within which it cannot be included again.
    ///
    /// # Errors
    /// As [`Files::open`], if the file is being read already, and those of `each`.
    pub fn within<T>(
        &mut self,
        path: &Path,
        by: &str,
        each: impl FnOnce(&mut Self, &File) -> Result<T, ConvertError>,
    ) -> Result<T, ConvertError> {
        let path = plain(path);
        if self.open.contains(&path) {
            return Err(ConvertError::Cycle {
                shown: path.display().to_string(),
                by: by.to_owned(),
            });
        }
        let file = self.open(&path, Some(by))?;
        self.open.push(path);
        let result = each(self, &file);
        self.open.pop();
        result
    }

    /// Marks the file that the user named as being read.
    pub fn enter(&mut self, file: &File) {
        self.open.push(file.path.clone());
    }

    pub fn is_file(&self, path: &Path) -> bool {
        self.disk.is_file(&plain(path))
    }

    /// Whether the file was read.
    pub fn was_read(&self, path: &Path) -> bool {
        self.done.contains(&plain(path))
    }

    fn directory(&self, path: &Path, shown: String) -> ConvertError {
        let mut inside = self.disk.list(path);
        inside.retain(|name| super::kind::by_name(Path::new(name)).is_some());
        inside.sort();
        inside.truncate(6);
        let at = |name: &String| format!("`{}`", path.join(name).display());
        ConvertError::Directory {
            shown,
            inside: inside.iter().map(at).collect(),
        }
    }
}

/// Removes `.` and resolves `..` where that needs no look at the disk.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match (part, out.components().next_back()) {
            (Component::CurDir, _) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => {
                out.pop();
            }
            _ => out.push(part),
        }
    }
    if out.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        out
    }
}

/// Decodes UTF-8 with or without a byte order mark, and UTF-16 with one, which PowerShell writes.
fn decoded(bytes: &[u8]) -> Result<String, String> {
    let utf16 = |bytes: &[u8], of: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let text = String::from_utf16(&pairs.iter().map(|p| of(*p)).collect::<Vec<_>>());
        match text {
            Ok(text) if rest.is_empty() => Ok(text),
            _ => Err("it begins as UTF-16 and is not".to_owned()),
        }
    };
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes)?,
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes)?,
        _ => {
            let rest = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            let text = std::str::from_utf8(rest);
            text.map_err(|e| format!("byte {} is not UTF-8", e.valid_up_to() + 1))?
                .to_owned()
        }
    };
    match text.find('\0') {
        Some(at) => Err(format!("byte {} is zero", at + 1)),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_encodings_are_understood() {
        assert_eq!(decoded(b"\xef\xbb\xbfsix\n").unwrap(), "six\n");
        let little: Vec<u8> = "six".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(
            decoded(&[b"\xff\xfe", &little[..]].concat()).unwrap(),
            "six"
        );
        assert_eq!(decoded(b"\xfe\xff\0s").unwrap(), "s");
        for bad in [&b"\xff\xfes"[..], b"six\xff", b"\x7fELF\0"] {
            assert!(decoded(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn paths_are_made_plain() {
        for (path, same) in [
            ("./a/../b", "b"),
            ("../a", "../a"),
            ("/x/./y", "/x/y"),
            ("a/..", "."),
            ("", "."),
        ] {
            assert_eq!(plain(Path::new(path)), Path::new(same));
        }
    }
}
