//! The readers of foreign bytes on the fuzzers' corpus: no panic, and no memory that the input's
//! size does not justify.

mod exhaustion;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write as _;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;
use readers::TARGETS;
use stackforge_binary::elf::Object;
use stackforge_binary::fatbin;
use stackforge_binary::samples::{archive as archives, object as objects};
use stackforge_binary::source::Inflate;

/// Counts what each thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call is passed on unchanged; the counters neither allocate nor unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Most bytes that `work` held at once.
fn peak(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before) as usize
}

/// Names and tables grow with the input; buffers do not.
fn allowed(input: usize) -> usize {
    16 * input + (1 << 20)
}

/// Inputs by the place of their reader.
static CORPUS: LazyLock<[Vec<Vec<u8>>; TARGETS.len()]> =
    LazyLock::new(|| TARGETS.map(|target| corpus(target.name)));

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = format!("{}/fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|f| std::fs::read(f).unwrap()).collect()
}

#[test]
fn the_corpus() {
    for (target, inputs) in TARGETS.iter().zip(&*CORPUS) {
        let name = target.name;
        assert!(inputs.len() > 10, "{name}");
        for input in inputs {
            let held = peak(|| (target.read)(input));
            let allowed = allowed(input.len()) + target.buffers;
            assert!(held <= allowed, "{name}: {held} bytes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]
    /// Inputs of the corpus with bytes changed, cut out and doubled.
    #[test]
    fn the_corpus_damaged(
        which in 0..TARGETS.len(),
        pick: Index,
        edits in proptest::collection::vec((any::<Index>(), any::<u8>()), 0..6),
        cut: (Index, Index, bool),
    ) {
        let target = &TARGETS[which];
        let inputs = &CORPUS[which];
        let mut input = inputs[pick.index(inputs.len())].clone();
        if input.is_empty() {
            return Ok(());
        }
        for (at, value) in edits {
            let at = at.index(input.len());
            input[at] = value;
        }
        let (from, to) = (cut.0.index(input.len()), cut.1.index(input.len()));
        if from < to && cut.2 {
            input.drain(from..to);
        } else if from < to {
            let part = input[from..to].to_vec();
            input.splice(from..from, part);
        }
        let held = peak(|| (target.read)(&input));
        let allowed = allowed(input.len()) + target.buffers;
        prop_assert!(held <= allowed, "{}: {} bytes", target.name, held);
    }
}

/// An object of 96 MiB, all of it device code, inflated as it is read.
#[test]
fn a_large_object_is_never_held() {
    let entry = {
        let mut entry = vec![0; 64];
        entry[..8].copy_from_slice(&[2, 0, 1, 1, 64, 0, 0, 0]);
        entry[8..16].copy_from_slice(&(1u64 << 20).to_le_bytes());
        entry[28] = 90;
        entry.resize(64 + (1 << 20), 0);
        entry
    };
    let mut code = b"\x50\xed\x55\xba\x01\x00\x10\x00".to_vec();
    code.extend((96 * entry.len() as u64).to_le_bytes());
    for _ in 0..96 {
        code.extend(&entry);
    }
    let object = with_section(&code);
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&object).unwrap();
    let compressed = encoder.finish().unwrap();
    let mut crc = flate2::Crc::new();
    crc.update(&object);

    let mut source = Inflate::new(&compressed[..], object.len() as u64, crc.sum());
    let held = peak(|| {
        let read = Object::read("large.so", &mut source, &fatbin::SECTIONS).unwrap();
        let entries = fatbin::entries(&read, &mut source).map(Result::unwrap);
        assert_eq!(entries.count(), 96);
    });
    assert!(held < 8 << 20, "{held} bytes");
}

/// A relocatable object with nothing but a `.nv_fatbin` and the table that names it.
fn with_section(code: &[u8]) -> Vec<u8> {
    let names = b"\0.nv_fatbin\0";
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\x3e\0\x01\0\0\0".to_vec();
    out.resize(64, 0);
    out.extend(code);
    let names_at = out.len() as u64;
    out.extend(names);
    let table = out.len() as u64;
    let sections = [
        [0; 4],
        [1, 1, 64, code.len() as u64],
        [0, 3, names_at, names.len() as u64],
    ];
    for [name, kind, offset, size] in sections {
        let mut header = [0; 64];
        header[..4].copy_from_slice(&(name as u32).to_le_bytes());
        header[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
        header[24..32].copy_from_slice(&offset.to_le_bytes());
        header[32..40].copy_from_slice(&size.to_le_bytes());
        out.extend(header);
    }
    out[0x28..0x30].copy_from_slice(&table.to_le_bytes());
    out[0x3a..0x40].copy_from_slice(&[64, 0, 3, 0, 2, 0]);
    out
}
