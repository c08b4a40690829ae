use super::*;
use flate2::read::MultiGzDecoder;
use proptest::prelude::*;
use std::io::Read as _;

fn content(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 33) as u8
    };
    // Half of the content is compressible.
    (0..size)
        .map(|i| {
            if i % 4096 < 2048 {
                next()
            } else {
                (i / 4096) as u8
            }
        })
        .collect()
}

fn packed(compression: Compression, threads: usize, content: &[u8]) -> (Layer, Vec<u8>) {
    let mut out = Vec::new();
    let packed = pack(compression, threads, &mut out, |sink| {
        // In steps that do not match the ends of pieces.
        for step in content.chunks(100_003) {
            sink.write_all(step)?;
        }
        Ok::<_, io::Error>(())
    });
    (packed.unwrap(), out)
}

fn unpacked(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match compression {
        Compression::Gzip(_) => MultiGzDecoder::new(bytes).read_to_end(&mut out).unwrap(),
        Compression::Zstd(_) => zstd::Decoder::new(bytes)
            .unwrap()
            .read_to_end(&mut out)
            .unwrap(),
    };
    out
}

#[test]
fn one_thread_or_many_give_the_same_blob() {
    let content = content(9 << 20, 7);
    for compression in [Compression::GZIP, Compression::ZSTD] {
        let (one, bytes) = packed(compression, 1, &content);
        assert_eq!(unpacked(compression, &bytes), content);
        assert_eq!(one.digest, Digest::of(&bytes));
        assert_eq!(one.diff_id, Digest::of(&content));
        assert_eq!(
            (one.size, one.plain_size),
            (bytes.len() as u64, content.len() as u64)
        );
        for threads in [2, 5] {
            let (many, other) = packed(compression, threads, &content);
            assert!(other == bytes, "{threads} threads");
            assert_eq!(
                (many.digest, many.diff_id),
                (one.digest.clone(), one.diff_id.clone())
            );
        }
    }
}

#[test]
fn nothing_is_a_stream_too() {
    for compression in [Compression::GZIP, Compression::ZSTD] {
        let (packed, bytes) = packed(compression, 2, b"");
        assert_eq!(unpacked(compression, &bytes), b"");
        assert_eq!((packed.plain_size, packed.size > 0), (0, true));
    }
}

/// A writer that fails after so many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told_and_ends_what_makes_the_content() {
    let content = content(64 << 20, 3);
    for threads in [1, 4] {
        let ended = pack(Compression::GZIP, threads, Full(3 << 20), |sink| {
            sink.write_all(&content)
        });
        match ended {
            Err(PackError::Write(e)) => assert_eq!(e.kind(), io::ErrorKind::StorageFull),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn content_that_fails_is_told() {
    let ended = pack(Compression::ZSTD, 2, io::sink(), |sink| {
        sink.write_all(&content(6 << 20, 1))?;
        Err(io::Error::other("no more"))
    });
    match ended {
        Err(PackError::Content(e)) => assert_eq!(e.to_string(), "no more"),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_goes_in_comes_out(size in 0usize..(5 << 20), seed: u64, level in 0u8..30) {
        let content = content(size, seed);
        for compression in [Compression::Gzip(level), Compression::Zstd(level)] {
            let (_, bytes) = packed(compression, 3, &content);
            prop_assert_eq!(unpacked(compression, &bytes), content.clone());
        }
    }
}
