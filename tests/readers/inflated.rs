//! A deflate stream read anywhere against the same stream inflated from start to end by zlib-rs.

use flate2::{Decompress, FlushDecompress, Status};
use stackforge_binary::source::{Inflate, ReadError, Source, array, bytes};

/// Longer content is left alone, so that a bomb does not stop the fuzzer.
const MAX_CONTENT: usize = 128 << 10;

/// Lies, then four places to read from, then the stream.
pub fn inflate(input: &[u8]) {
    let Some((header, stream)) = input.split_first_chunk::<9>() else {
        return;
    };
    let [lies, places @ ..] = *header;
    let Some(content) = whole(stream) else {
        // Whatever it is, it ends in an answer.
        let size = u64::from(u16::from_le_bytes([places[0], places[1]]));
        let _ = bytes(&mut Inflate::new(stream, size, 0), 0, size);
        return;
    };
    let mut crc = flate2::Crc::new();
    crc.update(&content);
    let size = content.len() as u64;
    let mut honest = Inflate::new(stream, size, crc.sum());
    for place in places.chunks_exact(2) {
        let at = u64::from(u16::from_le_bytes([place[0], place[1]])) * 17 % (size + 1);
        let len = (u64::from(place[0]) * 5).min(size - at);
        let found = bytes(&mut honest, at, len).expect("zlib reads it");
        assert_eq!(found, content[at as usize..(at + len) as usize]);
    }
    assert_eq!(bytes(&mut honest, 0, size).expect("zlib reads it"), content);

    drop(honest);

    let other = match lies % 4 {
        0 => size + 1,
        1 => size.saturating_sub(1),
        2 => size * 2 + 1,
        _ => size,
    };
    let sum = crc.sum() ^ u32::from(lies >= 128);
    let mut lying = Inflate::new(stream, other, sum);
    let end = match other {
        0 => bytes(&mut lying, 0, 0).map(|_| ()),
        _ => array::<1>(&mut lying, other - 1).map(|_| ()),
    };
    assert_eq!(end.is_ok(), other == size && sum == crc.sum());
    assert!(lying.size() == other);
    if let Err(error) = end {
        assert!(!matches!(error, ReadError::Io { .. }));
    }
}

/// The content if the stream is one from its first byte to its last.
fn whole(stream: &[u8]) -> Option<Vec<u8>> {
    let mut decoder = Decompress::new(false);
    let mut content = Vec::new();
    loop {
        content.reserve(content.len().max(1 << 10));
        let (read, made) = (decoder.total_in(), decoder.total_out());
        let rest = &stream[read as usize..];
        let status = decoder.decompress_vec(rest, &mut content, FlushDecompress::None);
        match status.ok()? {
            Status::StreamEnd => break,
            _ if content.len() > MAX_CONTENT => return None,
            _ if (decoder.total_in(), decoder.total_out()) == (read, made) => return None,
            Status::Ok | Status::BufError => {}
        }
    }
    (decoder.total_in() == stream.len() as u64).then_some(content)
}
