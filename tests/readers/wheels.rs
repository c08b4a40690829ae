//! An object inside a wheel, read as an audit does, against the same object in memory; and a wheel
//! whose numbers lie.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use stackforge_binary::elf::Object;
use stackforge_binary::fatbin;
use stackforge_binary::source::{self, Source};
use stackforge_binary::zip::{Archive, Member};

/// Which number lies and by how much, how it is compressed, then the object.
pub fn wheel(input: &[u8]) {
    let Some((&[field, change, level], object)) = input.split_first_chunk() else {
        return;
    };
    let honest = archive(object, u32::from(level), None);
    let Some(all) = members(&honest) else {
        // An object that holds an archive's end: two programs could read that wheel differently.
        let ends = honest.windows(4).filter(|w| w == b"PK\x05\x06");
        assert!(ends.count() > 1, "it is an archive");
        return;
    };
    assert_eq!(all.len(), 2);
    let expected = answers(&mut { object });
    for found in all {
        assert_eq!(found.as_ref(), Some(&expected));
    }
    let lying = archive(object, u32::from(level), Some((field, change)));
    if let Some(all) = members(&lying) {
        assert_eq!(all.len(), 2);
    }
}

/// What each member is, if it opens.
fn members(mut bytes: &[u8]) -> Option<Vec<Option<String>>> {
    let archive = Archive::read("x.whl", &mut bytes).ok()?;
    let read = |member| {
        let mut content = archive.open(member, bytes).ok()?;
        forward(&archive, member, bytes, &mut content);
        Some(answers(&mut content))
    };
    Some(archive.members.iter().map(read).collect())
}

/// What passes by once as a whole is what is read anywhere.
fn forward(archive: &Archive, member: &Member, bytes: &[u8], content: &mut impl Source) {
    let Some(mut once) = archive.once(member, bytes).expect("it opens") else {
        return;
    };
    let mut passed = Vec::new();
    if once.read_to_end(&mut passed).is_ok() {
        let whole = source::bytes(content, 0, member.size).expect("it passed");
        assert_eq!(passed, whole);
    }
    assert!(passed.len() as u64 <= member.size);
}

/// Everything that an audit asks an object, as text; of errors only that they are.
fn answers(source: &mut dyn Source) -> String {
    let Ok(object) = Object::read("x", source, &fatbin::SECTIONS) else {
        return String::new();
    };
    let mut symbols = Vec::new();
    let named = object.symbols(source, |symbol| {
        if symbols.len() < 1 << 10 {
            symbols.push(format!("{symbol:?}"));
        }
    });
    let mut entries = Vec::new();
    for entry in fatbin::entries(&object, source) {
        entries.push(entry.ok());
    }
    format!("{object:?} {} {symbols:?} {entries:?}", named.is_ok())
}

/// The object stored and deflated, with one byte of the archive's own records changed.
fn archive(object: &[u8], level: u32, lie: Option<(u8, u8)>) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(level % 10));
    // Writing to memory does not fail.
    let _ = encoder.write_all(object);
    let deflated = encoder.finish().unwrap_or_default();
    let mut crc = flate2::Crc::new();
    crc.update(object);
    let mut out = Vec::new();
    let mut directory = Vec::new();
    let mut own = Vec::new();
    for (name, method, content) in [("a.so", 0u16, object), ("b.so", 8, &deflated)] {
        let mut numbers = [20, 0, method, 0, 0].map(u16::to_le_bytes).concat();
        for number in [crc.sum(), content.len() as u32, object.len() as u32] {
            numbers.extend(number.to_le_bytes());
        }
        numbers.extend([4, 0, 0, 0]);
        directory.extend(*b"PK\x01\x02\x14\x03");
        directory.extend(&numbers);
        directory.extend([0; 10]);
        directory.extend((out.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        own.extend(out.len()..out.len() + 30);
        out.extend(*b"PK\x03\x04");
        out.extend(&numbers);
        out.extend(name.as_bytes());
        out.extend(content);
    }
    let start = out.len();
    out.extend(&directory);
    out.extend(*b"PK\x05\x06\0\0\0\0\x02\0\x02\0");
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend((start as u32).to_le_bytes());
    out.extend([0, 0]);
    own.extend(start..out.len());
    if let Some((field, change)) = lie {
        let at = own[usize::from(field) % own.len()];
        out[at] ^= change | 1;
    }
    out
}
