//! Chooses what is read of a wheel, and reads it: objects and what looks like a program, Python files, METADATA.
//!
//! A member is in memory while it is read; the largest are left out, for a build downloads and audits them anyway.

use super::members::{self, Place};
use super::modules::Files;
use super::objects::Objects;
use memchr::memmem;
use stackforge_binary::elf::{Machine, Object};
use stackforge_binary::source::{Source, bytes};
use stackforge_binary::zip::{Archive, Member};
use stackforge_image::layer::{LONGEST_METADATA, is_metadata};
use stackforge_transfer::fetch::Fetcher;

/// Longest file of Python that is read, in bytes.
pub(super) const LONGEST_PYTHON: u64 = 1 << 20;

/// Bounds on what is read of one wheel, in bytes of the archive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Largest object.
    largest: u64,
    /// Most of all objects.
    objects: u64,
    /// Most of all files of Python. What has more is well kept, and declares what it imports.
    python: u64,
}

impl Bounds {
    pub const USUAL: Self = Self {
        largest: 96 << 20,
        objects: 384 << 20,
        python: 6 << 20,
    };
    /// For torch and CUDA, whose large objects are known and whose small ones come from elsewhere.
    pub const KNOWN: Self = Self {
        largest: 4 << 20,
        objects: 64 << 20,
        python: 0,
    };
}

/// Reads a wheel within the bounds.
pub(super) async fn read(
    file: &str,
    place: Place,
    bounds: Bounds,
    fetcher: &Fetcher,
) -> Result<(Objects, Files), String> {
    members::read(file, place, fetcher, |archive| listed(archive, bounds), add).await
}

/// Returns the names of a wheel's objects and modules, and the members to read in the order of the file.
fn listed(archive: &Archive, bounds: Bounds) -> ((Objects, Files), Vec<&Member>) {
    let (mut objects, mut files) = (Objects::default(), Files::default());
    let mut wanted: Vec<&Member> = Vec::new();
    let mut python: Vec<&Member> = Vec::new();
    for member in &archive.members {
        if let Some(path) = installed(&member.name) {
            files.name(path);
            if path.ends_with(".py") && member.size <= LONGEST_PYTHON {
                python.push(member);
            }
        }
        let object = is_object(&member.name);
        if object {
            objects.name(&member.name);
        }
        let program = || is_program(&member.name, member.unix_mode, member.size);
        if member.compressed <= bounds.largest && (object || program()) {
            wanted.push(member);
        }
    }
    wanted.sort_by_key(|member| member.offset);
    let mut left = bounds.objects;
    wanted.retain(|member| match left.checked_sub(member.compressed) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    });
    let size: u64 = python.iter().map(|member| member.compressed).sum();
    if size <= bounds.python {
        wanted.append(&mut python);
    }
    wanted.extend(archive.members.iter().filter(|m| is_metadata(&m.name)));
    wanted.sort_by_key(|member| member.offset);
    ((objects, files), wanted)
}

/// Returns the place of a wheel's member below the folder of modules. `None` for what is not installed there.
fn installed(path: &str) -> Option<&str> {
    match path.split_once(".data/") {
        Some((_, below)) => below
            .strip_prefix("purelib/")
            .or_else(|| below.strip_prefix("platlib/")),
        None => Some(path),
    }
}

/// Reads a member. A damaged object, or a file that only has the name of one, is skipped: the audit of a build reports it.
fn add(
    (objects, files): &mut (Objects, Files),
    archive: &Archive,
    member: &Member,
    source: &mut dyn Source,
) {
    let Ok(mut content) = archive.open(member, source) else {
        return;
    };
    let size = content.size();
    if is_metadata(&member.name) {
        if let Ok(text) = bytes(&mut content, 0, size.min(LONGEST_METADATA)) {
            objects.metadata(&String::from_utf8_lossy(&text));
        }
        return;
    }
    if member.name.ends_with(".py") {
        if let (Some(path), Ok(text)) = (installed(&member.name), bytes(&mut content, 0, size)) {
            files.add(path, &String::from_utf8_lossy(&text));
        }
        return;
    }
    // A wheel for any platform may have objects for machines that are no target.
    if let Ok(object) = Object::read(&member.name, &mut content, &[])
        && matches!(object.machine, Machine::X86_64 | Machine::Aarch64)
    {
        objects.add(&member.name, object.needed);
    }
    if is_module(&member.name) && is_for_numpy_1(&mut content) {
        objects.add_for_numpy_1();
    }
}

/// Whether a file's name is that of a shared object: `x.so`, `libx.so.1.2`, `libcrypto-d3570994.so.1.0.2k`.
fn is_object(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let Some((_, version)) = name.rsplit_once(".so") else {
        return false;
    };
    let of_version = |rest: &str| {
        rest.starts_with(|first: char| first.is_ascii_digit())
            && rest.bytes().all(|b| b == b'.' || b.is_ascii_alphanumeric())
    };
    version.is_empty() || version.strip_prefix('.').is_some_and(of_version)
}

/// Whether a file may be a program, such as `driver/node` or `bin/ffmpeg-v7.1`: it is executable, large for a script, and
/// has no name of another kind.
fn is_program(path: &str, mode: Option<u16>, size: u64) -> bool {
    const LEAST: u64 = 8 << 10;
    let mut names = path.rsplit('/');
    let name = names.next().unwrap_or(path);
    let plain = match name.rsplit_once('.') {
        None => true,
        Some((stem, end)) => !stem.is_empty() && end.bytes().all(|b| b.is_ascii_digit()),
    };
    let described = names.any(|folder| folder.ends_with(".dist-info"));
    plain && !described && size >= LEAST && mode.is_some_and(|mode| mode & 0o111 != 0)
}

/// Whether a file's name is that of a Python extension module.
fn is_module(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let tagged = name.contains(".cpython-") || name.contains(".abi3.");
    name.ends_with(".so") && (tagged || !name.starts_with("lib"))
}

/// Whether a module imports numpy's C API where numpy 1 has it, and not where numpy 2 has it: numpy's own headers of
/// before 2.0 know the one name, those from 2.0 on both.
fn is_for_numpy_1(content: &mut impl Source) -> bool {
    const OLD: &[u8] = b"numpy.core._multiarray_umath";
    const NEW: &[u8] = b"numpy._core._multiarray_umath";
    const PIECE: u64 = 1 << 20;
    let (mut old, mut at) = (false, 0);
    while at < content.size() {
        // Pieces overlap, so that a name on an edge is seen.
        let length = (PIECE + NEW.len() as u64).min(content.size() - at);
        let Ok(piece) = bytes(content, at, length) else {
            return false;
        };
        if memmem::find(&piece, NEW).is_some() {
            return false;
        }
        old = old || memmem::find(&piece, OLD).is_some();
        at += PIECE;
    }
    old
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_known_by_their_names() {
        for name in [
            "a/x.so",
            "libx.so.1.2.3",
            "x.libs/libcrypto-d3570994.so.1.0.2k",
            "a/x.cpython-311-x86_64-linux-gnu.so",
        ] {
            assert!(is_object(name), "{name}");
        }
        for name in ["x.sofa", "x.so.txt", "so", "a.so/b.py"] {
            assert!(!is_object(name), "{name}");
        }
    }

    #[test]
    fn programs_are_known_by_mode_size_and_name() {
        let is = |path: &str| is_program(path, Some(0o100_755), 1 << 20);
        for path in [
            "playwright/driver/node",
            "a/ffmpeg-linux-x86_64-v7.0.2",
            "ninja",
        ] {
            assert!(is(path), "{path}");
        }
        for path in ["a/b.py", "a/b.so", "a/.b", "x-1.dist-info/licenses/LICENSE"] {
            assert!(!is(path), "{path}");
        }
        assert!(!is_program("a/node", Some(0o100_644), 1 << 20));
        assert!(!is_program("a/node", None, 1 << 20));
        assert!(!is_program("bin/script", Some(0o100_755), 300));
    }

    #[test]
    fn modules_that_were_built_for_numpy_1_are_known() {
        let of = |text: &[u8], at: usize| {
            let mut content = vec![0; 3 << 20];
            content[at..at + text.len()].copy_from_slice(text);
            let mut file = tempfile::NamedTempFile::new().unwrap();
            std::io::Write::write_all(&mut file, &content).unwrap();
            is_for_numpy_1(&mut stackforge_binary::source::FileSource::open(file.path()).unwrap())
        };
        for at in [0, 1000, (1 << 20) - 5, (3 << 20) - 40] {
            assert!(of(b"numpy.core._multiarray_umath", at), "{at}");
            assert!(!of(b"numpy._core._multiarray_umath", at), "{at}");
        }
        let both = b"numpy._core._multiarray_umath\0numpy.core._multiarray_umath";
        assert!(!of(both, 77));
        assert!(!of(b"numpy", 0));
        for module in [
            "cv2/cv2.abi3.so",
            "a/lib.cpython-311-x86_64-linux-gnu.so",
            "b.so",
        ] {
            assert!(is_module(module), "{module}");
        }
        assert!(!is_module("x.libs/libopenblas.so") && !is_module("a/b.so.1"));
    }

    #[test]
    fn modules_are_found_where_a_wheel_puts_them() {
        assert_eq!(installed("a/b.py"), Some("a/b.py"));
        assert_eq!(installed("x-1.data/purelib/a.py"), Some("a.py"));
        assert_eq!(installed("x-1.data/scripts/a.py"), None);
    }
}
