//! Writes objects so that equal ones give equal bytes.

use super::error::{Problem, PycError};
use super::object::{FLAG_REF, Id, Object, Objects, REF};
use std::ops::Range;

/// Bytes of a reference. A value that has no more, with its type's byte, is written again each time.
const REFERENCE: usize = 5;

/// Bytes that may still be compared to sort the elements of sets.
pub(super) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(4 << 20)
    }
}

/// Sets of this file are too large, or share too much, to be sorted.
pub(super) struct Spent;

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), Spent> {
        self.0 = self.0.checked_sub(bytes).ok_or(Spent)?;
        Ok(())
    }
}

fn bytes<'f>(file: &'f [u8], range: &Range<u32>) -> &'f [u8] {
    &file[range.start as usize..range.end as usize]
}

/// Sorts the elements of a frozen set by their bytes. Sets in them are sorted already: they were read before.
pub(super) fn sort(
    file: &[u8],
    objects: &mut Objects,
    set: &Object,
    budget: &mut Budget,
) -> Result<(), Spent> {
    let elements = set.parts.start as usize..set.parts.end as usize;
    let mut keyed = Vec::with_capacity(elements.len());
    for id in &objects.parts[elements.clone()] {
        let mut key = Vec::new();
        expand(file, objects, *id, budget, &mut key)?;
        keyed.push((key, *id));
    }
    keyed.sort();
    for (place, (_, id)) in elements.zip(keyed) {
        objects.parts[place] = id;
    }
    Ok(())
}

/// Writes an object without references. Its depth is bounded, as every object's height is.
fn expand(
    file: &[u8],
    objects: &Objects,
    id: Id,
    budget: &mut Budget,
    out: &mut Vec<u8>,
) -> Result<(), Spent> {
    let object = &objects.all[id as usize];
    budget.take(1 + object.head.len() + object.tail.len())?;
    out.push(object.kind);
    out.extend_from_slice(bytes(file, &object.head));
    for (place, part) in objects.parts(object).iter().enumerate() {
        if place == object.before as usize {
            out.extend_from_slice(bytes(file, &object.tail));
        }
        expand(file, objects, *part, budget, out)?;
    }
    Ok(())
}

/// Writes `header` and the last object.
pub(super) fn written(header: &[u8], file: &[u8], objects: &Objects) -> Result<Vec<u8>, PycError> {
    let mut uses = vec![0u8; objects.all.len()];
    for part in &objects.parts {
        let count = &mut uses[*part as usize];
        *count = count.saturating_add(1);
    }
    let mut writer = Writer {
        file,
        objects,
        uses,
        numbers: vec![None; objects.all.len()],
        next: 0,
        out: header.to_vec(),
    };
    let code = objects.all.len().checked_sub(1);
    let none = PycError {
        offset: header.len(),
        problem: Problem::Short,
    };
    writer.object(code.ok_or(none)? as Id);
    Ok(writer.out)
}

struct Writer<'a> {
    file: &'a [u8],
    objects: &'a Objects,
    /// How often each object is a part of another, up to 255.
    uses: Vec<u8>,
    /// Reference numbers of written objects.
    numbers: Vec<Option<u32>>,
    next: u32,
    out: Vec<u8>,
}

/// Whether a text, which begins with its length, is one character up to U+00FF. Python has each of these once, and
/// whether it is interned depends on what else its process did.
fn is_character(text: &[u8]) -> bool {
    matches!(text, [1, _] | [2, 0, 0, 0, 0xc2 | 0xc3, _])
}

impl Writer<'_> {
    fn object(&mut self, id: Id) {
        let place = id as usize;
        if let Some(number) = self.numbers[place] {
            self.out.push(REF);
            self.out.extend_from_slice(&number.to_le_bytes());
            return;
        }
        let object = &self.objects.all[place];
        let head = bytes(self.file, &object.head);
        let is_short = object.parts.is_empty() && head.len() < REFERENCE;
        let is_shared = self.uses[place] > 1 && !is_short;
        if is_shared {
            self.numbers[place] = Some(self.next);
            self.next += 1;
        }
        let flag = if is_shared { FLAG_REF } else { 0 };
        let kind = match object.kind {
            b'z' if object.interned || is_character(head) => b'Z',
            b'u' if object.interned || is_character(head) => b't',
            b'a' if object.interned => b'A',
            kind => kind,
        };
        self.out.push(kind | flag);
        self.out.extend_from_slice(head);
        for (part, id) in self.objects.parts(object).iter().enumerate() {
            if part == object.before as usize {
                self.out.extend_from_slice(bytes(self.file, &object.tail));
            }
            self.object(*id);
        }
    }
}
