//! A tar read forward, with seeks, and its content against the bytes themselves; its members merged
//! as a layer's.

use std::io::{Cursor, Read as _};

use stackforge_binary::tar::{Header, MOST_NAME, MemberKind, Reader, TarError};
use stackforge_image::oci::Merge;

pub fn tar(bytes: &[u8]) {
    let read = walk(Reader::new(bytes), Some(bytes));
    let sought = walk(Reader::seeking(Cursor::new(bytes)), None);
    assert_eq!(read.0, sought.0);
    assert_eq!(read.1.is_ok(), sought.1.is_ok());
    merge(&read.0);
}

/// Members up to the first error, and whether there was one.
fn walk<R: std::io::Read>(
    mut reader: Reader<R>,
    bytes: Option<&[u8]>,
) -> (Vec<(Header, u64)>, Result<(), TarError>) {
    let mut members = Vec::new();
    loop {
        let mut entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => return (members, Ok(())),
            Err(error) => return (members, Err(error)),
        };
        let (header, start) = (entry.header.clone(), entry.start());
        check(&header);
        // Every other content is passed over.
        if let Some(bytes) = bytes.filter(|_| members.len() % 2 == 0) {
            let rest = &bytes[start as usize..];
            let mut content = Vec::new();
            let whole = entry.read_to_end(&mut content).is_ok();
            assert_eq!(whole, header.size <= rest.len() as u64);
            assert!(rest.starts_with(&content));
            assert!(!whole || content.len() as u64 == header.size);
        }
        members.push((header, start));
    }
}

fn check(header: &Header) {
    let path = &header.path;
    assert!(path.is_empty() || path.split('/').all(|p| !matches!(p, "" | "." | "..")));
    // A byte that is not text stands as four.
    assert!(path.len() as u64 <= 4 * MOST_NAME);
    assert!(!path.contains('\0') && (!path.is_empty() || header.kind == MemberKind::Directory));
    assert!(header.kind == MemberKind::File || header.size == 0);
    let linked = matches!(header.kind, MemberKind::HardLink | MemberKind::SymLink);
    assert_eq!(header.link.is_some(), linked);
    assert!(header.mode <= 0o7777);
}

/// The members as two layers.
fn merge(members: &[(Header, u64)]) {
    let mut merge = Merge::new();
    let (lower, upper) = members.split_at(members.len() / 2);
    for layer in [lower, upper] {
        for (header, _) in layer {
            if merge.add(header.clone()).is_err() {
                return;
            }
        }
        merge.end_layer();
    }
    let files = merge.finish();
    assert!(files.len() <= members.len());
    for (path, node) in &files {
        assert!(node.layer < 2 && node.header.kind != MemberKind::HardLink);
        assert!(path.split('/').all(|p| !matches!(p, "" | "." | "..")));
        let file = node.header.kind != MemberKind::Directory;
        let below = format!("{path}/");
        let next = files.range(below.clone()..).next();
        assert!(!file || next.is_none_or(|(next, _)| !next.starts_with(&below)));
    }
}
