//! Inputs that are small and ask for much: every claim of a size or a count, and every table that
//! could be read again and again. Work is counted in bytes read, never in time.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use stackforge::elf::{self, Object};
use stackforge::fatbin::{self, Scan};
use stackforge::source::{Inflate, ReadError, Source, Sparse, array, range};
use stackforge::tar::Reader;
use stackforge::zip::{Archive, Problem};

use super::archives::{self, File};
use super::objects::Build;
use super::{allowed, peak, with_section};

/// Counts the bytes that are read of a source; zeros follow its own up to `size`.
struct Counted<'a> {
    bytes: &'a [u8],
    size: u64,
    read: u64,
}

impl<'a> Counted<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self::sparse(bytes, bytes.len() as u64)
    }

    fn sparse(bytes: &'a [u8], size: u64) -> Self {
        Self {
            bytes,
            size,
            read: 0,
        }
    }
}

impl Source for Counted<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        range(offset, buf.len() as u64, self.size)?;
        self.read += buf.len() as u64;
        buf.fill(0);
        let at = (offset as usize).min(self.bytes.len());
        let n = buf.len().min(self.bytes.len() - at);
        buf[..n].copy_from_slice(&self.bytes[at..at + n]);
        Ok(())
    }
}

fn read(source: &mut impl Source) -> Result<Object, elf::Problem> {
    Object::read("x", source, &fatbin::SECTIONS).map_err(|e| e.problem)
}

/// Puts little-endian numbers at an offset.
fn put<const N: usize>(bytes: &mut [u8], at: usize, numbers: [u64; N], width: usize) {
    for (n, number) in numbers.iter().enumerate() {
        let to = at + n * width;
        bytes[to..to + width].copy_from_slice(&number.to_le_bytes()[..width]);
    }
}

fn deflated(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn crc32(content: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    crc.sum()
}

/// An object whose dynamic table, symbols and strings are as given and lie one behind the other.
fn dynamic(tags: &[(u64, u64)], symbols: &[u32], strings: &[u8]) -> Vec<u8> {
    let build = Build {
        sections: Vec::new(),
        ..Build::default()
    };
    let mut out = build.bytes()[..64 + 2 * 56].to_vec();
    let symbols_at = out.len();
    for name in symbols {
        out.extend(name.to_le_bytes());
        // A global function that is defined elsewhere.
        out.extend([0x12, 0, 0, 0]);
        out.extend([0; 16]);
    }
    let strings_at = out.len();
    out.extend(strings);
    // DT_HASH: no buckets, and how many symbols there are.
    let hash_at = out.len();
    out.extend(0u32.to_le_bytes());
    out.extend((symbols.len() as u32).to_le_bytes());
    let table_at = out.len();
    let own = [
        (5, strings_at),
        (10, strings.len()),
        (6, symbols_at),
        (4, hash_at),
    ];
    let own = own.map(|(tag, value)| (tag, value as u64));
    for (tag, value) in tags.iter().copied().chain(own).chain([(0, 0)]) {
        out.extend(tag.to_le_bytes());
        out.extend(value.to_le_bytes());
    }
    let size = out.len() as u64;
    // No sections; one segment of everything at address 0, and the dynamic table.
    put(&mut out, 0x28, [0], 8);
    put(&mut out, 0x3c, [0, 0], 2);
    put(&mut out, 64 + 8, [0, 0, 0, size, size], 8);
    let table = table_at as u64;
    put(&mut out, 120 + 8, [table, table, table, size - table], 8);
    out
}

const NEEDED: u64 = 1;
const RPATH: u64 = 15;

#[test]
fn four_billion_sections() {
    let mut object = Build::default().bytes();
    // The count stands in the first section where the header's is zero.
    let table = object.len() as u64;
    put(&mut object, 0x28, [table], 8);
    put(&mut object, 0x3c, [0, 1], 2);
    object.extend([0; 64]);
    put(&mut object, table as usize + 32, [1 << 32], 8);
    let mut source = Counted::sparse(&object, 1 << 50);
    let answer = read(&mut source);
    assert!(matches!(answer, Err(elf::Problem::TooMany { .. })));
    assert!(source.read < 1 << 20, "{} bytes", source.read);
}

/// With a scan to its end for each section this would take hours.
#[test]
fn section_names_that_never_end() {
    let names = 8 << 20;
    let count = 1 << 18;
    let mut object = with_section(b"");
    let table = object.len() as u64;
    object.resize(table as usize + count * 64, 0);
    for n in 0..count {
        let at = table as usize + n * 64;
        put(&mut object, at, [0, 1], 4);
        put(&mut object, at + 24, [0, 64], 8);
    }
    let names_at = object.len() as u64;
    object.resize(object.len() + names, b'x');
    put(
        &mut object,
        table as usize + 24,
        [names_at, names as u64],
        8,
    );
    put(&mut object, 0x28, [table], 8);
    // The first section has the count, the second is the names'.
    put(&mut object, table as usize + 32, [count as u64], 8);
    put(
        &mut object,
        table as usize + 64 + 24,
        [names_at, names as u64],
        8,
    );
    put(&mut object, 0x3c, [0, 1], 2);
    let mut source = Counted::new(&object);
    let held = peak(|| assert!(read(&mut source).unwrap().sections.is_empty()));
    assert!(source.read < 2 * object.len() as u64);
    assert!(held < 2 * names, "{held} bytes");
}

#[test]
fn needed_libraries_without_a_name() {
    let object = dynamic(&[(NEEDED, 0); 1 << 20], &[], b"\0");
    let held = peak(|| {
        let answer = read(&mut &object[..]);
        assert!(matches!(answer, Err(elf::Problem::TooMany { .. })));
    });
    assert!(held < 1 << 20, "{held} bytes");
}

#[test]
fn a_search_path_of_nothing_but_colons() {
    let mut strings = vec![b':'; 1 << 20];
    strings.push(0);
    let object = dynamic(&[(RPATH, 0)], &[], &strings);
    let held = peak(|| {
        let answer = read(&mut &object[..]);
        assert!(matches!(answer, Err(elf::Problem::TooMany { .. })));
    });
    assert!(held <= allowed(object.len()) / 4, "{held} bytes");
}

#[test]
fn names_that_are_used_again_and_again() {
    let mut strings = vec![b'a'; 1 << 20];
    strings[..4].copy_from_slice(b"\0_Z1");
    strings.push(0);
    let lib = dynamic(&[(NEEDED, 1); 1 << 10], &[], &strings);
    assert!(matches!(
        read(&mut &lib[..]),
        Err(elf::Problem::TooLarge { .. })
    ));

    let visited = |symbols: &[u32]| {
        let bytes = dynamic(&[], symbols, &strings);
        let mut source = Counted::new(&bytes);
        let object = read(&mut source).unwrap();
        let (mut count, mut total) = (0, 0);
        let answer = object.symbols(&mut source, |symbol| {
            count += 1;
            total += symbol.name.len();
        });
        assert!(source.read < 4 * bytes.len() as u64);
        assert!(total <= 8 * strings.len(), "{total} bytes of names");
        (count, answer.is_ok())
    };
    // One name, many symbols: shown once.
    assert_eq!(visited(&[1; 1 << 16]), (1, true));
    // Each name is the tail of the one before.
    let tails: Vec<u32> = (1..1 << 16).collect();
    assert_eq!(visited(&tails), (8, false));
}

#[test]
fn four_billion_symbols() {
    let mut object = dynamic(&[], &[1], b"\0x\0");
    // The hash table stands before five tags.
    let hash = object.len() - 5 * 16 - 8;
    assert_eq!(object[hash + 4], 1);
    put(&mut object, hash + 4, [u32::MAX.into()], 4);
    let size = 1 << 50;
    put(&mut object, 64 + 32, [size, size], 8);
    let mut source = Counted::sparse(&object, size);
    let answer = read(&mut source);
    assert!(matches!(answer, Err(elf::Problem::TooMany { .. })));
    assert!(source.read < 1 << 20, "{} bytes", source.read);
}

#[test]
fn versions_whose_chains_cross() {
    let build = Build {
        versions: vec![("libc.so.6", vec!["GLIBC_2.2"; 2000]); 20],
        ..Build::default()
    };
    let built = build.built();
    let mut object = built.bytes;
    let end = object.len();
    // Each file's chain starts in the first one's and walks it to its end.
    let mut at = built.versions;
    for n in 0..20 {
        let next = 16 + 16 * 2000;
        put(&mut object, at + 2, [u64::from(u16::MAX)], 2);
        let back = (built.versions + 16).wrapping_sub(at) as u64;
        put(&mut object, at + 8, [back], 4);
        assert!(n == 19 || object[at + 12] != 0);
        at += next;
    }
    let mut source = Counted::new(&object[..end]);
    let held = peak(|| assert!(read(&mut source).is_err()));
    assert!(source.read < 4 * end as u64);
    assert!(held <= allowed(end), "{held} bytes");
}

/// An entry of a fatbin without code, for `sm_90`.
fn entry() -> [u8; 64] {
    let mut entry = [0; 64];
    entry[..8].copy_from_slice(&[2, 0, 1, 1, 64, 0, 0, 0]);
    entry[28] = 90;
    entry
}

fn container(body: &[u8]) -> Vec<u8> {
    let mut out = b"\x50\xed\x55\xba\x01\x00\x10\x00".to_vec();
    out.extend((body.len() as u64).to_le_bytes());
    out.extend(body);
    out
}

#[test]
fn a_million_containers() {
    let code = container(&entry()).repeat(1 << 20);
    let mut source = Counted::new(&code);
    let held = peak(|| {
        let entries = fatbin::bare_entries("x", &mut source).map(Result::unwrap);
        assert_eq!(entries.count(), 1 << 20);
    });
    assert!(source.read <= 2 * code.len() as u64);
    assert!(held < 1 << 16, "{held} bytes");
}

/// An object of 128 MiB that is nothing but headers, of which a stream keeps no more than some.
#[test]
fn headers_without_end_in_a_stream() {
    let piece = container(&entry()).repeat(1 << 14);
    let count = (128 << 20) / piece.len();
    let held = peak(|| {
        let mut kept = Sparse::new((count * piece.len()) as u64);
        let mut scan = Scan::default();
        for _ in 0..count {
            scan.pass(&piece, &mut kept);
        }
        let entries = fatbin::bare_entries("x", kept);
        assert!(entries.last().is_some_and(|last| last.is_err()));
    });
    // As a vector grows to 32 MiB.
    assert!(held < 100 << 20, "{held} bytes");
}

/// What holds for a whole tar is copied to each of its members.
#[test]
fn a_global_header_for_many_members() {
    let mut header = [0; 512];
    header[..7].copy_from_slice(b"x\0\0\0\0\0\0");
    header[156] = b'0';
    let sum = |header: &mut [u8; 512]| {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    };
    for (len, ok) in [(4000, true), (100_000, false)] {
        let value = "v".repeat(len - 30);
        let mut record = format!(" SCHILY.xattr.user.x={value}\n");
        let digits = (record.len() + 4).to_string().len();
        record.insert_str(0, &(record.len() + digits).to_string());
        let mut global = header;
        global[156] = b'g';
        global[124..136].copy_from_slice(format!("{:011o}\0", record.len()).as_bytes());
        sum(&mut global);
        let mut tar = global.to_vec();
        tar.extend(record.as_bytes());
        tar.resize(tar.len().next_multiple_of(512), 0);
        sum(&mut header);
        tar.extend(header.repeat(2000));
        tar.resize(tar.len() + 1024, 0);
        let held = peak(|| {
            let mut reader = Reader::new(&tar[..]);
            let mut members = Vec::new();
            while let Ok(Some(entry)) = reader.next() {
                members.push(entry.header);
            }
            assert_eq!(members.len(), if ok { 2000 } else { 0 });
        });
        assert!(held <= allowed(tar.len()), "{held} bytes");
    }
}

#[test]
fn empty_containers_apart() {
    for padding in [0, 4, 8, 100] {
        let mut one = container(b"");
        one.resize(one.len() + padding, 0);
        let code = one.repeat(1 << 14);
        let mut source = Counted::new(&code);
        assert_eq!(fatbin::bare_entries("x", &mut source).count(), 0);
        let most = 5 * code.len() as u64;
        assert!(source.read <= most, "{padding}: {} bytes", source.read);
    }
}

#[test]
fn local_headers_that_claim_long_names() {
    let members = (0..4000).map(|n| File::new(&format!("{n}"), b""));
    let mut bytes = archives::Build::of(members.collect()).bytes();
    let mut source = &bytes[..];
    let honest = Archive::read("x.whl", &mut source).unwrap();
    for member in &honest.members {
        put(&mut bytes, member.offset as usize + 28, [0xffff], 2);
    }
    let mut source = Counted::new(&bytes);
    let archive = Archive::read("x.whl", &mut source).unwrap();
    for member in &archive.members {
        let error = archive.locate(member, &mut source).unwrap_err();
        assert!(matches!(error.problem, Problem::Overlap), "{error}");
    }
    let most = 4 * bytes.len() as u64 + (1 << 17);
    assert!(source.read < most, "{} bytes", source.read);
}

#[test]
fn directories_as_deep_as_a_path_can_be() {
    let deep = "d/".repeat(2040);
    let members = (0..1000).map(|n| File::new(&format!("{deep}{n}"), b""));
    let bytes = archives::Build::of(members.collect()).bytes();
    let mut source = Counted::new(&bytes);
    let held = peak(|| {
        let archive = Archive::read("x.whl", &mut source).unwrap();
        for member in &archive.members {
            archive.locate(member, &mut source).unwrap();
        }
    });
    assert!(held <= allowed(bytes.len()) / 8, "{held} bytes");
    assert!(source.read < 2 * bytes.len() as u64);
    let deeper = archives::Build::of(vec![File::new(&format!("{deep}{deep}x"), b"")]);
    assert!(Archive::read("x.whl", &mut &deeper.bytes()[..]).is_err());
}

#[test]
fn a_hundred_gigabytes_in_a_few_bytes() {
    let mut file = File::deflated("x.so", &Build::default().bytes());
    let honest = archives::Build::of(vec![file.clone()]);
    assert!(Archive::read("x.whl", &mut &honest.bytes()[..]).is_ok());
    file.size = 0xffff_fffe;
    for zip64 in [false, true] {
        let files = vec![file.clone()];
        let bytes = archives::Build { files, zip64 }.bytes();
        let answer = Archive::read("x.whl", &mut &bytes[..]);
        assert!(matches!(answer.unwrap_err().problem, Problem::Sizes { .. }));
    }
    // As much as the archive could hold: the claim is believed until it is read.
    let object = Build::default().bytes();
    let stream = deflated(&object);
    let input = Counted::sparse(&stream, 100 << 20);
    let held = peak(|| {
        let mut source = Inflate::new(input, 100 << 30, crc32(&object));
        assert!(matches!(read(&mut source), Err(elf::Problem::Read(_))));
        assert!(array::<1>(&mut source, (100 << 30) - 1).is_err());
    });
    assert!(held < 1 << 20, "{held} bytes");
}

#[test]
fn many_members_that_inflate_a_thousandfold() {
    let mut object = Build::default().bytes();
    object.resize(4 << 20, 0);
    let members = (0..64).map(|n| File::deflated(&format!("{n}.so"), &object));
    let bytes = archives::Build::of(members.collect()).bytes();
    assert!(bytes.len() < object.len());
    let mut source = Counted::new(&bytes);
    let held = peak(|| {
        let archive = Archive::read("x.whl", &mut source).unwrap();
        for member in &archive.members {
            let mut content = archive.open(member, &mut source).unwrap();
            read(&mut content).unwrap();
            let end = content.size() - 1;
            array::<1>(&mut content, end).unwrap();
        }
    });
    assert!(held < 1 << 20, "{held} bytes");
    let most = 4 * bytes.len() as u64 + (1 << 17);
    assert!(source.read < most, "{} bytes", source.read);
}

/// Blocks without content between those of an object make its stream long, and going back costly.
#[test]
fn an_object_between_empty_blocks() {
    let code = container(&entry()).repeat(10 << 10);
    let object = with_section(&code);
    let mut stream = Vec::new();
    for piece in object.chunks(64) {
        let len = piece.len() as u16;
        stream.push(0);
        stream.extend(len.to_le_bytes());
        stream.extend((!len).to_le_bytes());
        stream.extend(piece);
        stream.extend([0, 0, 0, 0xff, 0xff].repeat(200));
    }
    stream.extend([1, 0, 0, 0xff, 0xff]);
    let mut input = Counted::new(&stream);
    let held = peak(|| {
        let size = object.len() as u64;
        let mut source = Inflate::new(&mut input, size, crc32(&object));
        let read = read(&mut source).unwrap();
        assert_eq!(fatbin::entries(&read, &mut source).count(), 10 << 10);
        for _ in 0..32 {
            array::<1>(&mut source, 0).unwrap();
            array::<1>(&mut source, size - 1).unwrap();
        }
    });
    let most = 6 * stream.len() as u64;
    assert!(
        input.read < most,
        "{} of {} bytes",
        input.read,
        stream.len()
    );
    assert!(held < 8 << 20, "{held} bytes");
}
