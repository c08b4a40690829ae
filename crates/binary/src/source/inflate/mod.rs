//! Random access to a deflate stream.
//!
//! An ELF object names its sections at its end and has its tables at its start, so one forward pass
//! over a compressed object cannot be exact without holding everything that may turn out to matter.
//! Instead, the stream is inflated forward, and the decoder's state is kept at every few MiB: its
//! tables and the last 32 KiB of output, 43 KiB in all. A read elsewhere resumes at the nearest state.
//! An object is then inflated once in full, and its device code a second time, with a few MiB of
//! memory.
//!
//! The first pass to the end checks length and CRC-32. Never holds more than `MAX_STATES` states: in a
//! longer stream they are further apart.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags as flags};

use super::access::{Source, range};
use super::error::ReadError;

/// Distance in bytes that a deflate stream can refer back.
const HISTORY: usize = 32 << 10;
const OUTPUT: usize = HISTORY + LIMITS.output;
const INPUT: u64 = LIMITS.input;
const MAX_STATES: usize = LIMITS.states;
const FIRST_SPACING: u64 = LIMITS.spacing;

struct Limits {
    output: usize,
    input: u64,
    states: usize,
    spacing: u64,
}

/// Sizes of buffers and states; 128 states have 5.5 MiB. A fuzzer's streams are short: they would never
/// fill buffers for real objects, nor reach a second state.
const LIMITS: Limits = if cfg!(fuzzing) {
    Limits {
        output: 1 << 10,
        input: 64,
        states: 4,
        spacing: 1 << 10,
    }
} else {
    Limits {
        output: 256 << 10,
        input: 64 << 10,
        states: 128,
        spacing: 1 << 20,
    }
};

/// A point at which inflating can resume.
struct State {
    decoder: Box<DecompressorOxide>,
    /// Bytes of input that the decoder has consumed.
    read: u64,
    /// Bytes of output that the decoder has made.
    made: u64,
    /// The last bytes of the output.
    history: Vec<u8>,
}

/// The inflated bytes of a source that is one deflate stream.
pub struct Inflate<S> {
    input: S,
    size: u64,
    crc32: u32,

    decoder: Box<DecompressorOxide>,
    ended: bool,
    /// Input that was read ahead, and how much of it and of the whole input the decoder has consumed.
    ahead: Vec<u8>,
    consumed: usize,
    read: u64,
    /// `output[..filled]` are the bytes that end at `made`.
    output: Box<[u8]>,
    filled: usize,
    made: u64,

    states: Vec<State>,
    spacing: u64,
    /// CRC-32 of the first `checked` bytes.
    crc: flate2::Crc,
    checked: u64,
}

impl<S: Source> Inflate<S> {
    /// Creates a reader. `size` and `crc32` describe the inflated bytes according to the archive's
    /// directory.
    pub fn new(input: S, size: u64, crc32: u32) -> Self {
        Self {
            input,
            size,
            crc32,
            decoder: Box::default(),
            ended: false,
            ahead: Vec::new(),
            consumed: 0,
            read: 0,
            output: vec![0; OUTPUT].into_boxed_slice(),
            filled: 0,
            made: 0,
            states: Vec::new(),
            spacing: FIRST_SPACING,
            crc: flate2::Crc::new(),
            checked: 0,
        }
    }

    /// Resumes from the last state before `offset`, unless the decoder is already closer.
    fn resume_before(&mut self, offset: u64) {
        let after = self.states.partition_point(|s| s.made <= offset);
        let state = after.checked_sub(1).map(|i| &self.states[i]);
        let here = (self.made - self.filled as u64) <= offset;
        if here && state.is_none_or(|s| s.made <= self.made) {
            return;
        }
        self.ended = false;
        self.ahead.clear();
        self.consumed = 0;
        let Some(state) = state else {
            self.decoder.init();
            (self.read, self.made, self.filled) = (0, 0, 0);
            return;
        };
        self.decoder.clone_from(&state.decoder);
        (self.read, self.made) = (state.read, state.made);
        self.filled = state.history.len();
        self.output[..self.filled].copy_from_slice(&state.history);
    }

    /// Inflates as much as fits into the output buffer.
    fn step(&mut self) -> Result<(), ReadError> {
        if self.filled == OUTPUT {
            self.output.copy_within(OUTPUT - HISTORY.., 0);
            self.filled = HISTORY;
        }
        if self.consumed == self.ahead.len() {
            self.read_ahead()?;
        }
        let mut how = flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let left = self.input.size() - self.read;
        if left > (self.ahead.len() - self.consumed) as u64 {
            how |= flags::TINFL_FLAG_HAS_MORE_INPUT;
        }
        let (status, consumed, made) = decompress(
            &mut self.decoder,
            &self.ahead[self.consumed..],
            &mut self.output,
            self.filled,
            how,
        );
        self.consumed += consumed;
        self.read += consumed as u64;
        self.filled += made;
        self.made += made as u64;
        if self.made > self.size {
            return Err(ReadError::Longer {
                offset: self.made,
                size: self.size,
            });
        }
        self.check_new();
        match status {
            TINFLStatus::Done => self.end(),
            TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput => {
                self.keep_state();
                Ok(())
            }
            _ => Err(ReadError::Damaged { offset: self.made }),
        }
    }

    fn read_ahead(&mut self) -> Result<(), ReadError> {
        let more = INPUT.min(self.input.size() - self.read);
        self.ahead.resize(more as usize, 0);
        self.consumed = 0;
        let answer = self.input.read_at(self.read, &mut self.ahead);
        if answer.is_err() {
            self.ahead.clear();
        }
        answer
    }

    /// Adds bytes to the checksum that no earlier pass has made.
    fn check_new(&mut self) {
        let new = self.made.saturating_sub(self.checked) as usize;
        // A pass resumes at or before the end of the checked bytes, so new bytes are at most those of
        // the last step.
        self.crc
            .update(&self.output[self.filled - new..self.filled]);
        self.checked += new as u64;
    }

    fn end(&mut self) -> Result<(), ReadError> {
        self.ended = true;
        let left = self.input.size() - self.read;
        super::error::check_end(self.made, self.size, left, self.crc.sum(), self.crc32)
    }

    fn keep_state(&mut self) {
        let (made, read) = self.states.last().map_or((0, 0), |s| (s.made, s.read));
        // Blocks without content consume input too.
        if self.made < made + self.spacing && self.read < read + self.spacing {
            return;
        }
        if self.states.len() == MAX_STATES {
            let mut keep = false;
            self.states.retain(|_| {
                keep = !keep;
                !keep
            });
            self.spacing *= 2;
        }
        let from = self.filled.saturating_sub(HISTORY);
        self.states.push(State {
            decoder: self.decoder.clone(),
            read: self.read,
            made: self.made,
            history: self.output[from..self.filled].to_vec(),
        });
    }
}

impl<S: Source> Source for Inflate<S> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let wanted = range(offset, buf.len() as u64, self.size)?;
        let mut at = wanted.start;
        while at < wanted.end {
            self.resume_before(at);
            while self.made <= at {
                if self.ended {
                    return Err(ReadError::Shorter {
                        offset: self.made,
                        size: self.size,
                    });
                }
                self.step()?;
            }
            let start = self.filled - (self.made - at) as usize;
            let n = (self.filled - start).min((wanted.end - at) as usize);
            let done = (at - wanted.start) as usize;
            buf[done..done + n].copy_from_slice(&self.output[start..start + n]);
            at += n as u64;
        }
        // The stream may continue after the last byte.
        while self.made == self.size && !self.ended {
            self.step()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
