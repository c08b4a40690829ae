//! A wheel's METADATA, for those who want nothing else of the wheel.

use std::path::Path;

use stackforge_binary::source::{FileSource, bytes};
use stackforge_binary::zip::Archive;

/// Longest METADATA that is read, in bytes.
pub const LONGEST_METADATA: u64 = 4 << 20;

/// Whether a member of a wheel is its METADATA: `NAME-VERSION.dist-info/METADATA`.
pub fn is_metadata(path: &str) -> bool {
    let folder = path.strip_suffix("/METADATA");
    folder.is_some_and(|f| f.ends_with(".dist-info") && !f.contains('/'))
}

/// Returns a wheel's METADATA. `None` if there is none of at most [`LONGEST_METADATA`] bytes, or the wheel cannot be
/// read.
pub fn metadata(wheel: &Path) -> Option<String> {
    let mut file = FileSource::open(wheel).ok()?;
    let archive = Archive::read("wheel", &mut file).ok()?;
    let member = archive.members.iter().find(|m| is_metadata(&m.name))?;
    if member.size > LONGEST_METADATA {
        return None;
    }
    let mut content = archive.open(member, file).ok()?;
    let text = bytes(&mut content, 0, member.size).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}
