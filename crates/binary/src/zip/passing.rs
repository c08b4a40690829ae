//! Reads an archive as a stream, for an archive that is itself a member of something that can only be
//! read forward.
//!
//! In: the bytes of an archive from its start. Out: [`Part`]s in their order in the archive, each by
//! its local header, up to the directory. The directory comes last, so it is not used: two equal names,
//! or a member that is no longer listed, are not noticed here, so nothing that is installed or run is
//! read in this way. Size and CRC-32 are checked before a part's end is reported. Unread content of a
//! part is skipped without being inflated.

use std::io::{self, BufRead, Read};

use flate2::bufread::DeflateDecoder;

use super::ZipError;
use super::error::{Fault, Problem, fault};
use super::member::{Local, Method};
use crate::source::ReadError;

const DIRECTORY: [[u8; 4]; 3] = [*b"PK\x01\x02", *b"PK\x05\x06", *b"PK\x06\x06"];

/// Reads an archive from its start, member by member.
pub struct Passing<R> {
    name: String,
    input: R,
    /// Offset of the next byte.
    offset: u64,
    /// Compressed bytes of the current part that were not read.
    left: u64,
    ended: bool,
}

/// A member of the stream.
pub struct Part<'a, R> {
    /// Relative path without `.`, `..` or empty parts.
    pub name: String,
    /// Size of the content according to the local header, in bytes.
    pub size: u64,
    crc32: u32,
    made: u64,
    crc: flate2::Crc,
    content: Content<'a, R>,
}

enum Content<'a, R> {
    Stored(Rest<'a, R>),
    Deflate(DeflateDecoder<Rest<'a, R>>),
}

impl<R> Content<'_, R> {
    /// Returns the number of compressed bytes that were not read.
    fn left(&self) -> u64 {
        match self {
            Self::Stored(rest) => rest.0.left,
            Self::Deflate(decoder) => decoder.get_ref().0.left,
        }
    }
}

/// The compressed bytes of the current part.
struct Rest<'a, R>(&'a mut Passing<R>);

impl<R: BufRead> Passing<R> {
    /// Creates a reader. `name` is the archive's, for errors.
    pub fn new(name: &str, input: R) -> Self {
        Self {
            name: name.to_owned(),
            input,
            offset: 0,
            left: 0,
            ended: false,
        }
    }

    /// Returns the next member. `None` at the start of the directory.
    ///
    /// # Errors
    /// If the next local header is damaged, or its member cannot be read without the directory.
    pub fn part(&mut self) -> Result<Option<Part<'_, R>>, ZipError> {
        let local = self
            .header()
            .map_err(|fault| fault.in_archive(&self.name))?;
        let Some(local) = local else {
            return Ok(None);
        };
        self.left = local.compressed;
        let rest = Rest(self);
        Ok(Some(Part {
            name: local.name,
            size: local.size,
            crc32: local.crc32,
            made: 0,
            crc: flate2::Crc::new(),
            content: match local.method {
                Method::Stored => Content::Stored(rest),
                Method::Deflate => Content::Deflate(DeflateDecoder::new(rest)),
            },
        }))
    }

    fn header(&mut self) -> Result<Option<Local>, Fault> {
        if self.ended {
            return Ok(None);
        }
        let skipped = io::copy(&mut Rest(self), &mut io::sink());
        let at = self.offset;
        let cut = |_| fault(at, Problem::NoEnd);
        skipped.map_err(cut)?;
        if self.left > 0 {
            return Err(fault(at, Problem::NoEnd));
        }
        let mut local = [0; Local::LEN];
        self.input.read_exact(&mut local[..4]).map_err(cut)?;
        if DIRECTORY.contains(&[local[0], local[1], local[2], local[3]]) {
            self.ended = true;
            return Ok(None);
        }
        self.input.read_exact(&mut local[4..]).map_err(cut)?;
        let mut names = vec![0; Local::names(&local)];
        self.input.read_exact(&mut names).map_err(cut)?;
        self.offset += (local.len() + names.len()) as u64;
        Local::read(at, &local, &names).map(Some)
    }
}

impl<R: BufRead> Read for Rest<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = self.0.left.min(buf.len() as u64) as usize;
        let read = self.0.input.read(&mut buf[..most])?;
        self.0.left -= read as u64;
        self.0.offset += read as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Rest<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.0.left == 0 {
            return Ok(&[]);
        }
        let filled = self.0.input.fill_buf()?;
        let most = self.0.left.min(filled.len() as u64) as usize;
        Ok(&filled[..most])
    }

    fn consume(&mut self, amount: usize) {
        self.0.input.consume(amount);
        self.0.left -= amount as u64;
        self.0.offset += amount as u64;
    }
}

impl<R: BufRead> Read for Part<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let offset = self.made;
        let read = match &mut self.content {
            Content::Stored(rest) => rest.read(buf)?,
            Content::Deflate(decoder) => decoder.read(buf)?,
        };
        self.made += read as u64;
        self.crc.update(&buf[..read]);
        let size = self.size;
        let wrong = if self.made > size {
            ReadError::Longer { offset, size }
        } else if read > 0 {
            return Ok(read);
        } else if self.content.left() > 0 && self.made < size {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the archive ends within it",
            ));
        } else if self.made < size {
            ReadError::Shorter { offset, size }
        } else if let left @ 1.. = self.content.left() {
            ReadError::Trailing { offset, left }
        } else if self.crc.sum() != self.crc32 {
            ReadError::Checksum {
                offset,
                expected: self.crc32,
                found: self.crc.sum(),
            }
        } else {
            return Ok(0);
        };
        Err(io::Error::other(wrong))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::archive::{Build, File};
    use proptest::prelude::*;

    type Members = Vec<(String, Vec<u8>)>;

    /// Returns every member with its content, or the error.
    fn all(bytes: &[u8]) -> Result<Members, String> {
        let mut passing = Passing::new("x.whl", bytes);
        let mut found = Members::new();
        while let Some(mut part) = passing.part().map_err(|e| e.to_string())? {
            let mut content = Vec::new();
            part.read_to_end(&mut content).map_err(|e| e.to_string())?;
            found.push((part.name.clone(), content));
        }
        Ok(found)
    }

    fn two() -> Vec<File> {
        vec![
            File::new("a/b.txt", b"stored"),
            File::deflated("a/c.so", &[7; 5000]),
            File::new("a/empty", b""),
        ]
    }

    #[test]
    fn members_pass_in_the_order_in_which_they_lie() {
        for zip64 in [false, true] {
            let bytes = Build {
                zip64,
                ..Build::of(two())
            }
            .bytes();
            let found = all(&bytes).unwrap();
            let expected = [
                ("a/b.txt", &b"stored"[..]),
                ("a/c.so", &[7; 5000]),
                ("a/empty", b""),
            ];
            let expected = expected.map(|(name, content)| (name.to_owned(), content.to_vec()));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_is_not_read_is_passed_over() {
        let bytes = Build::of(two()).bytes();
        let mut passing = Passing::new("x.whl", &bytes[..]);
        let mut names = Vec::new();
        while let Some(mut part) = passing.part().unwrap() {
            part.read_exact(&mut vec![0; part.size.min(3) as usize])
                .unwrap();
            names.push(part.name.clone());
        }
        assert_eq!(names, ["a/b.txt", "a/c.so", "a/empty"]);
        assert!(passing.part().unwrap().is_none());
    }

    #[test]
    fn lies_and_cuts_are_told() {
        let lie = |change: &dyn Fn(&mut File)| {
            let mut files = two();
            change(&mut files[1]);
            all(&Build::of(files).bytes()).unwrap_err()
        };
        assert!(lie(&|f| f.crc32 ^= 1).contains("CRC-32"));
        assert!(lie(&|f| f.size += 1).contains("says"));
        lie(&|f| f.size -= 1);
        assert!(lie(&|f| f.content.extend(b"xyz")).contains("ends 3 bytes before"));
        let bytes = Build::of(two()).bytes();
        for cut in 0..100 {
            assert!(all(&bytes[..cut]).is_err(), "{cut}");
        }
        let empty = all(&Build::of(vec![]).bytes());
        assert_eq!(empty, Ok(vec![]));
    }

    #[test]
    fn what_python_streams_is_refused_with_its_reason() {
        let script = "import sys, zipfile\nclass Pipe:\n    def __init__(self, f): self.f = f\n    def write(self, b): return self.f.write(b)\n    def flush(self): self.f.flush()\nwith zipfile.ZipFile(Pipe(sys.stdout.buffer), 'w') as z: z.writestr('a', 'x' * 99)\n";
        let output = std::process::Command::new("python3")
            .args(["-c", script])
            .output()
            .unwrap();
        assert!(output.status.success());
        assert!(all(&output.stdout).unwrap_err().contains("follow"));
    }

    proptest! {
        #[test]
        fn any_bytes_end(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            all(&bytes).ok();
            let whole = Build::of(two()).bytes();
            for (at, byte) in bytes.iter_mut().enumerate() {
                if *byte < 200 && let Some(kept) = whole.get(at) {
                    *byte = *kept;
                }
            }
            all(&bytes).ok();
        }
    }
}
