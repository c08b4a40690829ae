//! Archives that are made byte by byte, so that each field can be wrong on its own.

use std::io::Write as _;

/// A member of an archive, as its headers describe it.
#[derive(Clone)]
pub struct File {
    /// Path in the archive.
    pub name: String,
    /// Compression method: 0 for stored, 8 for deflate. Others are wrong on purpose.
    pub method: u16,
    /// CRC-32 of the inflated content.
    pub crc32: u32,
    /// The bytes in the archive, compressed by `method`.
    pub content: Vec<u8>,
    /// Size of the inflated content in bytes.
    pub size: u32,
    /// Wrong compressed size for the directory. `None` for the right one.
    pub claimed: Option<u32>,
    /// Wrong offset for the directory. `None` for the right one.
    pub offset: Option<u32>,
}

impl File {
    /// Creates a stored member.
    pub fn new(name: &str, content: &[u8]) -> Self {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        Self {
            name: name.to_owned(),
            method: 0,
            crc32: crc.sum(),
            content: content.to_vec(),
            size: content.len() as u32,
            claimed: None,
            offset: None,
        }
    }

    /// Creates a deflated member.
    pub fn deflated(name: &str, content: &[u8]) -> Self {
        let mut encoder =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(content).unwrap();
        Self {
            method: 8,
            content: encoder.finish().unwrap(),
            ..Self::new(name, content)
        }
    }
}

/// Builds an archive.
#[derive(Clone)]
pub struct Build {
    /// The members, in order.
    pub files: Vec<File>,
    /// Whether every number of the directory is in its zip64 form.
    pub zip64: bool,
}

fn put(out: &mut Vec<u8>, numbers: &[(u64, usize)]) {
    for (number, width) in numbers {
        out.extend_from_slice(&number.to_le_bytes()[..*width]);
    }
}

impl Build {
    /// Creates an archive without zip64 records.
    pub fn of(files: Vec<File>) -> Self {
        Self {
            files,
            zip64: false,
        }
    }

    /// Returns the whole archive.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut entries = Vec::new();
        for file in &self.files {
            self.put_entry(&mut entries, file, out.len() as u64);
            let compressed = file.content.len() as u64;
            out.extend_from_slice(b"PK\x03\x04");
            put(
                &mut out,
                &[(20, 2), (0, 2), (file.method.into(), 2), (0, 4)],
            );
            put(
                &mut out,
                &[
                    (file.crc32.into(), 4),
                    (compressed, 4),
                    (file.size.into(), 4),
                ],
            );
            put(&mut out, &[(file.name.len() as u64, 2), (0, 2)]);
            out.extend_from_slice(file.name.as_bytes());
            out.extend_from_slice(&file.content);
        }
        let (offset, len) = (out.len() as u64, entries.len() as u64);
        out.extend(entries);
        self.put_end(&mut out, offset, len);
        out
    }

    fn put_entry(&self, out: &mut Vec<u8>, file: &File, offset: u64) {
        let compressed = file.claimed.map_or(file.content.len() as u64, u64::from);
        let offset = file.offset.map_or(offset, u64::from);
        let numbers = [file.size.into(), compressed, offset];
        let [size, compressed, offset] = if self.zip64 {
            [0xffff_ffff; 3]
        } else {
            numbers
        };
        let extra = if self.zip64 { 28 } else { 0 };
        out.extend_from_slice(b"PK\x01\x02");
        // The archive was made on Unix.
        put(
            out,
            &[
                (0x0314, 2),
                (20, 2),
                (0, 2),
                (file.method.into(), 2),
                (0, 4),
            ],
        );
        put(out, &[(file.crc32.into(), 4), (compressed, 4), (size, 4)]);
        put(
            out,
            &[
                (file.name.len() as u64, 2),
                (extra, 2),
                (0, 2),
                (0, 2),
                (0, 2),
            ],
        );
        put(out, &[(0o100644 << 16, 4), (offset, 4)]);
        out.extend_from_slice(file.name.as_bytes());
        if self.zip64 {
            put(
                out,
                &[
                    (1, 2),
                    (24, 2),
                    (numbers[0], 8),
                    (numbers[1], 8),
                    (numbers[2], 8),
                ],
            );
        }
    }

    fn put_end(&self, out: &mut Vec<u8>, offset: u64, len: u64) {
        let count = self.files.len() as u64;
        let long = out.len() as u64;
        if self.zip64 {
            out.extend_from_slice(b"PK\x06\x06");
            put(
                out,
                &[
                    (44, 8),
                    (45, 2),
                    (45, 2),
                    (0, 4),
                    (0, 4),
                    (count, 8),
                    (count, 8),
                ],
            );
            put(out, &[(len, 8), (offset, 8)]);
            out.extend_from_slice(b"PK\x06\x07");
            put(out, &[(0, 4), (long, 8), (1, 4)]);
        }
        let [offset, len] = if self.zip64 {
            [0xffff_ffff; 2]
        } else {
            [offset, len]
        };
        let count = if self.zip64 { 0xffff } else { count };
        out.extend_from_slice(b"PK\x05\x06");
        put(
            out,
            &[
                (0, 2),
                (0, 2),
                (count, 2),
                (count, 2),
                (len, 4),
                (offset, 4),
                (0, 2),
            ],
        );
    }
}
