//! A header block: 512 bytes whose fields have fixed positions (POSIX.1-2017, pax, "ustar Interchange
//! Format"; GNU tar's manual, "Basic Tar Format").

use super::error::Problem;
use super::header::{Header, MemberKind};
use super::name;
use super::pax::Records;

/// The headers before a member's own header.
#[derive(Default)]
pub(super) struct Ahead {
    pub name: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub records: Option<Records>,
}

impl Ahead {
    pub(super) fn is_empty(&self) -> bool {
        self.name.is_none() && self.link.is_none() && self.records.is_none()
    }
}

pub(super) const BLOCK: u64 = 512;

pub(super) struct Block(pub [u8; BLOCK as usize]);

pub(super) enum Flag {
    Member(MemberKind),
    LongName,
    LongLink,
    Records,
    Global,
}

impl Block {
    pub(super) fn is_zero(&self) -> bool {
        self.0.iter().all(|b| *b == 0)
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        let expected = number(&self.0[148..156], "checksum").map_err(|_| Problem::Checksum)?;
        let (mut unsigned, mut signed) = (0, 0);
        for (at, b) in self.0.iter().enumerate() {
            let b = if (148..156).contains(&at) { b' ' } else { *b };
            unsigned += i64::from(b);
            // Old programs added up signed characters.
            signed += i64::from(b.cast_signed());
        }
        if expected == unsigned || expected == signed {
            Ok(())
        } else {
            Err(Problem::Checksum)
        }
    }

    pub(super) fn flag(&self) -> Result<Flag, Problem> {
        let kind = match self.0[156] {
            // Before ustar, a directory was a file whose name ends with a slash.
            0 if until_zero(&self.0[..100]).ends_with(b"/") => MemberKind::Directory,
            0 | b'0' | b'7' => MemberKind::File,
            b'1' => MemberKind::HardLink,
            b'2' => MemberKind::SymLink,
            b'3' => MemberKind::Character,
            b'4' => MemberKind::Block,
            b'5' => MemberKind::Directory,
            b'6' => MemberKind::Fifo,
            b'L' => return Ok(Flag::LongName),
            b'K' => return Ok(Flag::LongLink),
            b'x' => return Ok(Flag::Records),
            b'g' => return Ok(Flag::Global),
            b'S' => return Err(Problem::Sparse),
            b'M' => return Err(Problem::Volumes),
            other => return Err(Problem::Type(other)),
        };
        Ok(Flag::Member(kind))
    }

    pub(super) fn size(&self) -> Result<u64, Problem> {
        natural(&self.0[124..136], "size")
    }

    /// Returns the member's header, combined with the headers before it.
    pub(super) fn header(
        &self,
        kind: MemberKind,
        ahead: Ahead,
        global: &Records,
    ) -> Result<Header, Problem> {
        let records = ahead.records.unwrap_or_default().over(global);
        let one = |long: Option<Vec<u8>>, record: Option<Vec<u8>>, what| match (long, record) {
            (Some(_), Some(_)) => Err(Problem::Twice(what)),
            (long, record) => Ok(long.or(record)),
        };
        let path = one(ahead.name, records.path, "path")?.unwrap_or_else(|| self.name());
        let path = name::path(&path, "path")?;
        if path.is_empty() && kind != MemberKind::Directory {
            return Err(Problem::Name {
                what: "path",
                found: String::new(),
                why: "is empty",
            });
        }
        let link = one(ahead.link, records.link, "link target")?
            .unwrap_or_else(|| until_zero(&self.0[157..257]).to_vec());
        let size = match records.size {
            Some(size) => size,
            None => self.size()?,
        };
        let or = |record: Option<u64>, at: std::ops::Range<usize>, what| match record {
            Some(value) => Ok(value),
            None => natural(&self.0[at], what),
        };
        Ok(Header {
            path,
            kind,
            size: match kind {
                MemberKind::File => size,
                // GNU tar, Go and Python agree that no content follows, whatever the size says.
                MemberKind::HardLink => 0,
                _ if size == 0 => 0,
                _ => return Err(Problem::Content(kind)),
            },
            mode: (natural(&self.0[100..108], "mode")? & 0o7777) as u32,
            uid: or(records.uid, 108..116, "uid")?,
            gid: or(records.gid, 116..124, "gid")?,
            mtime: match records.mtime {
                Some(mtime) => mtime,
                None => number(&self.0[136..148], "mtime")?,
            },
            link: match kind {
                MemberKind::HardLink | MemberKind::SymLink if link.is_empty() => {
                    return Err(Problem::NoLink);
                }
                MemberKind::HardLink => match name::path(&link, "link target")? {
                    root if root.is_empty() => return Err(Problem::NoLink),
                    path => Some(path),
                },
                MemberKind::SymLink if link.contains(&0) => {
                    return Err(Problem::Name {
                        what: "link target",
                        found: name::text(&link).escape_debug().take(200).collect(),
                        why: "holds a zero byte",
                    });
                }
                MemberKind::SymLink => Some(name::text(&link)),
                _ => None,
            },
            xattrs: records.xattrs.into_iter().collect(),
            device: match kind {
                MemberKind::Character | MemberKind::Block => Some((
                    device(&self.0[329..337], "major number")?,
                    device(&self.0[337..345], "minor number")?,
                )),
                _ => None,
            },
        })
    }

    fn name(&self) -> Vec<u8> {
        let name = until_zero(&self.0[..100]);
        // GNU tar's magic is `ustar  `. It stores times in the place of POSIX's prefix.
        let prefix = match &self.0[257..263] {
            b"ustar\0" => until_zero(&self.0[345..500]),
            _ => &[],
        };
        if prefix.is_empty() {
            name.to_vec()
        } else {
            [prefix, b"/", name].concat()
        }
    }
}

fn until_zero(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    &field[..end]
}

fn natural(field: &[u8], what: &'static str) -> Result<u64, Problem> {
    u64::try_from(number(field, what)?).map_err(|_| Problem::Number(what))
}

fn device(field: &[u8], what: &'static str) -> Result<u32, Problem> {
    u32::try_from(number(field, what)?).map_err(|_| Problem::Number(what))
}

/// Parses octal digits, or GNU's big-endian two's complement if the first bit is set.
fn number(field: &[u8], what: &'static str) -> Result<i64, Problem> {
    if field[0] & 0x80 != 0 {
        // The first byte has the mark, the sign and six bits.
        let mut value = i128::from(field[0] & 0x3f) - i128::from(field[0] & 0x40);
        for b in &field[1..] {
            value = value << 8 | i128::from(*b);
        }
        return i64::try_from(value).map_err(|_| Problem::Number(what));
    }
    let blank = |b: &u8| *b == b' ' || *b == 0;
    let start = field.iter().position(|b| !blank(b)).unwrap_or(field.len());
    let digits = &field[start..];
    let end = digits.iter().position(blank).unwrap_or(digits.len());
    if !digits[end..].iter().all(blank) {
        return Err(Problem::Number(what));
    }
    digits[..end].iter().try_fold(0i64, |value, b| match b {
        // There are at most twelve digits, so 36 bits.
        b'0'..=b'7' => Ok(value << 3 | i64::from(b - b'0')),
        _ => Err(Problem::Number(what)),
    })
}
