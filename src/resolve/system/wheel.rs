//! Reads a wheel's objects where it lies: on disk, or at an address by ranges.
//!
//! Only the archive's directory and the members that are objects or look like programs are fetched, neighbours together.
//! A member is in memory while it is read; the largest are left out, for a build downloads and audits them anyway.

use super::objects::Objects;
use memchr::memmem;
use stackforge_binary::elf::Object;
use stackforge_binary::source::{FileSource, Source, Sparse, bytes};
use stackforge_binary::zip::{Archive, Member};
use stackforge_image::layer::{LONGEST_METADATA, is_metadata};
use stackforge_transfer::fetch::{FetchError, Fetcher, PartialContent};
use std::ops::Range;
use std::path::PathBuf;

/// Bytes at the end of a wheel that are fetched first: the directory of most.
const TAIL: u64 = 64 << 10;
/// Longest directory that is fetched, in bytes. The largest known has 2 MB.
const LONGEST_DIRECTORY: u64 = 32 << 20;
/// Most bytes of one request for several members.
const CHUNK: u64 = 16 << 20;
/// Most bytes between two members that are fetched together.
const GAP: u64 = 64 << 10;

/// Bounds on what is read of one wheel, in bytes of the archive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Largest object.
    largest: u64,
    /// Most of all objects.
    most: u64,
}

impl Bounds {
    pub const USUAL: Self = Self {
        largest: 96 << 20,
        most: 384 << 20,
    };
    /// For torch and CUDA, whose large objects are known and whose small ones come from elsewhere.
    pub const SMALL: Self = Self {
        largest: 4 << 20,
        most: 64 << 20,
    };
}

/// Where a wheel is.
pub(super) enum Place {
    Disk(PathBuf),
    /// A URL, which may have credentials.
    Address(String),
}

impl Place {
    /// Returns the place of a URL or of an absolute path.
    pub fn at(address: &str) -> Option<Self> {
        if address.starts_with("https://") || address.starts_with("http://") {
            return Some(Self::Address(address.to_owned()));
        }
        let url = reqwest::Url::parse(address).ok();
        let path = match url {
            Some(url) => url.to_file_path().ok()?,
            None => PathBuf::from(address),
        };
        path.is_absolute().then_some(Self::Disk(path))
    }
}

/// Reads which objects a wheel has, and what those within the bounds need.
pub(super) async fn read(
    file: &str,
    place: Place,
    bounds: Bounds,
    fetcher: &Fetcher,
) -> Result<Objects, String> {
    match place {
        Place::Disk(path) => {
            let mut source = FileSource::open(&path).map_err(|e| e.to_string())?;
            let archive = Archive::read(file, &mut source).map_err(|e| e.to_string())?;
            let (mut out, wanted) = listed(&archive, bounds);
            for member in wanted {
                add(&mut out, &archive, member, &mut source);
            }
            Ok(out)
        }
        Place::Address(url) => {
            let archive = directory(file, &url, fetcher).await?;
            let (mut out, wanted) = listed(&archive, bounds);
            for (range, members) in chunks(&wanted) {
                let found = fetcher.range(&url, range).await;
                let mut source = sparse(found)?;
                for member in members {
                    add(&mut out, &archive, member, &mut source);
                }
            }
            Ok(out)
        }
    }
}

fn sparse(found: Result<Option<PartialContent>, FetchError>) -> Result<Sparse, String> {
    let found = found.map_err(|e| e.to_string())?;
    let found = found.ok_or("its server has no ranges")?;
    let mut source = Sparse::new(found.size);
    source.keep(found.offset, &found.bytes);
    Ok(source)
}

/// Fetches the end of a wheel until its directory is in it.
async fn directory(file: &str, url: &str, fetcher: &Fetcher) -> Result<Archive, String> {
    let mut length = TAIL;
    loop {
        let mut source = sparse(fetcher.suffix(url, length).await)?;
        match Archive::read(file, &mut source) {
            Ok(archive) => return Ok(archive),
            Err(_) if length < source.size() && length < LONGEST_DIRECTORY => length *= 8,
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Returns the names of a wheel's objects, and the members to read in the order of the file.
fn listed(archive: &Archive, bounds: Bounds) -> (Objects, Vec<&Member>) {
    let mut out = Objects::default();
    let metadata = archive.members.iter().filter(|m| is_metadata(&m.name));
    let mut wanted: Vec<&Member> = Vec::new();
    for member in &archive.members {
        let object = is_object(&member.name);
        if object {
            out.name(&member.name);
        }
        let program = || is_program(&member.name, member.unix_mode, member.size);
        if member.compressed <= bounds.largest && (object || program()) {
            wanted.push(member);
        }
    }
    wanted.extend(metadata);
    wanted.sort_by_key(|member| member.offset);
    let mut left = bounds.most;
    wanted.retain(|member| match left.checked_sub(member.compressed) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    });
    (out, wanted)
}

/// Whether a file's name is that of a shared object: `x.so`, `libx.so.1.2`.
fn is_object(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let Some((_, version)) = name.rsplit_once(".so") else {
        return false;
    };
    version.is_empty()
        || version.starts_with('.') && version.bytes().all(|b| b == b'.' || b.is_ascii_digit())
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

/// Groups members into ranges.
fn chunks<'m>(members: &[&'m Member]) -> Vec<(Range<u64>, Vec<&'m Member>)> {
    let mut out: Vec<(Range<u64>, Vec<&Member>)> = Vec::new();
    for member in members {
        match out.last_mut() {
            Some((range, together))
                if member.offset <= range.end.saturating_add(GAP)
                    && member.end().saturating_sub(range.start) <= CHUNK =>
            {
                range.end = member.end();
                together.push(member);
            }
            _ => out.push((member.offset..member.end(), vec![member])),
        }
    }
    out
}

/// Reads an object. What is none, or is damaged, needs nothing here: the audit of a build judges it.
fn add(out: &mut Objects, archive: &Archive, member: &Member, source: impl Source) {
    let Ok(mut content) = archive.open(member, source) else {
        return;
    };
    if is_metadata(&member.name) {
        let size = content.size().min(LONGEST_METADATA);
        if let Ok(text) = bytes(&mut content, 0, size) {
            out.metadata(&String::from_utf8_lossy(&text));
        }
        return;
    }
    if let Ok(object) = Object::read(&member.name, &mut content, &[]) {
        out.add(&member.name, object.needed);
    }
    if is_module(&member.name) && is_for_numpy_1(&mut content) {
        out.add_for_numpy_1();
    }
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
            is_for_numpy_1(&mut FileSource::open(file.path()).unwrap())
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
    fn places_are_addresses_or_absolute_paths() {
        assert!(matches!(
            Place::at("https://i.test/x.whl"),
            Some(Place::Address(_))
        ));
        assert!(matches!(Place::at("file:///a/x.whl"), Some(Place::Disk(_))));
        assert!(matches!(Place::at("/a/x.whl"), Some(Place::Disk(_))));
        assert!(Place::at("x.whl").is_none());
    }
}
