//! Records of an extended header: `LENGTH KEY=VALUE\n`. The length is decimal and counts the whole
//! record.

use std::collections::BTreeMap;

use super::error::Problem;

/// Limit on one extended header, in bytes: enough for Linux's largest extended attribute (64 KiB) and
/// more.
pub const MOST_PAX: u64 = 128 << 10;
/// Limit on all global headers of a stream, in bytes, because each member gets a copy. Those of
/// `git archive` have 52.
pub const MOST_GLOBAL: u64 = 4 << 10;
const MOST_XATTRS: usize = 1024;

/// The fields of a member that come from records. A later record replaces an earlier one.
#[derive(Debug, Default, Clone)]
pub(super) struct Records {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    pub mtime: Option<i64>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Bytes of all headers that were read into this. There may be many global headers.
    held: u64,
}

impl Records {
    /// Reads records, and fails if more than `most` bytes in total are read into these.
    pub(super) fn read(&mut self, mut data: &[u8], most: u64) -> Result<(), Problem> {
        let size = self.held + data.len() as u64;
        if size > most {
            return Err(Problem::Long { size, most });
        }
        self.held = size;
        while !data.is_empty() {
            let record = record(data)?;
            self.set(record.key, record.value)?;
            data = record.rest;
        }
        Ok(())
    }

    /// Sets a field. An empty value removes it.
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Problem> {
        let name = || (!value.is_empty()).then(|| value.to_vec());
        let number = |what| match value {
            [] => Ok(None),
            digits => decimal(digits).map(Some).ok_or(Problem::Number(what)),
        };
        match key {
            b"path" => self.path = name(),
            b"linkpath" => self.link = name(),
            b"size" => self.size = number("size")?,
            b"uid" => self.uid = number("uid")?,
            b"gid" => self.gid = number("gid")?,
            b"mtime" if value.is_empty() => self.mtime = None,
            b"mtime" => self.mtime = Some(seconds(value).ok_or(Problem::Number("mtime"))?),
            _ if key.starts_with(b"GNU.sparse.") => return Err(Problem::Sparse),
            _ => {
                if let Some(xattr) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattrs.insert(super::name::text(xattr), value.to_vec());
                    if self.xattrs.len() > MOST_XATTRS {
                        return Err(Problem::Pax("it has more than 1024 extended attributes"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Combines these records with the global ones, which they override.
    pub(super) fn over(self, global: &Self) -> Self {
        let mut xattrs = global.xattrs.clone();
        xattrs.extend(self.xattrs);
        Self {
            path: self.path.or_else(|| global.path.clone()),
            link: self.link.or_else(|| global.link.clone()),
            size: self.size.or(global.size),
            uid: self.uid.or(global.uid),
            gid: self.gid.or(global.gid),
            mtime: self.mtime.or(global.mtime),
            xattrs,
            held: 0,
        }
    }
}

struct Record<'a> {
    key: &'a [u8],
    value: &'a [u8],
    /// The data after the record.
    rest: &'a [u8],
}

fn record(data: &[u8]) -> Result<Record<'_>, Problem> {
    let damaged = || Problem::Pax("a record's length is wrong");
    let space = data.iter().take(8).position(|b| *b == b' ');
    let space = space.ok_or_else(damaged)?;
    let length = decimal(&data[..space]).ok_or_else(damaged)? as usize;
    if length <= space || length > data.len() {
        return Err(damaged());
    }
    let (record, rest) = data.split_at(length);
    let [body @ .., b'\n'] = &record[space + 1..] else {
        return Err(damaged());
    };
    let equals = body.iter().position(|b| *b == b'=');
    match equals {
        Some(equals) if equals > 0 && !body[..equals].contains(&0) => Ok(Record {
            key: &body[..equals],
            value: &body[equals + 1..],
            rest,
        }),
        _ => Err(Problem::Pax("a record has no key")),
    }
}

/// Parses a decimal number, which must not exceed the largest size of a file.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let text = std::str::from_utf8(digits).ok()?;
    Some(text.parse::<i64>().ok()?.cast_unsigned())
}

/// Parses seconds with a fraction, such as `-1.5`, rounded down.
fn seconds(text: &[u8]) -> Option<i64> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let point = text.iter().position(|b| *b == b'.').unwrap_or(text.len());
    let whole = decimal(&text[..point])?.cast_signed();
    let fraction = text.get(point + 1..).unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let part = fraction.iter().any(|b| *b != b'0');
    Some(if negative {
        -whole - i64::from(part)
    } else {
        whole
    })
}
