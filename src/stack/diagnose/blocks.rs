//! Splits a log into blocks of whole lines, without colours.
//!
//! In: any reader. Out: [`Block`]s of bounded size. A line longer than a block is split into overlapping
//! pieces, so that every match is whole in one of them.

use super::line::{OVERLAP, breaks};
use std::io::{self, Read};

/// Bytes of a block, which fit a second-level cache.
const SIZE: usize = 256 << 10;
const ESCAPE: u8 = 0x1b;

pub struct Blocks<R> {
    log: R,
    buffer: Vec<u8>,
    filled: usize,
    /// Bytes of the block handed out last, and those of them that come again.
    used: usize,
    line: u64,
    ended: bool,
    without_colours: Vec<u8>,
}

pub struct Block<'a> {
    /// Number of the block's first line.
    pub line: u64,
    pub bytes: &'a [u8],
}

impl<R: Read> Blocks<R> {
    pub fn new(log: R) -> Self {
        Self {
            log,
            buffer: vec![0; SIZE],
            filled: 0,
            used: 0,
            line: 1,
            ended: false,
            without_colours: Vec::new(),
        }
    }

    pub fn next(&mut self) -> io::Result<Option<Block<'_>>> {
        self.line += breaks(&self.buffer[..self.used]);
        self.buffer.copy_within(self.used..self.filled, 0);
        self.filled -= self.used;
        self.used = 0;
        self.fill()?;
        if self.filled == 0 {
            return Ok(None);
        }
        let filled = &self.buffer[..self.filled];
        let (shown, used) = match memchr::memrchr(b'\n', filled) {
            _ if self.ended => (self.filled, self.filled),
            Some(end) => (end + 1, end + 1),
            None => (self.filled, self.filled - OVERLAP),
        };
        self.used = used;
        let mut bytes = &self.buffer[..shown];
        if memchr::memchr(ESCAPE, bytes).is_some() {
            strip_colours(bytes, &mut self.without_colours);
            bytes = &self.without_colours;
        }
        Ok(Some(Block {
            line: self.line,
            bytes,
        }))
    }

    fn fill(&mut self) -> io::Result<()> {
        while !self.ended && self.filled < self.buffer.len() {
            match self.log.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.ended = true,
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Copies `bytes` without terminal control sequences (`ESC [ … letter`, `ESC ] … BEL`). Keeps every line
/// break.
fn strip_colours(bytes: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = bytes;
    while let Some(at) = memchr::memchr(ESCAPE, rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let ends: fn(u8) -> bool = match rest.first() {
            Some(b'[') => |b| (0x40..=0x7e).contains(&b),
            Some(b']') => |b| b == 0x07 || b == b'\\',
            _ => continue,
        };
        let length = rest[1..].iter().position(|b| ends(*b) || *b == b'\n');
        rest = match length {
            Some(length) if rest[1 + length] == b'\n' => &rest[1 + length..],
            Some(length) => &rest[2 + length..],
            None => &[],
        };
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn colours_go_and_breaks_stay() {
        let mut out = Vec::new();
        for (with, without) in [
            ("a \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kb", "a error: b"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b[31\nnext", "\nnext"),
            ("end\x1b", "end"),
            ("end\x1b[", "end"),
            ("\x1bMx", "Mx"),
        ] {
            strip_colours(with.as_bytes(), &mut out);
            assert_eq!(out, without.as_bytes());
        }
    }

    /// A reader that returns a few bytes at a time.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(into.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn blocks_are_the_log(
            lines in proptest::collection::vec(("[a-z]{0,9}", 0..90_000_usize), 0..20),
            drip in 1000..400_000_usize,
        ) {
            let text: String = lines.iter().map(|(t, n)| format!("{t}{}\n", "x".repeat(*n))).collect();
            let mut blocks = Blocks::new(Drip(text.as_bytes(), drip));
            let mut joined = Vec::new();
            while let Some(block) = blocks.next().unwrap() {
                prop_assert_eq!(block.line, 1 + breaks(&joined));
                joined.extend_from_slice(block.bytes);
            }
            prop_assert_eq!(joined, text.as_bytes());
        }
    }

    #[test]
    fn pieces_of_an_endless_line_overlap() {
        let text = vec![b'x'; 3 * SIZE];
        let mut blocks = Blocks::new(&text[..]);
        let mut total = 0;
        let mut pieces = 0;
        while let Some(block) = blocks.next().unwrap() {
            assert_eq!(block.line, 1);
            total += block.bytes.len();
            pieces += 1;
        }
        assert_eq!(total, text.len() + (pieces - 1) * OVERLAP);
    }
}
