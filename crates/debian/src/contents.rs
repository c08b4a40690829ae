//! Which package has a library or a program: the Contents index of an archive.
//!
//! The input is suites, as for [`fetch_index`](crate::archive::fetch_index); the output is a [`Contents`].
//! Only what a loader finds by a SONAME and a shell by a name is kept: the files of the loader's own
//! directories and of `/usr/bin` and its like. What was kept of an index file is written beside it, for
//! the whole has some 150 MB and is read once. Only [`fetch_unverified_contents`] returns what nothing
//! vouches for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use flate2::bufread::MultiGzDecoder;

use crate::archive::{ArchiveError, Source, Suite, fetch_suites};
use crate::deb::Bounded;
use crate::mirror::MirrorError;
use crate::package::is_package_name;
use crate::release::Release;

/// Limit on the size of one decompressed index, in bytes. That of Debian's main for all architectures has
/// 520 MB.
const MAX_CONTENTS: u64 = 4 << 30;
/// Limit on the size of one compressed index that is not verified, in bytes.
const MAX_UNVERIFIED: u64 = 256 << 20;
/// Longest line that is read, in bytes.
const LONGEST_LINE: u64 = 64 << 10;
/// First line of what is written beside an index.
const KEPT: &str = "stackforge contents 1";

/// The packages of libraries and programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    libraries: BTreeMap<String, Vec<String>>,
    programs: BTreeMap<String, Vec<String>>,
}

impl Contents {
    /// Returns the packages that have a library of this SONAME in a directory of the loader. Development
    /// packages, whose files are for a linker, are not among them.
    pub fn library(&self, soname: &str) -> &[String] {
        self.libraries.get(soname).map_or(&[], Vec::as_slice)
    }

    /// Returns the packages that have a program of this name.
    pub fn program(&self, name: &str) -> &[String] {
        self.programs.get(name).map_or(&[], Vec::as_slice)
    }

    /// Adds an index. Lines that are no entry are left out.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn add(&mut self, index: impl BufRead, architecture: &str) -> io::Result<()> {
        let triplet = match architecture {
            "arm64" => "aarch64-linux-gnu",
            _ => "x86_64-linux-gnu",
        };
        lines(index, |line| {
            let Some((path, packages)) = line.rsplit_once([' ', '\t']) else {
                return;
            };
            let Some((folder, name)) = path.trim_end().rsplit_once('/') else {
                return;
            };
            let below = folder.strip_prefix("usr/").unwrap_or(folder);
            let files = match below {
                "bin" | "sbin" => &mut self.programs,
                "lib" | "lib64" if name.contains(".so") => &mut self.libraries,
                _ if below.strip_prefix("lib/") == Some(triplet) && name.contains(".so") => {
                    &mut self.libraries
                }
                _ => return,
            };
            if !name.bytes().all(|b| b.is_ascii_graphic()) {
                return;
            }
            let library = name.contains(".so");
            for package in packages.split(',') {
                let package = package.rsplit('/').next().unwrap_or(package);
                if is_package_name(package) && !(library && package.ends_with("-dev")) {
                    insert(files, name, package);
                }
            }
        })
    }

    fn merge(&mut self, other: Self) {
        for (into, from) in [
            (&mut self.libraries, other.libraries),
            (&mut self.programs, other.programs),
        ] {
            for (name, packages) in from {
                for package in packages {
                    insert(into, &name, &package);
                }
            }
        }
    }

    /// Writes all entries, a line each.
    fn write(&self, out: &mut impl io::Write) -> io::Result<()> {
        writeln!(out, "{KEPT}")?;
        for (kind, files) in [("lib", &self.libraries), ("bin", &self.programs)] {
            for (name, packages) in files {
                writeln!(out, "{kind} {name} {}", packages.join(","))?;
            }
        }
        Ok(())
    }

    /// Reads what [`Contents::write`] wrote; `None` if it is something else.
    fn read(text: &str) -> Option<Self> {
        let mut out = Self::default();
        let rest = text.strip_prefix(KEPT)?.strip_prefix('\n')?;
        for line in rest.lines() {
            let mut words = line.split(' ');
            let (kind, name, packages) = (words.next()?, words.next()?, words.next()?);
            let files = match kind {
                "lib" => &mut out.libraries,
                "bin" => &mut out.programs,
                _ => return None,
            };
            let packages = packages.split(',').map(str::to_owned).collect();
            files.insert(name.to_owned(), packages);
        }
        Some(out)
    }
}

fn insert(files: &mut BTreeMap<String, Vec<String>>, name: &str, package: &str) {
    let packages = match files.get_mut(name) {
        Some(packages) => packages,
        None => files.entry(name.to_owned()).or_default(),
    };
    if let Err(place) = packages.binary_search_by(|known| known.as_str().cmp(package)) {
        packages.insert(place, package.to_owned());
    }
}

/// Calls `each` with every line that is UTF-8 and not longer than the limit.
fn lines(mut input: impl BufRead, mut each: impl FnMut(&str)) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)?
            == 0
        {
            return Ok(());
        }
        if line.ends_with(b"\n")
            && let Ok(line) = std::str::from_utf8(&line[..line.len() - 1])
        {
            each(line);
        }
    }
}

/// Fetches which package of the suites has which library and program. A suite that lists no such index has
/// none: its packages are those of others.
///
/// # Errors
/// If a suite has no mirror, cannot be downloaded, is not signed by the keyring or has expired, or an
/// index cannot be read.
pub async fn fetch_contents(
    source: Source<'_>,
    suites: &[Suite],
    architecture: &str,
) -> Result<Contents, ArchiveError> {
    let fetched = fetch_suites(source, suites, architecture, &|release, suite| {
        Ok(listed(release, suite, architecture))
    })
    .await?;
    let mut out = Contents::default();
    for (suite, files) in suites.iter().zip(fetched) {
        for file in files {
            let contents = kept(&file, architecture).map_err(|source| ArchiveError::Read {
                suite: suite.name.clone(),
                source,
            })?;
            out.merge(contents);
        }
    }
    Ok(out)
}

/// Fetches the same of a mirror whose index is not the one that its release lists. Mirrors and caches are
/// updated file by file, and these are the largest: they may be days older. Nothing vouches for the answer,
/// so it may choose among packages of a verified index, and decide nothing else.
///
/// # Errors
/// If a suite has no mirror or no valid release, or an index cannot be downloaded or read.
pub async fn fetch_unverified_contents(
    source: Source<'_>,
    suites: &[Suite],
    architecture: &str,
) -> Result<Contents, ArchiveError> {
    let indices = Mutex::new(Vec::new());
    fetch_suites(source, suites, architecture, &|release, suite| {
        let paths = listed(release, suite, architecture).into_iter();
        let mut indices = indices.lock().unwrap_or_else(PoisonError::into_inner);
        indices.extend(paths.filter_map(|path| {
            let expected = release.files.get(&path)?.sha256.hex().to_owned();
            Some((suite.clone(), path, expected))
        }));
        Ok(Vec::new())
    })
    .await?;
    let mut out = Contents::default();
    for (suite, path, expected) in indices.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let beside = source.cache.join(format!("{expected}.unverified.names"));
        if let Some(contents) = read_beside(&beside) {
            out.merge(contents);
            continue;
        }
        let body = unverified(source, &suite, &path).await?;
        let text = Bounded {
            inner: MultiGzDecoder::new(&*body),
            left: MAX_CONTENTS,
        };
        let mut contents = Contents::default();
        let added = contents.add(BufReader::with_capacity(256 << 10, text), architecture);
        added.map_err(|source| ArchiveError::Read {
            suite: suite.name.clone(),
            source,
        })?;
        let _ = write_beside(&beside, &contents);
        out.merge(contents);
    }
    Ok(out)
}

async fn unverified(
    source: Source<'_>,
    suite: &Suite,
    path: &str,
) -> Result<Vec<u8>, ArchiveError> {
    let mut failed = None;
    for mirror in source.mirrors.for_archive(&suite.archive)? {
        let url = format!("{mirror}/dists/{}/{path}", suite.name);
        match source.fetcher.get(&url, None, MAX_UNVERIFIED).await {
            Ok(answer) => return Ok(answer.body.to_vec()),
            Err(source) => {
                let suite = suite.name.clone();
                failed.get_or_insert(ArchiveError::Download { suite, source });
            }
        }
    }
    let archive = suite.archive.clone();
    Err(failed.unwrap_or_else(|| MirrorError::Missing { archive }.into()))
}

/// Returns the paths of the indices that a release lists: Debian has one for each component, Ubuntu one for the
/// suite.
fn listed(release: &Release, suite: &Suite, architecture: &str) -> Vec<String> {
    let of_component = |c: &String| format!("{c}/Contents-{architecture}.gz");
    let paths = suite.components.iter().map(of_component);
    let paths = paths.chain([format!("Contents-{architecture}.gz")]);
    paths.filter(|p| release.files.contains_key(p)).collect()
}

/// Reads what was kept of a verified index, or the index, of which it then writes what is kept.
fn kept(file: &Path, architecture: &str) -> io::Result<Contents> {
    let beside = file.with_extension("names");
    if let Some(contents) = read_beside(&beside) {
        return Ok(contents);
    }
    let raw = BufReader::with_capacity(128 << 10, File::open(file)?);
    let text = Bounded {
        inner: MultiGzDecoder::new(raw),
        left: MAX_CONTENTS,
    };
    let mut contents = Contents::default();
    contents.add(BufReader::with_capacity(256 << 10, text), architecture)?;
    // A store that takes no more costs time at the next run alone.
    let _ = write_beside(&beside, &contents);
    Ok(contents)
}

fn read_beside(path: &Path) -> Option<Contents> {
    Contents::read(&std::fs::read_to_string(path).ok()?)
}

fn write_beside(path: &Path, contents: &Contents) -> io::Result<()> {
    let part = path.with_extension(format!("names.{}", std::process::id()));
    let mut file = io::BufWriter::new(File::create(&part)?);
    let written = contents.write(&mut file).and_then(|()| file.flush());
    match written {
        Ok(()) => std::fs::rename(&part, path),
        Err(error) => {
            let _ = std::fs::remove_file(&part);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INDEX: &str = "\
usr/bin/ffmpeg                                          video/ffmpeg
usr/share/doc/a file with spaces                        doc/x
lib/x86_64-linux-gnu/libpam.so.0                        libs/libpam0g
usr/lib/x86_64-linux-gnu/libgomp.so.1                   libs/libgomp1
usr/lib/x86_64-linux-gnu/blas/libblas.so.3              libs/libblas3
usr/lib/x86_64-linux-gnu/libjack.so.0                   libs/libjack-jackd2-0,non-free/libs/libjack0
usr/lib/x86_64-linux-gnu/libtorch.so                    libdevel/libtorch-dev
usr/lib32/libgomp.so.1                                  libs/lib32gomp1
usr/lib/aarch64-linux-gnu/libz.so.1                     libs/zlib1g
usr/lib/libfoo.so.2                                     libs/UPPER
";

    #[test]
    fn what_a_loader_and_a_shell_find_is_kept() {
        let mut contents = Contents::default();
        contents.add(INDEX.as_bytes(), "amd64").unwrap();
        assert_eq!(contents.library("libgomp.so.1"), ["libgomp1"]);
        assert_eq!(contents.library("libpam.so.0"), ["libpam0g"]);
        let both = ["libjack-jackd2-0", "libjack0"];
        assert_eq!(contents.library("libjack.so.0"), both);
        assert_eq!(contents.program("ffmpeg"), ["ffmpeg"]);
        for none in ["libblas.so.3", "libtorch.so", "libz.so.1", "libfoo.so.2"] {
            assert!(contents.library(none).is_empty(), "{none}");
        }
        let mut text = Vec::new();
        contents.write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(Contents::read(&text), Some(contents));
        assert_eq!(Contents::read("something else\n"), None);
    }

    proptest! {
        #[test]
        fn what_was_kept_reads_back(index in "(usr/lib/|usr/bin/)[ -~]{0,20} [ -~]{0,20}\n") {
            let mut contents = Contents::default();
            contents.add(index.as_bytes(), "amd64").unwrap();
            let mut text = Vec::new();
            contents.write(&mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            prop_assert_eq!(Contents::read(&text), Some(contents));
        }
    }
}
