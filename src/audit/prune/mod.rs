//! Removes from a wheel's objects what nothing in an image loads: device code that none of the required GPUs
//! runs (as NVIDIA's `nvprune` does for static libraries), symbols and debug information (as `strip` does).
//!
//! In: a wheel and the SMs of the GPUs. Out: [`Pruned`], the changed members. An object keeps its size and
//! every address, so nothing has to be linked again. Pruning never changes an audit's verdict on these GPUs:
//! where it would, kernels that none of them runs stay as evidence, and so does an object that none of them
//! runs at all. An unreadable object is not changed; the audit reports it. A large object with device code is
//! compressed again even if nothing is removed, in content-defined chunks, so that updates transfer only new
//! kernels.

mod wanted;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::{Code, KeepRanges, object, verdicts_for_sm};
use stackforge_binary::elf::{Machine, Object, ObjectType, Unmapped, unmapped};
use stackforge_binary::fatbin::{self, Edit, Entry, Segment, rewrite};
use stackforge_binary::source::{Once, ReadError, Source, Window};
use stackforge_binary::zip::{Archive, Content, Member, Method, ZipError};
use stackforge_image::layer::Changed;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::diag::{self, Explained, codes, of_disk};
use stackforge_stack::spec::Sm;

use wanted::{Rest, wanted};

/// Increased when the same wheel is pruned, cut or compressed differently.
pub const FORMAT: u32 = 1;

/// Smallest object, in bytes, that is compressed again although nothing is removed.
const LEAST: u64 = 1 << 20;
/// Fewer bytes of symbols and debug information are not removed.
const LEAST_TABLES: u64 = 256 << 10;
/// Most threads: each may hold 64 MiB.
const MOST_THREADS: usize = 8;
/// Most entries of an object; one with more is not changed. Real ones have some ten thousand.
const MOST_ENTRIES: usize = 1 << 20;
const BUFFER: usize = 1 << 20;
/// Block size of file systems, in bytes: only whole blocks can be holes.
const BLOCK: u64 = 4096;

#[derive(Debug, Default)]
pub struct Pruned {
    /// New contents of members, by name. Each has the member's old size.
    pub members: BTreeMap<String, Changed>,
    /// Number of bytes that were removed.
    pub removed: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    #[error(transparent)]
    Zip(#[from] ZipError),
    #[error(
        "`{file}` of wheel `{wheel}` cannot be read, or written without some of its device code"
    )]
    Member {
        wheel: String,
        file: String,
        #[source]
        source: io::Error,
    },
}

impl Explained for PruneError {
    fn code(&self) -> diag::Code {
        match self {
            Self::Zip(_) => codes::WHEEL_UNSOUND,
            Self::Member { source, .. } => of_disk(source),
        }
    }
}

/// Prunes wheels for some GPUs, by the rules of a catalog.
pub struct Pruner<'a> {
    pub catalog: &'a Catalog,
    pub sms: &'a [Sm],
    pub threads: usize,
    /// Makes a temporary file that is removed when it is closed; it holds all new contents of one wheel.
    pub scratch: &'a (dyn Fn() -> io::Result<File> + Sync),
}

impl Pruner<'_> {
    /// Prunes a wheel of the code that none of the GPUs runs.
    pub fn wheel<S: Source + Clone + Sync>(
        &self,
        name: &str,
        source: &S,
    ) -> Result<Pruned, PruneError> {
        let archive = Archive::read(name, &mut source.clone())?;
        let mut members: Vec<&Member> = archive.members.iter().filter(|m| !m.is_folder()).collect();
        // Largest first: it decides how long the wheel takes.
        members.sort_by_key(|member| std::cmp::Reverse(member.size));
        let room = Mutex::new(Room::default());
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Ok(Pruned::default()));
        let work = || {
            while let Some(member) = members.get(next.fetch_add(1, Ordering::Relaxed)) {
                let pruned = self.member(&archive, member, source, &room);
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                match (pruned, &mut *done) {
                    (Ok(Some((content, removed))), Ok(all)) => {
                        all.members.insert(member.name.clone(), content);
                        all.removed += removed;
                    }
                    (Err(error), Ok(_)) => *done = Err(error),
                    (_, Err(_)) => return,
                    (Ok(None), Ok(_)) => {}
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads.min(MOST_THREADS).min(members.len()) {
                scope.spawn(work);
            }
            work();
        });
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn member<S: Source + Clone>(
        &self,
        archive: &Archive,
        member: &Member,
        source: &S,
        room: &Mutex<Room>,
    ) -> Result<Option<(Changed, u64)>, PruneError> {
        let failed = |source| PruneError::Member {
            wheel: archive.name.clone(),
            file: member.name.clone(),
            source,
        };
        let Some(segments) = self.segments(archive, member, source)? else {
            return Ok(None);
        };
        let place = room
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(member.size, self.scratch)
            .map_err(failed)?;
        let (file, start) = (Arc::clone(&place.file), place.at);
        let mut old = Forward::open(archive, member, source)?;
        let mut new = io::BufWriter::with_capacity(BUFFER, place);
        let changed = rewrite(&segments, &mut old, &mut new)
            .and_then(|()| new.flush())
            .and_then(|()| Changed::new(file, start, member.size));
        let zeros = |segment: &Segment| match segment {
            Segment::Zeros(len) => *len,
            _ => 0,
        };
        let removed = segments.iter().map(zeros).sum();
        Ok(Some((changed.map_err(failed)?, removed)))
    }

    /// Returns how the member is written. `None` if it is not changed.
    fn segments<S: Source + Clone>(
        &self,
        archive: &Archive,
        member: &Member,
        source: &S,
    ) -> Result<Option<Vec<Segment>>, PruneError> {
        let name = &member.name;
        if member.method == Method::Deflate {
            let mut content = Forward::open(archive, member, source)?;
            match object(member.size, &mut content, &KeepRanges::default()) {
                Ok(None) => return Ok(None),
                Ok(Some(mut kept)) => {
                    if let Ok(found) = Found::read(name, &mut kept) {
                        return Ok(self.edited_segments(name, &found, member.size));
                    }
                }
                // The audit reports damaged members.
                Err(_) => {}
            }
        }
        let mut content = archive.open(member, source.clone())?;
        Ok(match Found::read(name, &mut content) {
            Ok(found) => self.edited_segments(name, &found, member.size),
            Err(_) => None,
        })
    }

    fn edited_segments(&self, name: &str, found: &Found, size: u64) -> Option<Vec<Segment>> {
        let mut edits = self.without(name, &found.code).unwrap_or_default();
        let length = |table: &Unmapped| table.content.end - table.content.start;
        if found.tables.iter().map(length).sum::<u64>() >= LEAST_TABLES {
            for table in &found.tables {
                // Zeroing `sh_type` makes the section SHT_NULL, which readers ignore.
                edits.push(Edit::zeros(table.content.clone()));
                edits.push(Edit::zeros(table.kind.clone()));
            }
        }
        let whole = || vec![Segment::Copy { from: 0, len: size }];
        if edits.is_empty() {
            (!found.code.is_empty() && size >= LEAST).then(whole)
        } else {
            fatbin::edited(edits, size)
        }
    }

    fn without(&self, name: &str, entries: &[Entry]) -> Option<Vec<Edit>> {
        let before = code(entries.iter())?;
        [Rest::Empty, Rest::Whole].into_iter().find_map(|rest| {
            let stays = wanted(entries, self.sms, rest);
            let kept = entries.iter().zip(&stays).filter(|(_, stays)| **stays);
            let after = code(kept.map(|(entry, _)| entry)).filter(|code| !code.is_empty())?;
            let verdicts = |code, sm| verdicts_for_sm(self.catalog, name, code, sm);
            let same = |sm: &Sm| verdicts(&before, *sm) == verdicts(&after, *sm);
            if self.sms.iter().all(same) {
                fatbin::without(entries, &stays)
            } else {
                None
            }
        })
    }
}

fn code<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<Code> {
    Code::from_entries(entries.cloned().map(Ok)).ok()
}

/// The removable parts of an object; empty for an object that no loader loads.
#[derive(Default)]
struct Found {
    code: Vec<Entry>,
    tables: Vec<Unmapped>,
}

/// The object cannot be read, or not by this reader.
struct Unreadable;

impl Found {
    fn read(name: &str, source: &mut dyn Source) -> Result<Self, Unreadable> {
        let object = Object::read(name, source, &fatbin::SECTIONS).map_err(|_| Unreadable)?;
        let host = matches!(object.machine, Machine::X86_64 | Machine::Aarch64);
        if !host || !matches!(object.kind, ObjectType::Shared | ObjectType::Executable) {
            return Ok(Self::default());
        }
        let tables = unmapped(name, &mut *source).map_err(|_| Unreadable)?;
        let all = fatbin::entries(&object, source).take(MOST_ENTRIES + 1);
        let code: Vec<Entry> = all.collect::<Result<_, _>>().map_err(|_| Unreadable)?;
        if code.len() > MOST_ENTRIES {
            Err(Unreadable)
        } else {
            Ok(Self { code, tables })
        }
    }
}

/// The file with all new contents of a wheel, made when it is first needed.
#[derive(Default)]
struct Room {
    file: Option<Arc<File>>,
    end: u64,
}

impl Room {
    /// Reserves `size` bytes of the file, which are zero.
    fn take(&mut self, size: u64, made: &dyn Fn() -> io::Result<File>) -> io::Result<Place> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(self.file.insert(Arc::new(made()?))),
        };
        let at = self.end.next_multiple_of(BLOCK);
        let end = at.checked_add(size).ok_or(io::ErrorKind::FileTooLarge)?;
        file.set_len(end)?;
        self.end = end;
        Ok(Place { file, at })
    }
}

/// Writes into the file at an offset. Bytes that are skipped stay zero.
struct Place {
    file: Arc<File>,
    at: u64,
}

impl Write for Place {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write_at(bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Place {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Current(count) => self.at.checked_add_signed(count),
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(_) => None,
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// A member's content as a stream. The end of a deflated one is verified.
enum Forward<S> {
    Deflated(Box<Once<Window<S>>>),
    Stored(Stored<S>),
}

struct Stored<S> {
    content: Content<S>,
    /// Offset of the next byte.
    at: u64,
    crc: flate2::Crc,
    expected: u32,
}

impl<S: Source + Clone> Forward<S> {
    fn open(archive: &Archive, member: &Member, source: &S) -> Result<Self, ZipError> {
        Ok(match archive.once(member, source.clone())? {
            Some(once) => Self::Deflated(Box::new(once)),
            None => Self::Stored(Stored {
                content: archive.open(member, source.clone())?,
                at: 0,
                crc: flate2::Crc::new(),
                expected: member.crc32,
            }),
        })
    }
}

impl<S: Source> Read for Forward<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Deflated(once) => once.read(buf),
            Self::Stored(stored) => stored.read(buf).map_err(io::Error::other),
        }
    }
}

impl<S: Source> Stored<S> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, ReadError> {
        let left = self.content.size() - self.at;
        let len = usize::try_from(left).unwrap_or(buf.len()).min(buf.len());
        self.content.read_at(self.at, &mut buf[..len])?;
        self.crc.update(&buf[..len]);
        self.at += len as u64;
        let (found, expected, offset) = (self.crc.sum(), self.expected, self.at);
        if left == len as u64 && found != expected {
            Err(ReadError::Checksum {
                offset,
                expected,
                found,
            })
        } else {
            Ok(len)
        }
    }
}

#[cfg(test)]
mod tests;
