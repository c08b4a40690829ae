//! Cuts a file into chunks by its content, so that moved bytes are cut at the same places.
//!
//! In: a file. Out: the ends of its chunks. Two versions of a library have most kernels in common, but at
//! other offsets; as chunks they are the same gzip members, and an update does not fetch them again. A
//! rolling hash of the last 64 bytes decides where to cut (gear hashing with normalized chunking, W. Xia et
//! al., "FastCDC", USENIX ATC 2016). Layers are identified by their digests, so a change here needs a new
//! format.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Shortest and wanted length of a chunk, in bytes. Shorter chunks would share more, but each costs a line
/// of the table of contents and a start of the compressor.
const LEAST: u64 = 32 << 10;
const WANTED: u64 = 128 << 10;
const MOST: u64 = 1 << 20;
/// Bits of the hash that must be zero at a cut, before and after the wanted length.
const BEFORE: u64 = !0 << (64 - 19);
const AFTER: u64 = !0 << (64 - 15);
const BUFFER: usize = 1 << 20;

/// A range of a file that replaces a member in a layer.
#[derive(Debug)]
pub struct Changed {
    file: Arc<File>,
    start: u64,
    ends: Vec<u64>,
}

impl Changed {
    /// Cuts `size` bytes of `file` from `start` on.
    ///
    /// # Errors
    /// If the file cannot be read, or is shorter.
    pub fn new(file: Arc<File>, start: u64, size: u64) -> io::Result<Self> {
        let mut ends = Vec::new();
        let mut cutter = Cutter::default();
        pass(&file, start, size, |bytes, at| {
            cutter.pass(bytes, at, &mut ends);
            Ok(())
        })?;
        if ends.last() != Some(&size) && size > 0 {
            ends.push(size);
        }
        Ok(Self { file, start, ends })
    }

    /// Size of the member in bytes.
    pub fn size(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Writes the whole member to `to`.
    ///
    /// # Errors
    /// If the file cannot be read, is shorter than it was, or `to` fails.
    pub fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        pass(&self.file, self.start, self.size(), |bytes, _| {
            to.write_all(bytes)
        })
    }

    pub(super) fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, self.start + offset)
    }

    pub(super) fn chunks(&self) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| start..*end)
    }
}

/// Reads a range of a file piece by piece, with each piece's offset in the range.
fn pass(
    file: &File,
    start: u64,
    size: u64,
    mut on: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER.min(usize::try_from(size).unwrap_or(BUFFER))];
    let mut at = 0;
    while at < size {
        let len = (size - at).min(BUFFER as u64) as usize;
        file.read_exact_at(&mut buffer[..len], start + at)?;
        on(&buffer[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

#[derive(Default)]
struct Cutter {
    hash: u64,
    start: u64,
}

impl Cutter {
    /// Takes the next bytes, which start at offset `at`.
    fn pass(&mut self, bytes: &[u8], at: u64, ends: &mut Vec<u64>) {
        let mut rest = bytes;
        let mut at = at;
        while !rest.is_empty() {
            let limits = [(LEAST, 0), (WANTED, BEFORE), (MOST, AFTER)];
            let length = at - self.start;
            let Some((limit, mask)) = limits.into_iter().find(|(limit, _)| length < *limit) else {
                self.cut(at, ends);
                continue;
            };
            let len = rest.len().min((limit - length) as usize);
            let (now, later) = rest.split_at(len);
            match self.find(now, mask) {
                Some(place) => {
                    at += place as u64 + 1;
                    rest = &rest[place + 1..];
                    self.cut(at, ends);
                }
                None => {
                    at += len as u64;
                    rest = later;
                }
            }
        }
        if at - self.start == MOST {
            self.cut(at, ends);
        }
    }

    fn find(&mut self, bytes: &[u8], mask: u64) -> Option<usize> {
        for (place, byte) in bytes.iter().enumerate() {
            self.hash = (self.hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
            if mask != 0 && self.hash & mask == 0 {
                return Some(place);
            }
        }
        None
    }

    fn cut(&mut self, at: u64, ends: &mut Vec<u64>) {
        ends.push(at);
        (self.start, self.hash) = (at, 0);
    }
}

/// A random number for each byte value: splitmix64 from 0 on (S. Vigna).
const GEAR: [u64; 256] = {
    let mut gear = [0; 256];
    let mut state = 0u64;
    let mut n = 0;
    while n < 256 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        gear[n] = z ^ (z >> 31);
        n += 1;
    }
    gear
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::io::Write as _;

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed;
        let step = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u8
        };
        (0..len).map(step).collect()
    }

    fn chunks(bytes: &[u8]) -> Vec<&[u8]> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before").unwrap();
        file.write_all(bytes).unwrap();
        let changed = Changed::new(Arc::new(file), 6, bytes.len() as u64).unwrap();
        assert_eq!(changed.size(), bytes.len() as u64);
        let of = |range: std::ops::Range<u64>| &bytes[range.start as usize..range.end as usize];
        changed.chunks().map(of).collect()
    }

    #[test]
    fn chunks_have_the_wanted_size_and_are_all_of_it() {
        let bytes = noise(1, 40 << 20);
        let all = chunks(&bytes);
        assert_eq!(all.concat(), bytes);
        let mean = bytes.len() / all.len();
        assert!((100 << 10..180 << 10).contains(&mean), "{mean}");
        let within = |c: &&[u8]| (LEAST as usize..=MOST as usize).contains(&c.len());
        assert!(all[..all.len() - 1].iter().all(within));
        assert!(chunks(&[]).is_empty());
        let zeros = vec![0; 5 << 20];
        assert!(chunks(&zeros).iter().all(|c| c.len() == MOST as usize));
    }

    /// Changing the cuts requires a new version of the pruning format, because it identifies layers.
    #[test]
    fn cuts_are_where_they_always_were() {
        let bytes = noise(7, 1 << 20);
        let ends: Vec<usize> = chunks(&bytes).iter().map(|c| c.len()).collect();
        assert_eq!(
            ends,
            [180_390, 181_519, 181_157, 194_734, 196_947, 99_408, 14_421]
        );
    }

    #[test]
    fn what_moved_is_cut_as_before() {
        let old = noise(2, 8 << 20);
        let mut new = old.clone();
        new.splice(3 << 20..3 << 20, noise(3, 1000));
        let known: HashSet<&[u8]> = chunks(&old).into_iter().collect();
        let fresh = chunks(&new).into_iter().filter(|c| !known.contains(c));
        let fresh: usize = fresh.map(<[u8]>::len).sum();
        assert!(fresh < 1 << 20, "{fresh}");
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(seed in any::<u64>(), len in 0usize..400_000, piece in 1usize..100_000) {
            let bytes = noise(seed, len);
            let mut ends = [Vec::new(), Vec::new()];
            for (ends, piece) in ends.iter_mut().zip([piece, len.max(1)]) {
                let mut cutter = Cutter::default();
                for (n, part) in bytes.chunks(piece).enumerate() {
                    cutter.pass(part, (n * piece) as u64, ends);
                }
            }
            prop_assert_eq!(&ends[0], &ends[1]);
        }
    }
}
