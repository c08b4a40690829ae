//! Control stanzas (Debian Policy 5.1).
//!
//! Stanzas are read one at a time from a stream into one buffer, so an index of any length costs
//! the memory of its longest stanza. Bounded: a stanza of more than [`MAX_STANZA`] bytes, a field
//! that occurs twice or a line that is no field is an error.

use std::io::BufRead;

/// The longest stanza in the archive of 2026 is below 200 KiB.
pub const MAX_STANZA: usize = 4 << 20;

/// Why control data cannot be read. Lines are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The input failed, or does not decompress.
    #[error("reading control data")]
    Read(#[from] std::io::Error),
    /// A stanza exceeds the bound.
    #[error("stanza ending at line {line} is longer than {MAX_STANZA} bytes")]
    TooLong {
        /// Where it was given up.
        line: usize,
    },
    /// A line has no colon and does not continue another.
    #[error("line {line} is neither a field nor a continuation: `{text}`")]
    Malformed {
        /// Which line.
        line: usize,
        /// Its start.
        text: String,
    },
    /// A line is not UTF-8.
    #[error("line {line} is not UTF-8")]
    NotText {
        /// Which line.
        line: usize,
    },
    /// Readers would take one or the other.
    #[error("line {line}: field `{field}` occurs twice in one stanza")]
    Duplicate {
        /// Which line.
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

/// Where a field's name and value stand in the text.
#[derive(Debug, Clone, Copy)]
struct Field {
    name: (usize, usize),
    value: (usize, usize),
}

impl<'a> Stanza<'a> {
    /// The value as it stands, continuation lines included, without surrounding white space.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// Names and values in the order of the file. A value keeps its line ends.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        self.fields.iter().map(|field| {
            (
                &self.text[field.name.0..field.name.1],
                &self.text[field.value.0..field.value.1],
            )
        })
    }

    /// The stanza as it was written, each line with its newline.
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
    /// Reads control data from its first line.
    pub fn new(input: R) -> Self {
        StanzaReader {
            input,
            buffer: Vec::new(),
            fields: Vec::new(),
            line: 0,
        }
    }

    /// The next stanza, until the end of the input.
    ///
    /// # Errors
    /// At the first stanza that is damaged or exceeds a bound, and if the input fails.
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
