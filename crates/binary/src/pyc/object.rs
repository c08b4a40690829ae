//! The objects of a file, as they are read and written.

use std::ops::Range;

/// Bit of a type's byte: the object gets the next reference number.
pub(super) const FLAG_REF: u8 = 0x80;
pub(super) const REF: u8 = b'r';

/// Number of an object in [`Objects::all`].
pub(super) type Id = u32;

/// An object as it is written: its type, `head`, parts, `tail`, parts.
#[derive(Debug, Clone)]
pub(super) struct Object {
    /// Its type; of a text, that of one that is not interned.
    pub kind: u8,
    /// Whether it is a text that Python has once in a process.
    pub interned: bool,
    /// Bytes after the type: a value, or the number of parts, or a code object's numbers.
    pub head: Range<u32>,
    /// Range of its parts in [`Objects::parts`].
    pub parts: Range<u32>,
    /// Number of parts that stand before `tail`.
    pub before: u32,
    /// Bytes between two parts: a code object's first line.
    pub tail: Range<u32>,
    /// Levels of parts below it.
    pub height: u32,
}

/// The distinct objects of a file. The last one is its code object.
pub(super) struct Objects {
    pub all: Vec<Object>,
    pub parts: Vec<Id>,
}

impl Objects {
    pub(super) fn parts(&self, of: &Object) -> &[Id] {
        &self.parts[of.parts.start as usize..of.parts.end as usize]
    }
}
