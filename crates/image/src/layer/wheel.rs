//! Reads a wheel as an installer needs it: its members, and what its metadata ask for.
//!
//! In: a file name and a source. Out: a [`Wheel`] whose name matches its metadata, whose format version is
//! known, and whose names are valid on any file system. Only metadata are read; the rest is read when the
//! layer is written.

use std::collections::HashMap;

use sha2::{Digest as _, Sha384, Sha512};
use stackforge_types::Sha256;

use super::LayerError;
use super::error::{MAX_DEPTH, WheelFault};
use super::record::{self, Algorithm, Rows};
use super::scripts::{self, Command};
use stackforge_binary::source::{ReadError, Source};
use stackforge_binary::zip::{Archive, Member};
use stackforge_types::wheel::{WheelName, normalized};

const MAX_METADATA: u64 = 1 << 20;
const MAX_RECORD: u64 = 64 << 20;
const PIECE: u64 = 256 << 10;

/// A wheel whose metadata are read and consistent.
pub struct Wheel<S> {
    /// File name.
    pub file: String,
    /// The parts of its file name.
    pub name: WheelName,
    pub(super) archive: Archive,
    pub(super) source: S,
    /// `NAME-VERSION` as the `.dist-info` folder spells it.
    pub(super) stem: String,
    pub(super) pure: bool,
    pub(super) rows: Rows,
    pub(super) commands: Vec<Command>,
    vouched: bool,
}

/// How RECORD's digest of a member compares to the actual one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stated {
    Right,
    Nothing,
    /// Another digest, in a wheel that is vouched for.
    Another,
}

impl<S: Source + Clone> Wheel<S> {
    /// The digest that RECORD states for each file: `sha256=…`, in URL-safe base64.
    pub fn stated(&self) -> impl Iterator<Item = (&str, &str)> {
        let rows = self.rows.iter();
        rows.filter_map(|(path, digest)| Some((path.as_str(), digest.as_deref()?)))
    }

    /// Reads the wheel's directory and metadata. `file` is its file name.
    ///
    /// # Errors
    /// If the name is not a wheel's, the archive is not sound, or the metadata are not what the
    /// wheel format asks for.
    pub fn open(file: &str, mut source: S) -> Result<Self, LayerError> {
        let name: WheelName = file.parse()?;
        let archive = Archive::read(file, &mut source)?;
        let stem = stem(&archive, &name).map_err(|fault| fault.in_wheel(file))?;
        let mut wheel = Self {
            file: file.to_owned(),
            name,
            archive,
            source,
            stem,
            pure: false,
            rows: Rows::new(),
            commands: Vec::new(),
            vouched: false,
        };
        check_names(&wheel.archive).map_err(|fault| wheel.fault(fault))?;
        let format = wheel.required("WHEEL", MAX_METADATA)?;
        wheel.pure = is_pure(&format).map_err(|fault| wheel.fault(fault))?;
        let rows = wheel.required("RECORD", MAX_RECORD)?;
        wheel.rows = record::parse(&rows).map_err(|fault| wheel.fault(fault))?;
        if let Some(text) = wheel.text("entry_points.txt", MAX_METADATA)? {
            wheel.commands = scripts::commands(&text).map_err(|fault| wheel.fault(fault))?;
        }
        Ok(wheel)
    }

    /// Marks that the wheel's bytes have the digest that a lock gives: they are those that were published,
    /// so a RECORD that states another digest of a file is its authors' mistake (a library that was stripped
    /// afterwards, in pynvvideocodec 2.0.4), not an alteration. pip and uv never check.
    pub fn vouched(mut self) -> Self {
        self.vouched = true;
        self
    }

    /// The path of a metadata file: `NAME-VERSION.dist-info/FILE`.
    pub(super) fn metadata(&self, file: &str) -> String {
        format!("{}.dist-info/{file}", self.stem)
    }

    pub(super) fn fault(&self, fault: WheelFault) -> LayerError {
        fault.in_wheel(&self.file)
    }

    fn required(&self, file: &str, limit: u64) -> Result<String, LayerError> {
        let missing = || self.fault(WheelFault::Missing(self.metadata(file)));
        self.text(file, limit)?.ok_or_else(missing)
    }

    fn text(&self, file: &str, limit: u64) -> Result<Option<String>, LayerError> {
        let name = self.metadata(file);
        let Some(member) = self.archive.members.iter().find(|m| m.name == name) else {
            return Ok(None);
        };
        match String::from_utf8(self.read(member, limit)?) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(self.fault(WheelFault::NotText(name))),
        }
    }

    /// Returns a small member's content.
    pub(super) fn read(&self, member: &Member, limit: u64) -> Result<Vec<u8>, LayerError> {
        if member.size > limit {
            let file = member.name.clone();
            return Err(self.fault(WheelFault::TooLong { file, limit }));
        }
        let mut content = Vec::new();
        self.each_piece(member, |piece| content.extend_from_slice(piece))?;
        Ok(content)
    }

    /// Returns the first bytes of a member, before its checksum is verified.
    pub(super) fn start(&self, member: &Member, len: u64) -> Result<Vec<u8>, LayerError> {
        let mut content = self.archive.open(member, self.source.clone())?;
        let mut start = vec![0; len.min(member.size) as usize];
        content
            .read_at(0, &mut start)
            .map_err(|e| self.content(member, e))?;
        Ok(start)
    }

    pub(super) fn sha256(&self, member: &Member) -> Result<record::Sha256, LayerError> {
        let mut hash = Sha256::new();
        self.each_piece(member, |piece| hash.update(piece))?;
        Ok(hash.finalize())
    }

    /// Fails if RECORD states another digest of a member than `found` and the wheel is not vouched for.
    pub(super) fn check_record(
        &self,
        member: &Member,
        found: &record::Sha256,
    ) -> Result<Stated, LayerError> {
        let file = member.name.clone();
        let Some(Some(stated)) = self.rows.get(&file) else {
            return Ok(Stated::Nothing);
        };
        let stated = stated.trim_end_matches('=').to_owned();
        let Some(algorithm) = record::algorithm(&stated) else {
            return Err(self.fault(WheelFault::Weak { file, stated }));
        };
        let found = match algorithm {
            Algorithm::Sha256 => record::digest("sha256", found),
            Algorithm::Sha384 => {
                let mut hash = Sha384::new();
                self.each_piece(member, |piece| hash.update(piece))?;
                record::digest("sha384", &hash.finalize())
            }
            Algorithm::Sha512 => {
                let mut hash = Sha512::new();
                self.each_piece(member, |piece| hash.update(piece))?;
                record::digest("sha512", &hash.finalize())
            }
        };
        if found == stated {
            return Ok(Stated::Right);
        }
        if self.vouched {
            return Ok(Stated::Another);
        }
        Err(self.fault(WheelFault::Lies {
            file,
            stated,
            found,
        }))
    }

    fn each_piece(&self, member: &Member, mut each: impl FnMut(&[u8])) -> Result<(), LayerError> {
        let mut content = self.archive.open(member, self.source.clone())?;
        let mut crc = flate2::Crc::new();
        let mut piece = vec![0; PIECE.min(member.size) as usize];
        let mut at = 0;
        while at < member.size {
            let len = PIECE.min(member.size - at) as usize;
            let read = content.read_at(at, &mut piece[..len]);
            read.map_err(|e| self.content(member, e))?;
            crc.update(&piece[..len]);
            each(&piece[..len]);
            at += len as u64;
        }
        self.check_crc(member, crc.sum())
    }

    pub(super) fn check_crc(&self, member: &Member, found: u32) -> Result<(), LayerError> {
        if found == member.crc32 {
            return Ok(());
        }
        let error = ReadError::Checksum {
            offset: member.size,
            expected: member.crc32,
            found,
        };
        Err(self.content(member, error))
    }

    pub(super) fn content(&self, member: &Member, source: ReadError) -> LayerError {
        LayerError::Content {
            wheel: self.file.clone(),
            file: member.name.clone(),
            source,
        }
    }
}

/// The stem of the only `.dist-info` folder, if it is that of the distribution in the file's name.
fn stem(archive: &Archive, name: &WheelName) -> Result<String, WheelFault> {
    let folders = archive.members.iter().filter_map(|m| {
        let (folder, _) = m.name.split_once('/')?;
        folder.strip_suffix(".dist-info")
    });
    let mut stems: Vec<&str> = folders.collect();
    stems.sort_unstable();
    stems.dedup();
    let &[stem] = stems.as_slice() else {
        return Err(WheelFault::DistInfo(stems.len()));
    };
    let (distribution, version) = stem.split_once('-').unwrap_or((stem, ""));
    // The version is used in paths only.
    if normalized(distribution) != name.name || version.is_empty() {
        return Err(WheelFault::OtherName(stem.to_owned()));
    }
    Ok(stem.to_owned())
}

/// The value of `Root-Is-Purelib`. An error if the wheel format's version is not known.
fn is_pure(text: &str) -> Result<bool, WheelFault> {
    let field = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(name, _)| name.eq_ignore_ascii_case(key));
        found.map_or("", |(_, value)| value.trim())
    };
    let version = field("Wheel-Version");
    // By specification, later minor versions stay readable.
    if version.split('.').next() != Some("1") {
        let shown = version.chars().take(40).collect();
        return Err(WheelFault::Version(shown));
    }
    Ok(field("Root-Is-Purelib").eq_ignore_ascii_case("true"))
}

/// Fails if two files or folders differ in case only: some file systems take them for one.
fn check_names(archive: &Archive) -> Result<(), WheelFault> {
    let mut seen: HashMap<String, &str> = HashMap::new();
    for member in archive.members.iter().filter(|m| !m.is_folder()) {
        if member.name.split('/').count() > MAX_DEPTH {
            return Err(WheelFault::Deep(member.name.chars().take(200).collect()));
        }
        let mut path = member.name.as_str();
        loop {
            let before = seen.insert(path.to_lowercase(), path);
            match before {
                // Its parent folders were checked with it.
                Some(before) if before == path => break,
                Some(before) => return Err(WheelFault::Case(before.into(), path.into())),
                None => {}
            }
            match path.rsplit_once('/') {
                Some((folder, _)) => path = folder,
                None => break,
            }
        }
    }
    Ok(())
}
