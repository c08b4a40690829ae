//! Parses marshalled code into objects.
//!
//! In: the bytes of a file. Out: [`Objects`], a table in which each object stands after its parts, and equal objects
//! are one. Bytes that are not other objects are kept as ranges of the file.

use super::error::{Problem, PycError};
use super::object::{FLAG_REF, Id, Object, Objects, REF};
use super::{DEEPEST, Format, MOST_OBJECTS, write};
use std::collections::HashMap;
use std::ops::Range;

const FROZEN_SET: u8 = b'>';
const CODE: u8 = b'c';
const TUPLE: u8 = b'(';
const SMALL_TUPLE: u8 = b')';
const SLICE: u8 = b':';

/// A code object's field.
#[derive(Clone, Copy)]
enum Field {
    Bytes,
    Text,
    Tuple,
}

use Field::{Bytes, Text, Tuple};

/// Code, constants, names, variables, free variables, cells, file, name; and the line table.
const FIELDS: [Field; 9] = [Bytes, Tuple, Tuple, Tuple, Tuple, Tuple, Text, Text, Bytes];
/// Code, constants, names, variables, their kinds, file, name, qualified name; line and exception tables.
const MERGED_FIELDS: [Field; 10] = [
    Bytes, Tuple, Tuple, Tuple, Bytes, Text, Text, Text, Bytes, Bytes,
];
/// Number of fields before the first line.
const BEFORE_LINE: usize = 8;

struct Reader<'a> {
    file: &'a [u8],
    at: usize,
    format: Format,
    objects: Objects,
    /// Objects by their reference number; `None` while they are read.
    numbered: Vec<Option<Id>>,
    /// Objects by their type, bytes and parts.
    known: HashMap<Vec<u8>, Id>,
    sorting: write::Budget,
}

/// Reads the code object at `at`, with which the file ends.
pub(super) fn read(file: &[u8], at: usize, format: Format) -> Result<Objects, PycError> {
    let mut reader = Reader {
        file,
        at,
        format,
        objects: Objects {
            all: Vec::new(),
            parts: Vec::new(),
        },
        numbered: Vec::new(),
        known: HashMap::new(),
        sorting: write::Budget::default(),
    };
    let code = reader.object(0)?;
    reader.is(code, at, |kind| kind == CODE)?;
    if reader.at < file.len() {
        return Err(reader.fault(reader.at, Problem::Rest));
    }
    Ok(reader.objects)
}

impl Reader<'_> {
    fn fault(&self, offset: usize, problem: Problem) -> PycError {
        PycError { offset, problem }
    }

    fn take(&mut self, len: usize) -> Result<Range<u32>, PycError> {
        let start = self.at;
        let end = start.checked_add(len).filter(|end| *end <= self.file.len());
        let end = end.ok_or_else(|| self.fault(start, Problem::Short))?;
        self.at = end;
        // MOST_BYTES is less than u32::MAX.
        Ok(start as u32..end as u32)
    }

    fn byte(&mut self) -> Result<u8, PycError> {
        let at = self.take(1)?.start;
        Ok(self.file[at as usize])
    }

    fn number(&mut self) -> Result<i32, PycError> {
        let at = self.take(4)?.start as usize;
        let bytes = &self.file[at..at + 4];
        Ok(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn length(&mut self) -> Result<usize, PycError> {
        let at = self.at;
        let number = self.number()?;
        let wrong = |_| self.fault(at, Problem::Number(number.into()));
        usize::try_from(number).map_err(wrong)
    }

    fn object(&mut self, depth: u32) -> Result<Id, PycError> {
        let start = self.at;
        if depth > DEEPEST {
            return Err(self.fault(start, Problem::Deep));
        }
        let byte = self.byte()?;
        let (kind, is_numbered) = (byte & !FLAG_REF, byte & FLAG_REF != 0);
        if kind == REF && !is_numbered {
            return self.reference();
        }
        // A part may refer to what stands before it, so numbers are given in the order of the types.
        let number = self.numbered.len();
        let is_singleton = matches!(kind, b'N' | b'T' | b'F' | b'.');
        if is_numbered {
            if is_singleton || number == MOST_OBJECTS {
                return Err(self.fault(start, Problem::Type(byte)));
            }
            self.numbered.push(None);
        }
        let object = self.content(kind, depth)?;
        if object.height > DEEPEST {
            return Err(self.fault(start, Problem::Deep));
        }
        let id = self.one(object);
        let id = id.ok_or_else(|| self.fault(start, Problem::Many))?;
        if is_numbered {
            self.numbered[number] = Some(id);
        }
        Ok(id)
    }

    /// Adds an object, whose parts were added last, unless there is an equal one. Which equal objects the compiler
    /// makes one depends on what else its process has interned. `None` if there are too many.
    fn one(&mut self, object: Object) -> Option<Id> {
        let mut key = vec![object.kind];
        for bytes in [&object.head, &object.tail] {
            key.extend_from_slice(&self.file[bytes.start as usize..bytes.end as usize]);
        }
        let parts = self.objects.parts(&object).iter();
        key.extend(parts.flat_map(|id| id.to_le_bytes()));
        if let Some(id) = self.known.get(&key) {
            self.objects.parts.truncate(object.parts.start as usize);
            self.objects.all[*id as usize].interned |= object.interned;
            return Some(*id);
        }
        let id = Id::try_from(self.objects.all.len()).ok()?;
        if self.objects.all.len() == MOST_OBJECTS {
            return None;
        }
        self.objects.all.push(object);
        self.known.insert(key, id);
        Some(id)
    }

    fn reference(&mut self) -> Result<Id, PycError> {
        let at = self.at;
        let number = self.number()? as u32;
        let found = self.numbered.get(number as usize).copied().flatten();
        found.ok_or_else(|| self.fault(at, Problem::Reference(number)))
    }

    fn content(&mut self, kind: u8, depth: u32) -> Result<Object, PycError> {
        let start = self.at;
        let parts = self.objects.parts.len() as u32;
        let value = |head| Object {
            kind,
            interned: false,
            head,
            parts: parts..parts,
            before: 0,
            tail: 0..0,
            height: 0,
        };
        let text = |object: Object| Object {
            kind: match kind {
                b't' => b'u',
                b'A' => b'a',
                b'Z' => b'z',
                _ => kind,
            },
            interned: b"tAZ".contains(&kind),
            ..object
        };
        let after_length = |reader: &mut Self, length: usize| {
            reader.take(length)?;
            // `at` is within the file, whose size fits.
            Ok(value(start as u32..reader.at as u32))
        };
        match kind {
            b'N' | b'T' | b'F' | b'.' => Ok(value(self.take(0)?)),
            b'i' => Ok(value(self.take(4)?)),
            b'g' => Ok(value(self.take(8)?)),
            b'y' => Ok(value(self.take(16)?)),
            b'l' => {
                self.integer()?;
                Ok(value(start as u32..self.at as u32))
            }
            b's' | b'u' | b't' | b'a' | b'A' => {
                let length = self.length()?;
                after_length(self, length).map(text)
            }
            b'z' | b'Z' => {
                let length = self.byte()?.into();
                after_length(self, length).map(text)
            }
            SMALL_TUPLE => {
                let count = self.byte()?.into();
                self.several(value(start as u32..self.at as u32), count, depth)
            }
            TUPLE | FROZEN_SET => {
                let count = self.length()?;
                let made = self.several(value(start as u32..self.at as u32), count, depth)?;
                if kind == FROZEN_SET {
                    write::sort(self.file, &mut self.objects, &made, &mut self.sorting)
                        .map_err(|_| self.fault(start, Problem::Many))?;
                }
                Ok(made)
            }
            SLICE if self.format.slices => {
                self.several(value(start as u32..start as u32), 3, depth)
            }
            CODE => self.code(depth),
            _ => Err(self.fault(start - 1, Problem::Type(kind))),
        }
    }

    /// Checks an integer of digits of 15 bits: no other bytes mean the same number.
    fn integer(&mut self) -> Result<(), PycError> {
        let at = self.at;
        let count = self.number()?;
        let digits = self.take((count.unsigned_abs() as usize).saturating_mul(2))?;
        let digits = &self.file[digits.start as usize..digits.end as usize];
        let values = digits
            .chunks_exact(2)
            .map(|d| u16::from_le_bytes([d[0], d[1]]));
        let last = values.clone().next_back().unwrap_or(0);
        if last == 0 || values.clone().any(|d| d > 0x7fff) {
            return Err(self.fault(at, Problem::Number(count.into())));
        }
        Ok(())
    }

    /// Reads `count` parts of an object.
    fn several(&mut self, object: Object, count: usize, depth: u32) -> Result<Object, PycError> {
        // Each part has at least one byte.
        if count > self.file.len() - self.at {
            return Err(self.fault(self.at, Problem::Short));
        }
        let mut parts = Vec::new();
        for _ in 0..count {
            parts.push(self.object(depth + 1)?);
        }
        self.with_parts(object, &parts)
    }

    fn with_parts(&mut self, object: Object, parts: &[Id]) -> Result<Object, PycError> {
        let start = self.objects.parts.len();
        if start + parts.len() > 2 * MOST_OBJECTS {
            return Err(self.fault(self.at, Problem::Many));
        }
        self.objects.parts.extend_from_slice(parts);
        let height = |id: &Id| self.objects.all[*id as usize].height + 1;
        Ok(Object {
            height: parts.iter().map(height).max().unwrap_or(0),
            parts: start as u32..(start + parts.len()) as u32,
            before: parts.len() as u32,
            ..object
        })
    }

    fn code(&mut self, depth: u32) -> Result<Object, PycError> {
        let (numbers, fields): (usize, &[Field]) = if self.format.merged_locals {
            (5, &MERGED_FIELDS)
        } else {
            (6, &FIELDS)
        };
        let head = self.take(4 * numbers)?;
        let mut parts = Vec::with_capacity(fields.len());
        let mut tail = 0..0;
        for (place, field) in fields.iter().enumerate() {
            if place == BEFORE_LINE {
                tail = self.take(4)?;
            }
            let at = self.at;
            let part = self.object(depth + 1)?;
            self.is(part, at, |kind| match field {
                Field::Bytes => kind == b's',
                Field::Text => b"uaz".contains(&kind),
                Field::Tuple => matches!(kind, TUPLE | SMALL_TUPLE),
            })?;
            parts.push(part);
        }
        let object = Object {
            kind: CODE,
            interned: false,
            head,
            parts: 0..0,
            before: 0,
            tail: 0..0,
            height: 0,
        };
        Ok(Object {
            before: BEFORE_LINE as u32,
            tail,
            ..self.with_parts(object, &parts)?
        })
    }

    fn is(&self, object: Id, at: usize, fits: impl Fn(u8) -> bool) -> Result<(), PycError> {
        let kind = self.objects.all[object as usize].kind;
        if fits(kind) {
            Ok(())
        } else {
            Err(self.fault(at, Problem::Type(kind)))
        }
    }
}
