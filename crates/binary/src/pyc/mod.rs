//! Python's byte code files (`.pyc`): the same code as the same bytes.
//!
//! In: a hash-based `.pyc` (PEP 552) of CPython 3.9 to 3.14. Out: one that loads to equal code, whose bytes
//! depend on the code alone. What `marshal` writes depends on the process too: an object is marked as shared
//! (`FLAG_REF`) by its reference count, equal texts are one object or two by what was interned before, a frozen
//! set stands in the order of its hash table. Here equal objects are written once and referred to afterwards, an
//! object is marked if and only if the file refers to it again, the elements of frozen sets are sorted, and
//! texts of one character count as interned. All else stays byte for byte.
//!
//! That two equal constants become one changes nothing that Python promises: they are immutable, and the
//! compiler merges most of them itself. Whatever has to be interned, a code object interns when it is made.
//!
//! Strict: a type that the compiler does not write, a reference to an unfinished object, and bytes after the
//! object are errors. Recursion, number of objects and size are bounded.
//!
//! Sources: `Python/marshal.c` of CPython 3.9 to 3.14; `Lib/importlib/_bootstrap_external.py` (magic numbers,
//! header); PEP 552.

mod error;
mod object;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use error::{Problem, PycError};

/// Increased when the same code becomes other bytes.
pub const FORMAT: u32 = 1;
/// Bytes of the header: magic number, flags, hash of the source.
const HEADER: usize = 16;
/// Largest file that is read, in bytes. The largest of torch, vLLM and what they need has 1.6 MB.
pub const MOST_BYTES: usize = 32 << 20;
/// Most objects of a file.
const MOST_OBJECTS: usize = 2 << 20;
/// Deepest nesting of objects. The compiler refuses blocks that are nested 100 levels.
const DEEPEST: u32 = 256;

/// The code of this Python's byte code files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Format {
    magic: u16,
    /// Whether a code object has the fields of 3.11: merged local variables, a qualified name, exceptions.
    merged_locals: bool,
    /// Whether slices are constants.
    slices: bool,
}

const fn format(magic: u16, merged_locals: bool, slices: bool) -> Format {
    Format {
        magic,
        merged_locals,
        slices,
    }
}

/// The released magic numbers of CPython 3.9, 3.10, 3.11, 3.12, 3.13 and 3.14.
const FORMATS: [Format; 6] = [
    format(3425, false, false),
    format(3439, false, false),
    format(3495, true, false),
    format(3531, true, false),
    format(3571, true, false),
    format(3627, true, true),
];

/// Returns the file whose bytes depend on its code alone, with the same header.
///
/// # Errors
/// [`PycError`] if it is not a hash-based file of a known Python, or not one that its compiler writes.
pub fn normalized(pyc: &[u8]) -> Result<Vec<u8>, PycError> {
    let format = header(pyc)?;
    let objects = read::read(pyc, HEADER, format)?;
    write::written(&pyc[..HEADER], pyc, &objects)
}

/// Checks the header and returns the format of what follows.
fn header(pyc: &[u8]) -> Result<Format, PycError> {
    let fault = |offset: usize, problem| PycError { offset, problem };
    if pyc.len() > MOST_BYTES {
        return Err(fault(0, Problem::Large));
    }
    let (Some(head), Some(flags)) = (pyc.get(..4), pyc.get(4..8)) else {
        return Err(fault(pyc.len(), Problem::Short));
    };
    let magic = u16::from_le_bytes([head[0], head[1]]);
    let known = FORMATS.iter().find(|f| f.magic == magic);
    let format = known
        .filter(|_| head[2..] == *b"\r\n")
        .ok_or_else(|| fault(0, Problem::Magic))?;
    // 1: hash-based; 3: hash-based, and the source is checked at each import.
    if !matches!(flags, [1 | 3, 0, 0, 0]) {
        return Err(fault(4, Problem::Flags));
    }
    if pyc.len() < HEADER {
        return Err(fault(pyc.len(), Problem::Short));
    }
    Ok(*format)
}
