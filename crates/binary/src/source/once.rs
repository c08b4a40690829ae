//! A deflate stream that is inflated once, from its first byte to its last.
//!
//! In: a source that is one deflate stream, and its content's size and CRC-32 from the archive's
//! directory. Out: the content, forward only, at the speed of zlib-rs and without the states that
//! [`super::Inflate`] keeps for going back. Size and CRC-32 are checked before the end is reported.
//! Never returns more than the directory says, nor reports the end of an incomplete stream.

use std::io::{self, Read};

use flate2::{Decompress, FlushDecompress, Status};

use super::access::Source;
use super::error::ReadError;

/// Bytes of the first and of the largest read of input: for most members, only a few bytes are needed.
const FIRST_INPUT: u64 = 512;
const MOST_INPUT: u64 = if cfg!(fuzzing) { 1 << 10 } else { 128 << 10 };

/// Inflates a deflate stream from its start to its end. It also implements [`Read`].
pub struct Once<S> {
    input: S,
    size: u64,
    crc32: u32,

    decoder: Decompress,
    ended: bool,
    /// Input that was read ahead, how much of it the decoder has consumed, and where it ends.
    ahead: Vec<u8>,
    consumed: usize,
    read: u64,
    made: u64,
    crc: flate2::Crc,
}

impl<S: Source> Once<S> {
    /// Creates a reader. `size` and `crc32` describe the inflated bytes according to the archive's
    /// directory.
    pub fn new(input: S, size: u64, crc32: u32) -> Self {
        Self {
            input,
            size,
            crc32,
            decoder: Decompress::new(false),
            ended: false,
            ahead: Vec::new(),
            consumed: 0,
            read: 0,
            made: 0,
            crc: flate2::Crc::new(),
        }
    }

    /// Returns the size of the content according to the directory.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads the next bytes of the content into `buf` and returns their number, which is 0 at the end.
    ///
    /// # Errors
    /// If the stream is damaged, or if its size or CRC-32 differs from the directory's. The last two
    /// are found at the end.
    pub fn next(&mut self, buf: &mut [u8]) -> Result<usize, ReadError> {
        if buf.is_empty() {
            return Ok(0);
        }
        while !self.ended {
            let made = self.step(buf)?;
            if made > 0 {
                return Ok(made);
            }
        }
        self.end()?;
        Ok(0)
    }

    fn step(&mut self, buf: &mut [u8]) -> Result<usize, ReadError> {
        if self.consumed == self.ahead.len() {
            self.read_ahead()?;
        }
        let before = (self.decoder.total_in(), self.decoder.total_out());
        let status = self
            .decoder
            .decompress(&self.ahead[self.consumed..], buf, FlushDecompress::None)
            .map_err(|_| ReadError::Damaged { offset: self.made })?;
        let consumed = (self.decoder.total_in() - before.0) as usize;
        let made = (self.decoder.total_out() - before.1) as usize;
        self.consumed += consumed;
        self.made += made as u64;
        self.ended = status == Status::StreamEnd;
        if self.made > self.size {
            return Err(ReadError::Longer {
                offset: self.made,
                size: self.size,
            });
        }
        // The decoder needs input, but there is no more.
        if !self.ended && consumed == 0 && made == 0 {
            return Err(ReadError::Damaged { offset: self.made });
        }
        self.crc.update(&buf[..made]);
        Ok(made)
    }

    fn read_ahead(&mut self) -> Result<(), ReadError> {
        let most = (2 * self.ahead.len() as u64).clamp(FIRST_INPUT, MOST_INPUT);
        let more = most.min(self.input.size() - self.read);
        self.ahead.resize(more as usize, 0);
        self.consumed = 0;
        let answer = self.input.read_at(self.read, &mut self.ahead);
        match answer {
            Ok(()) => self.read += more,
            Err(_) => self.ahead.clear(),
        }
        answer
    }

    fn end(&self) -> Result<(), ReadError> {
        let left = self.input.size() - self.read + (self.ahead.len() - self.consumed) as u64;
        super::error::check_end(self.made, self.size, left, self.crc.sum(), self.crc32)
    }
}

impl<S: Source> Read for Once<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.next(buf).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use proptest::prelude::*;
    use std::io::Write as _;

    fn deflate(data: &[u8]) -> (Vec<u8>, u32) {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(data).unwrap();
        let mut crc = flate2::Crc::new();
        crc.update(data);
        (encoder.finish().unwrap(), crc.sum())
    }

    fn whole(stream: &[u8], size: u64, crc32: u32) -> Result<Vec<u8>, ReadError> {
        let mut once = Once::new(stream, size, crc32);
        let (mut all, mut piece) = (Vec::new(), [0; 1000]);
        loop {
            match once.next(&mut piece)? {
                0 => return Ok(all),
                n => all.extend_from_slice(&piece[..n]),
            }
        }
    }

    #[test]
    fn what_the_directory_says_has_to_be_true() {
        let data: Vec<u8> = (0..300_000u32)
            .flat_map(|i| i.wrapping_mul(i).to_le_bytes())
            .collect();
        let (stream, crc) = deflate(&data);
        let size = data.len() as u64;
        assert_eq!(whole(&stream, size, crc).unwrap(), data);
        let fails = |stream: &[u8], size, crc| whole(stream, size, crc).unwrap_err();
        assert!(matches!(
            fails(&stream, size, crc ^ 1),
            ReadError::Checksum { found, .. } if found == crc
        ));
        assert!(matches!(
            fails(&stream, size + 1, crc),
            ReadError::Shorter { offset, .. } if offset == size
        ));
        assert!(matches!(
            fails(&stream, size - 1, crc),
            ReadError::Longer { .. }
        ));
        let trailing = [&stream[..], b"xyz"].concat();
        assert!(matches!(
            fails(&trailing, size, crc),
            ReadError::Trailing { left: 3, .. }
        ));
        for cut in [0, 1, stream.len() / 2, stream.len() - 1] {
            assert!(matches!(
                fails(&stream[..cut], size, crc),
                ReadError::Damaged { .. }
            ));
        }
        let mut damaged = stream.clone();
        damaged[stream.len() / 2] ^= 0x55;
        assert!(whole(&damaged, size, crc).is_err());
    }

    #[test]
    fn nothing_is_a_stream_too() {
        let (stream, crc) = deflate(b"");
        assert_eq!(whole(&stream, 0, crc).unwrap(), b"");
        assert!(matches!(
            whole(&stream, 0, 1),
            Err(ReadError::Checksum { .. })
        ));
    }

    proptest! {
        #[test]
        fn reads_of_any_length_give_the_content(
            data in prop::collection::vec(0u8..4, 0..20_000),
            lens in prop::collection::vec(1usize..3000, 1..8),
        ) {
            let (stream, crc) = deflate(&data);
            let mut once = Once::new(&stream[..], data.len() as u64, crc);
            let mut found = Vec::new();
            for len in lens.into_iter().cycle() {
                let mut piece = vec![0; len];
                match once.next(&mut piece).unwrap() {
                    0 => break,
                    n => found.extend_from_slice(&piece[..n]),
                }
            }
            prop_assert_eq!(found, data);
        }
    }
}
