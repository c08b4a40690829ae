//! Headers of tar members: POSIX ustar, and a pax header where ustar's fields are too short.
//!
//! In: a name, a mode, a time, a size. Out: blocks of 512 bytes. Owner and group are root, by
//! number only, so that no reader looks up a name.
//!
//! [`stackforge_binary::tar::Writer`] cannot write these layers: their contents are copied in the
//! compressed form that they have in a wheel, so headers and padding are needed as bytes of their own.
//! Their headers also differ from that writer's, which has no pax headers and fills fewer fields. The
//! digests of all layers made so far depend on both.

const BLOCK: u64 = 512;
const NAME: usize = 100;
const PREFIX: usize = 155;
/// Largest size that eleven octal digits hold.
const MAX_SIZE: u64 = (1 << 33) - 1;

/// The end of a tar: two blocks of zeros.
pub(super) const END: [u8; 1024] = [0; 1024];

#[derive(Debug, Clone, Copy)]
pub(super) enum HeaderKind {
    File(u64),
    Folder,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    pub mode: u32,
    /// Modification time in seconds since 1970.
    pub mtime: u32,
}

/// Zeros between the end of a content and the next block.
pub(super) fn padding(size: u64) -> &'static [u8] {
    let used = (size % BLOCK) as usize;
    &END[..if used == 0 { 0 } else { BLOCK as usize - used }]
}

/// Appends a member's header. `name` is relative; a directory's ends in `/`.
pub(super) fn header(out: &mut Vec<u8>, name: &str, kind: HeaderKind, attributes: Attributes) {
    let (flag, size) = match kind {
        HeaderKind::File(size) => (b'0', size),
        HeaderKind::Folder => (b'5', 0),
    };
    let split = split(name);
    let mut records = Vec::new();
    if split.is_none() {
        record(&mut records, "path", name);
    }
    if size > MAX_SIZE {
        record(&mut records, "size", &size.to_string());
    }
    if !records.is_empty() {
        let len = records.len() as u64;
        let plain = Attributes {
            mode: 0o644,
            ..attributes
        };
        block(out, ("", "PaxHeader"), b'x', len, plain);
        out.extend_from_slice(&records);
        out.extend_from_slice(padding(len));
    }
    let short = split.unwrap_or_else(|| ("", ascii_tail(name)));
    let stated = if size > MAX_SIZE { 0 } else { size };
    block(out, short, flag, stated, attributes);
}

/// Splits `name` into ustar's `prefix` and `name` fields. `None` if it does not fit.
fn split(name: &str) -> Option<(&str, &str)> {
    if !name.is_ascii() {
        return None;
    }
    if name.len() <= NAME {
        return Some(("", name));
    }
    // A directory's final `/` is not a place to split.
    let inner = &name[..name.len() - 1];
    inner
        .match_indices('/')
        .map(|(at, _)| (&name[..at], &name[at + 1..]))
        .find(|(prefix, rest)| rest.len() <= NAME && prefix.len() <= PREFIX && !prefix.is_empty())
}

/// An ASCII name for readers that do not know pax headers.
fn ascii_tail(name: &str) -> &str {
    let from = name.len().saturating_sub(NAME);
    let tail = &name.as_bytes()[from..];
    let start = tail
        .iter()
        .rposition(|b| !b.is_ascii())
        .map_or(0, |at| at + 1);
    // Everything after the last byte that is not ASCII is ASCII.
    let tail = std::str::from_utf8(&tail[start..]).unwrap_or_default();
    if tail.is_empty() { "long-name" } else { tail }
}

/// `LEN KEY=VALUE\n`, where LEN counts itself.
fn record(out: &mut Vec<u8>, key: &str, value: &str) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    out.extend_from_slice(format!("{len} {key}={value}\n").as_bytes());
}

fn block(out: &mut Vec<u8>, name: (&str, &str), flag: u8, size: u64, attributes: Attributes) {
    let mut block = [0; BLOCK as usize];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.1.as_bytes());
    put(100, format!("{:07o}", attributes.mode & 0o7777).as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{:011o}", attributes.mtime).as_bytes());
    put(148, b"        ");
    put(156, &[flag]);
    put(257, b"ustar\x0000");
    put(329, b"0000000");
    put(337, b"0000000");
    put(345, name.0.as_bytes());
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    out.extend_from_slice(&block);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read as _;

    fn read(name: &str, kind: HeaderKind, content: &[u8]) -> (String, u64, u32, Vec<u8>) {
        let mut tar = Vec::new();
        let attributes = Attributes {
            mode: 0o755,
            mtime: 1_700_000_000,
        };
        header(&mut tar, name, kind, attributes);
        tar.extend_from_slice(content);
        tar.extend_from_slice(padding(content.len() as u64));
        tar.extend_from_slice(&END);
        let mut archive = tar::Archive::new(&tar[..]);
        let mut entries = archive.entries().unwrap();
        let mut entry = entries.next().unwrap().unwrap();
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut found = Vec::new();
        let size = entry.size();
        entry.read_to_end(&mut found).unwrap();
        let mode = entry.header().mode().unwrap();
        assert_eq!(entry.header().mtime().unwrap(), 1_700_000_000);
        drop(entry);
        assert!(entries.next().is_none());
        (name, size, mode, found)
    }

    #[test]
    fn a_size_beyond_eight_gigabytes_has_a_record() {
        let mut tar = Vec::new();
        let attributes = Attributes {
            mode: 0o644,
            mtime: 0,
        };
        header(&mut tar, "big", HeaderKind::File(MAX_SIZE + 1), attributes);
        let mut archive = tar::Archive::new(&tar[..]);
        let entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.size(), MAX_SIZE + 1);
    }

    #[test]
    fn folders_of_any_length_end_in_a_slash() {
        for len in [1, 90, 98, 99, 100, 101, 154, 155, 156, 300] {
            for name in [
                format!("{}/", "d".repeat(len)),
                format!("a/{}/", "d".repeat(len)),
            ] {
                assert_eq!(read(&name, HeaderKind::Folder, b"").0, name);
            }
        }
    }

    proptest! {
        #[test]
        fn names_come_back(name in "[a-zé]{1,120}(/[a-z.日]{1,120}){0,4}", size in 0usize..1500) {
            let content = vec![7; size];
            let (found, len, mode, bytes) = read(&name, HeaderKind::File(size as u64), &content);
            prop_assert_eq!(found, name);
            prop_assert_eq!((len, mode), (size as u64, 0o755));
            prop_assert_eq!(bytes, content);
        }
    }
}
