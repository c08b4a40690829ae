//! Reads one package file: an `ar` archive of a version, a control archive and a data archive (deb(5)).
//!
//! Opening reads the control part, with a bound, and records the position of the data part. The data is
//! streamed, also with a bound, each time it is requested. Compression is none, gzip, xz or zstd.
//! Nothing here executes or unpacks anything.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::control::{ControlError, StanzaReader};
use super::members::{MemberError, PackedKind, for_each_member};

/// Limit on the decompressed size of a control archive, in bytes. The largest of Debian's are below 10
/// MiB.
const MAX_CONTROL: u64 = 64 << 20;
/// Limit on the decompressed size of a data archive, in bytes.
const MAX_DATA: u64 = 16 << 30;
/// Limit on the memory of an xz decoder, in bytes. `xz -9` needs 65 MiB.
const XZ_MEMORY: u64 = 256 << 20;

/// A package file that cannot be used, with its path.
#[derive(Debug, thiserror::Error)]
#[error("package file `{}`: {problem}", path.display())]
pub struct DebError {
    path: PathBuf,
    #[source]
    problem: Problem,
}

/// What can be wrong with a package file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read or decompressed.
    #[error("it cannot be read")]
    Read(#[from] io::Error),
    /// The file is not a Debian package of format 2.0, with the reason.
    #[error("it is not a Debian package: {0}")]
    Format(&'static str),
    /// The control or data archive has an unknown compression, with its file name's ending.
    #[error("its compression `{0}` is none of gz, xz, zst")]
    Compression(String),
    /// A tar in the package is malformed.
    #[error("its archives are malformed")]
    Member(#[from] MemberError),
    /// The control file does not parse.
    #[error("its control file is malformed")]
    Control(#[from] ControlError),
    /// A required field is missing or malformed.
    #[error("its control file has no valid field `{0}`")]
    Field(&'static str),
}

impl DebError {
    /// Returns what to do about it, as a sentence without its full stop.
    pub fn help(&self) -> &'static str {
        "remove the file from the cache and fetch it again; if its digest is right, the package itself is broken"
    }
}

/// A file of the control archive.
#[derive(Debug, Clone)]
pub struct ControlFile {
    /// The file's bytes, within the bound of the control archive.
    pub content: Vec<u8>,
    /// Whether the owner may execute the file.
    pub executable: bool,
}

#[derive(Debug, Clone, Copy)]
enum Compression {
    None,
    Gzip,
    Xz,
    Zstd,
}

#[derive(Debug, Clone, Copy)]
struct Section {
    offset: u64,
    length: u64,
    compression: Compression,
}

/// An opened package file.
#[derive(Debug)]
pub struct Deb {
    path: PathBuf,
    /// The control stanza's fields in order, and its text.
    fields: Vec<(String, String)>,
    text: String,
    /// The control archive's other files by name: maintainer scripts, `md5sums`, `triggers`, …
    pub control_files: BTreeMap<String, ControlFile>,
    data: Section,
}

impl Deb {
    /// Reads the control part of the package file at `path`. The data part is not read.
    ///
    /// # Errors
    /// If the file cannot be read or is not a package.
    pub fn open(path: &Path) -> Result<Self, DebError> {
        open(path).map_err(|problem| DebError {
            path: path.to_owned(),
            problem,
        })
    }

    /// Returns the file's path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a field of the control file. `name` is case-insensitive.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Iterates over the control stanza's fields in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the control stanza as it was written.
    pub fn stanza(&self) -> &str {
        &self.text
    }

    // `open` checks that the three fields below exist.
    /// Returns the field `Package`.
    pub fn name(&self) -> &str {
        self.field("Package").unwrap_or_default()
    }

    /// Returns the field `Version`.
    pub fn version(&self) -> &str {
        self.field("Version").unwrap_or_default()
    }

    /// Returns the field `Architecture`: `all`, or a name such as `amd64`.
    pub fn architecture(&self) -> &str {
        self.field("Architecture").unwrap_or_default()
    }

    /// Iterates over the absolute paths of configuration files that the package installs.
    pub fn conffiles(&self) -> impl Iterator<Item = &str> {
        self.control_files
            .get("conffiles")
            .and_then(|file| std::str::from_utf8(&file.content).ok())
            .unwrap_or_default()
            .lines()
            .map(str::trim)
            // A line `remove-on-upgrade /path` names a file that the package no longer has.
            .filter(|line| line.starts_with('/'))
    }

    /// Returns the data archive, decompressed.
    ///
    /// # Errors
    /// If the file cannot be opened any more. Damage in the archive is an error of the returned reader.
    pub fn data(&self) -> Result<Box<dyn Read + Send>, DebError> {
        section(&self.path, self.data, MAX_DATA).map_err(|problem| DebError {
            path: self.path.clone(),
            problem: problem.into(),
        })
    }
}

fn open(path: &Path) -> Result<Deb, Problem> {
    let (control, data) = find_sections(&mut BufReader::new(File::open(path)?))?;
    let mut control_files = BTreeMap::new();
    for_each_member(
        section(path, control, MAX_CONTROL)?,
        |member, content| match member.kind {
            PackedKind::File { .. } if is_control_name(&member.path) => {
                let mut bytes = Vec::new();
                content.read_to_end(&mut bytes)?;
                let file = ControlFile {
                    content: bytes,
                    executable: member.mode & 0o111 != 0,
                };
                if control_files.insert(member.path, file).is_some() {
                    return Err(Problem::Format("a control file occurs twice"));
                }
                Ok(())
            }
            PackedKind::Directory if member.path.is_empty() => Ok(()),
            _ => Err(Problem::Format(
                "its control archive holds something else than plain files",
            )),
        },
    )?;
    let file = control_files
        .remove("control")
        .ok_or(Problem::Format("it has no control file"))?;
    let mut reader = StanzaReader::new(file.content.as_slice());
    let stanza = reader
        .next_stanza()?
        .ok_or(Problem::Format("its control file is empty"))?;
    let fields: Vec<(String, String)> = stanza
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let text = stanza.text().to_owned();
    let deb = Deb {
        path: path.to_owned(),
        fields,
        text,
        control_files,
        data,
    };
    if !super::package::is_package_name(deb.name()) {
        return Err(Problem::Field("Package"));
    }
    if super::version::Version::parse(deb.version()).is_err() {
        return Err(Problem::Field("Version"));
    }
    if !super::package::is_word(deb.architecture()) {
        return Err(Problem::Field("Architecture"));
    }
    Ok(deb)
}

fn is_control_name(name: &str) -> bool {
    // dpkg uses these names itself: `info/PACKAGE.list` is its list of installed files.
    super::package::is_word(name) && name != "list" && name.len() <= 50
}

/// Finds the sections of control and data: `debian-binary`, then `control.tar*`, then `data.tar*`.
/// Members whose names start with `_` may be between them.
fn find_sections(file: &mut (impl Read + Seek)) -> Result<(Section, Section), Problem> {
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    let mut magic = [0; 8];
    read_exact(file, &mut magic)?;
    if &magic != b"!<arch>\n" {
        return Err(Problem::Format("it does not start as an ar archive"));
    }
    let mut offset = 8;
    let mut control = None;
    let mut seen_version = false;
    while offset < end {
        let mut header = [0; 60];
        file.seek(SeekFrom::Start(offset))?;
        read_exact(file, &mut header)?;
        if &header[58..] != b"`\n" {
            return Err(Problem::Format("an ar header is malformed"));
        }
        let ascii = |range: std::ops::Range<usize>| {
            std::str::from_utf8(&header[range]).ok().map(str::trim_end)
        };
        let name = ascii(0..16)
            .ok_or(Problem::Format("an ar member's name is not text"))?
            .trim_end_matches('/');
        let length: u64 = ascii(48..58)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .ok_or(Problem::Format("an ar member's size is not a number"))?;
        offset += 60;
        if length > end - offset {
            return Err(Problem::Format("it is cut short"));
        }
        if !seen_version {
            let mut version = vec![0; length.min(64) as usize];
            read_exact(file, &mut version)?;
            if name != "debian-binary" || !version.starts_with(b"2.") {
                return Err(Problem::Format("it does not start with debian-binary 2.x"));
            }
            seen_version = true;
        } else if let Some(suffix) = name
            .strip_prefix("control.tar")
            .filter(|_| control.is_none())
        {
            control = Some(Section {
                offset,
                length,
                compression: compression(suffix)?,
            });
        } else if let (Some(suffix), Some(control)) = (name.strip_prefix("data.tar"), control) {
            return Ok((
                control,
                Section {
                    offset,
                    length,
                    compression: compression(suffix)?,
                },
            ));
        } else if !name.starts_with('_') {
            return Err(Problem::Format("it holds an unknown ar member"));
        }
        offset += length + length % 2;
    }
    Err(Problem::Format(
        "it has no control archive or no data archive",
    ))
}

fn read_exact(file: &mut impl Read, buffer: &mut [u8]) -> Result<(), Problem> {
    file.read_exact(buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Problem::Format("it is cut short"),
        _ => Problem::Read(error),
    })
}

fn compression(suffix: &str) -> Result<Compression, Problem> {
    match suffix {
        "" => Ok(Compression::None),
        ".gz" => Ok(Compression::Gzip),
        ".xz" => Ok(Compression::Xz),
        ".zst" => Ok(Compression::Zstd),
        other => Err(Problem::Compression(other.escape_debug().to_string())),
    }
}

fn section(path: &Path, section: Section, limit: u64) -> io::Result<Box<dyn Read + Send>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(section.offset))?;
    let raw = BufReader::with_capacity(128 << 10, file.take(section.length));
    Ok(match section.compression {
        Compression::None => Box::new(Bounded {
            inner: raw,
            left: limit,
        }),
        Compression::Gzip => Box::new(Bounded {
            inner: flate2::bufread::MultiGzDecoder::new(raw),
            left: limit,
        }),
        Compression::Xz => Box::new(Bounded {
            inner: xz_decoder(raw)?,
            left: limit,
        }),
        Compression::Zstd => Box::new(Bounded {
            inner: zstd::Decoder::with_buffer(raw)?,
            left: limit,
        }),
    })
}

/// Creates a decoder for concatenated xz streams with bounded memory.
pub(super) fn xz_decoder<R: io::BufRead>(input: R) -> io::Result<liblzma::bufread::XzDecoder<R>> {
    let stream =
        liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, liblzma::stream::CONCATENATED)?;
    Ok(liblzma::bufread::XzDecoder::new_stream(input, stream))
}

/// Fails, rather than ends, if the input is longer than the limit.
pub(super) struct Bounded<R> {
    pub inner: R,
    pub left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "it unpacks to more than is allowed",
            )
        })?;
        Ok(read)
    }
}

#[cfg(test)]
pub(super) mod tests;
