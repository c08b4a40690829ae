//! Wheels, deflate streams and tars.

use stackforge_binary::elf;
use stackforge_binary::fatbin;
use stackforge_binary::source::{Inflate, Source, array};
use stackforge_binary::tar::Reader;
use stackforge_binary::zip::{Archive, Problem};

use super::{Counted, container, crc32, deflated, entry, put, read};
use crate::hostile::archives::{self, File};
use crate::hostile::objects::Build;
use crate::hostile::{allowed, peak, with_section};

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
