use std::io::Write as _;

use flate2::write::DeflateEncoder;
use proptest::prelude::*;

use super::*;
use crate::source::{array, bytes};

fn deflate(data: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::new(level));
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn crc32(data: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(data);
    crc.sum()
}

/// Generates data that is compressible and nowhere the same.
fn text(len: usize) -> Vec<u8> {
    let mut data = Vec::with_capacity(len + 32);
    for i in 0.. {
        if data.len() >= len {
            break;
        }
        write!(data, "line {i} of {};", i / 7 * 13).unwrap();
    }
    data.truncate(len);
    data
}

fn whole(data: &[u8], compressed: &[u8]) -> Result<Vec<u8>, ReadError> {
    let mut inflate = Inflate::new(compressed, data.len() as u64, crc32(data));
    let size = inflate.size();
    bytes(&mut inflate, 0, size)
}

#[test]
fn reads_anywhere_with_few_states() {
    let data = text(60 << 20);
    let compressed = deflate(&data, 1);
    let mut inflate = Inflate::new(&compressed[..], data.len() as u64, crc32(&data));
    // The smallest spacing makes so many states that they have to be thinned out.
    inflate.spacing = 1;
    for offset in [data.len() - 9, 0, 1 << 20, 40 << 20, 39 << 20, 31, 59 << 20] {
        let found: [u8; 9] = array(&mut inflate, offset as u64).unwrap();
        assert_eq!(found, data[offset..offset + 9], "{offset}");
    }
    assert!(inflate.states.len() <= MAX_STATES);
    assert!(inflate.spacing > 1);
    // A state further ahead saves inflating what lies between.
    let _: [u8; 1] = array(&mut inflate, 0).unwrap();
    let before = inflate.read;
    let _: [u8; 1] = array(&mut inflate, 50 << 20).unwrap();
    assert!(inflate.read > before);
    let near = inflate.states.partition_point(|s| s.made <= 50 << 20);
    assert!(inflate.states[near - 1].made > 48 << 20);
}

#[test]
fn an_empty_stream_is_checked_too() {
    assert_eq!(whole(b"", &deflate(b"", 6)).unwrap(), b"");
    assert!(matches!(whole(b"", b""), Err(ReadError::Damaged { .. })));
}

#[test]
fn a_directory_that_lies_is_found_out() {
    let data = text(700_000);
    let compressed = deflate(&data, 6);
    let len = data.len() as u64;
    let read = |size: u64, crc: u32, compressed: &[u8]| {
        let mut inflate = Inflate::new(compressed, size, crc);
        bytes(&mut inflate, 0, size).map(|_| ()).unwrap_err()
    };
    let crc = crc32(&data);
    assert!(matches!(
        read(len - 1, crc, &compressed),
        ReadError::Longer { .. }
    ));
    assert!(matches!(
        read(len + 1, crc, &compressed),
        ReadError::Shorter { .. }
    ));
    assert!(matches!(
        read(len, crc ^ 1, &compressed),
        ReadError::Checksum { .. }
    ));
    let mut longer = compressed.clone();
    longer.push(0);
    assert!(matches!(
        read(len, crc, &longer),
        ReadError::Trailing { left: 1, .. }
    ));
    let cut = &compressed[..compressed.len() / 2];
    assert!(matches!(read(len, crc, cut), ReadError::Damaged { .. }));
    let mut broken = compressed.clone();
    broken[compressed.len() / 2] ^= 0x55;
    let error = read(len, crc, &broken);
    assert!(error.offset() <= len, "{error}");
}

/// A stream whose output ends exactly at a buffer's end is not known to end there.
#[test]
fn a_stream_that_goes_on_behind_a_full_buffer() {
    for extra in [0, 1, 300_000] {
        let data = text(OUTPUT + extra);
        let compressed = deflate(&data, 6);
        let mut inflate = Inflate::new(&compressed[..], OUTPUT as u64, crc32(&data[..OUTPUT]));
        let answer = bytes(&mut inflate, 0, OUTPUT as u64);
        assert_eq!(answer.is_ok(), extra == 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn reads_are_slices(
        len in 0usize..900_000,
        level in 0u32..10,
        reads in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..400_000), 1..8),
    ) {
        let data = text(len);
        let compressed = deflate(&data, level);
        let mut inflate = Inflate::new(&compressed[..], len as u64, crc32(&data));
        inflate.spacing = 1;
        for (at, n) in reads {
            let at = at.index(len + 1);
            let n = n.min(len - at);
            let found = bytes(&mut inflate, at as u64, n as u64).unwrap();
            prop_assert_eq!(&found[..], &data[at..at + n]);
        }
    }

    #[test]
    fn any_stream(compressed in proptest::collection::vec(any::<u8>(), 0..300), size in 0u64..3000) {
        let mut inflate = Inflate::new(&compressed[..], size, 0);
        for offset in [size / 2, 0, size.saturating_sub(1)] {
            let _ = array::<1>(&mut inflate, offset);
        }
    }
}
