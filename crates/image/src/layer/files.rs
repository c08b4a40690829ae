//! Files of wheels as they are installed, and layers of files that are in memory.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use super::error::LayerError;
use super::install::{Content, Install};
use super::spec::{Spec, Stitched};
use super::tree::{File, Tree};
use super::write;
use stackforge_binary::source::{FileSource, Source};

/// Mode of files from memory.
const MODE: u32 = 0o644;

/// Passes each file that a layer of these wheels holds to `each`, by its path below the root, in order: those
/// that `wanted` accepts by path and size in bytes. RECORDs are none of them.
///
/// # Errors
/// As [`write`](super::write()), and what `each` returns.
pub fn installed<S: Source + Clone, E: From<LayerError>>(
    spec: &Spec,
    installs: &[Install<'_, S>],
    wanted: &dyn Fn(&str, u64) -> bool,
    mut each: impl FnMut(&str, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let tree = write::tree(spec, installs)?;
    for (path, file) in &tree.files {
        if !wanted(path, file.size) {
            continue;
        }
        match &file.content {
            Content::Record => {}
            Content::Bytes(bytes) => each(path, bytes)?,
            Content::Member(place, member) => {
                let wheel = installs[*place].wheel;
                let member = &wheel.archive.members[*member];
                each(path, &wheel.read(member, file.size)?)?;
            }
        }
    }
    Ok(())
}

/// Writes a layer of files with root as their owner, which everybody may read. Their paths are below the root.
/// It has the form of a layer of wheels, so that a newer one is put together from an older one by its files.
/// `on_plain` gets its tar, as from [`write_watched`](super::write_watched).
///
/// # Errors
/// If a path is a file and a folder, or `out` fails.
pub fn files(
    spec: &Spec,
    files: BTreeMap<String, Vec<u8>>,
    out: impl Write,
    on_plain: impl FnMut(&Arc<Vec<u8>>),
) -> Result<Stitched, LayerError> {
    let mut tree = Tree::default();
    for (path, content) in files {
        let file = File {
            mode: MODE,
            size: content.len() as u64,
            content: Content::Bytes(content),
            owners: Vec::new(),
        };
        tree.add_file(path, file);
    }
    tree.check::<FileSource>(&[])?;
    write::of_tree::<FileSource>(spec, &tree, &[], out, on_plain)
}
