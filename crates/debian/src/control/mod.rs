//! Control stanzas (Debian Policy 5.1).
//!
//! Stanzas are read one at a time from a stream into one buffer, so an index of any length needs only
//! the memory of its longest stanza. A stanza of more than [`MAX_STANZA`] bytes, a field that occurs
//! twice, and a line that is not a field are errors.

use std::io::BufRead;

/// Longest stanza that is read, in bytes. The longest in the archive of 2026 is below 200 KiB.
pub const MAX_STANZA: usize = 4 << 20;

/// Why control data cannot be read. Lines are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The input cannot be read or decompressed.
    #[error("reading control data")]
    Read(#[from] std::io::Error),
    /// A stanza is longer than [`MAX_STANZA`].
    #[error("stanza ending at line {line} is longer than {MAX_STANZA} bytes")]
    TooLong {
        /// The line at which the bound was exceeded.
        line: usize,
    },
    /// A line has no colon and does not continue another.
    #[error("line {line} is neither a field nor a continuation: `{text}`")]
    Malformed {
        /// Number of the line.
        line: usize,
        /// The start of the line.
        text: String,
    },
    /// A line is not UTF-8.
    #[error("line {line} is not UTF-8")]
    NotText {
        /// Number of the line.
        line: usize,
    },
    /// A stanza has a field twice. Readers would differ in which one they take.
    #[error("line {line}: field `{field}` occurs twice in one stanza")]
    Duplicate {
        /// Number of the line.
        line: usize,
        /// The field's name.
        field: String,
    },
}

/// One stanza, borrowed from the reader's buffer.
#[derive(Debug)]
pub struct Stanza<'a> {
    text: &'a str,
    fields: &'a [Field],
}

/// Byte ranges of a field's name and value in the text.
#[derive(Debug, Clone, Copy)]
struct Field {
    name: (usize, usize),
    value: (usize, usize),
}

impl<'a> Stanza<'a> {
    /// Returns a field's value, with continuation lines, without surrounding white space.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// Iterates over names and values in the order of the file. A value keeps its line breaks.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        self.fields.iter().map(|field| {
            (
                &self.text[field.name.0..field.name.1],
                &self.text[field.value.0..field.value.1],
            )
        })
    }

    /// Returns the stanza as it was written, each line with its newline.
    pub fn text(&self) -> &'a str {
        self.text
    }
}

/// Reads stanzas separated by blank lines.
pub struct StanzaReader<R> {
    input: R,
    buffer: Vec<u8>,
    fields: Vec<Field>,
    line: usize,
}

impl<R: BufRead> StanzaReader<R> {
    /// Creates a reader whose input starts at line 1.
    pub fn new(input: R) -> Self {
        StanzaReader {
            input,
            buffer: Vec::new(),
            fields: Vec::new(),
            line: 0,
        }
    }

    /// Returns the next stanza. `None` at the end of the input.
    ///
    /// # Errors
    /// If the stanza is malformed or exceeds a bound, or the input cannot be read.
    pub fn next_stanza(&mut self) -> Result<Option<Stanza<'_>>, ControlError> {
        self.buffer.clear();
        self.fields.clear();
        let first_line = self.line + 1;
        loop {
            let start = self.buffer.len();
            let room = (MAX_STANZA + 1 - start) as u64;
            let read =
                std::io::Read::take(&mut self.input, room).read_until(b'\n', &mut self.buffer)?;
            if self.buffer.len() > MAX_STANZA {
                return Err(ControlError::TooLong {
                    line: self.line + 1,
                });
            }
            if read == 0 {
                break;
            }
            self.line += 1;
            if self.buffer[start..].trim_ascii().is_empty() {
                self.buffer.truncate(start);
                if start == 0 {
                    continue;
                }
                break;
            }
        }
        if self.buffer.is_empty() {
            return Ok(None);
        }
        if self.buffer.last() != Some(&b'\n') {
            self.buffer.push(b'\n');
        }
        let text = std::str::from_utf8(&self.buffer).map_err(|error| ControlError::NotText {
            line: first_line + newlines(&self.buffer[..error.valid_up_to()]),
        })?;
        index_fields(text, first_line, &mut self.fields)?;
        Ok(Some(Stanza {
            text,
            fields: &self.fields,
        }))
    }
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

fn index_fields(
    text: &str,
    first_line: usize,
    fields: &mut Vec<Field>,
) -> Result<(), ControlError> {
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let here = start;
        start += line.len();
        let malformed = || ControlError::Malformed {
            line: first_line + number,
            text: line
                .trim_end()
                .chars()
                .take(80)
                .flat_map(char::escape_debug)
                .collect(),
        };
        if line.starts_with([' ', '\t']) {
            let field = fields.last_mut().ok_or_else(malformed)?;
            field.value.1 = here + line.trim_end().len();
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let colon = line.find(':').ok_or_else(malformed)?;
        let name = &line[..colon];
        if name.is_empty() || name.starts_with('-') || !name.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(malformed());
        }
        if fields
            .iter()
            .any(|field| text[field.name.0..field.name.1].eq_ignore_ascii_case(name))
        {
            return Err(ControlError::Duplicate {
                line: first_line + number,
                field: name.to_owned(),
            });
        }
        let value = line[colon + 1..].trim_end();
        let skipped = value.len() - value.trim_start().len();
        let begin = here + colon + 1 + skipped;
        fields.push(Field {
            name: (here, here + colon),
            value: (begin, here + colon + 1 + value.len()),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
