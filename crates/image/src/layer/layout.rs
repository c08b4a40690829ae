//! Decides a layer's order: the members of the tar, and what is compressed as one job.
//!
//! In: a tree. Out: entries, each folder before its content, and jobs, each with the headers of some entries
//! and the content of the last. RECORDs are left out, because their content is known only after all other
//! files were read.

use std::ops::Range;

use super::content::Content;
use super::install::{self, Install};
use super::tar::{self, Attributes, HeaderKind};
use super::tree::{File, Tree};
use stackforge_binary::zip::Method;

/// Landmark file of eStargz: tells a snapshotter to prefetch nothing.
const NO_PREFETCH: &str = ".no.prefetch.landmark";
/// Content of the landmark file.
pub(super) const LANDMARK: [u8; 1] = [0xf];

/// Bytes of a chunk that is compressed here; each chunk is a gzip member, so that it can be read alone.
const CHUNK: u64 = 1 << 20;

/// Most entries without content whose headers one job makes.
const HEADERS: usize = 256;

/// A member of the tar.
#[derive(Clone, Copy)]
pub(super) enum Entry<'a> {
    Folder(&'a str),
    File(&'a str, &'a File),
}

pub(super) struct Job<'a, S> {
    /// Indexes of the entries whose headers come before the content.
    pub entries: Range<usize>,
    pub content: Option<Content<'a, S>>,
    /// The range of the content in its file, if it is not the whole file.
    pub chunk: Option<Range<u64>>,
    /// Whether it is the last chunk of its file.
    pub last: bool,
}

impl<S> Job<'_, S> {
    fn of_headers(entries: Range<usize>) -> Self {
        Self {
            entries,
            content: None,
            chunk: None,
            last: true,
        }
    }
}

/// The tar's entries in order. The first is the landmark that says to prefetch nothing.
pub(super) fn entries<'a>(tree: &'a Tree, landmark: &'a File) -> Vec<Entry<'a>> {
    let folders = tree.folders.iter().map(|path| Entry::Folder(path));
    let files = (tree.files.iter())
        .filter(|(_, file)| !matches!(file.content, install::Content::Record))
        .map(|(path, file)| Entry::File(path, file));
    let mut entries: Vec<Entry> = folders.chain(files).collect();
    entries.sort_unstable_by_key(Entry::path);
    entries.insert(0, Entry::File(NO_PREFETCH, landmark));
    entries
}

impl<'a> Entry<'a> {
    fn path(&self) -> &'a str {
        match self {
            Self::Folder(path) | Self::File(path, _) => path,
        }
    }

    /// The entry's name in the tar.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Folder(path) => format!("{path}/"),
            Self::File(path, _) => (*path).to_owned(),
        }
    }

    pub(super) fn mode(&self) -> u32 {
        match self {
            Self::Folder(_) => 0o755,
            Self::File(_, file) => file.mode,
        }
    }

    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Folder(_) => 0,
            Self::File(_, file) => file.size,
        }
    }

    fn header(&self, out: &mut Vec<u8>, mtime: u32) {
        let kind = match self {
            Self::Folder(_) => HeaderKind::Folder,
            Self::File(_, file) => HeaderKind::File(file.size),
        };
        let mode = self.mode();
        tar::header(out, &self.name(), kind, Attributes { mode, mtime });
    }
}

pub(super) fn jobs<'a, S>(entries: &[Entry<'a>], installs: &[Install<'a, S>]) -> Vec<Job<'a, S>> {
    let mut jobs = Vec::new();
    let mut from = 0;
    for (place, entry) in entries.iter().enumerate() {
        let file = match entry {
            Entry::File(_, file) if file.size > 0 => file,
            _ => {
                if place + 1 - from == HEADERS {
                    jobs.push(Job::of_headers(from..place + 1));
                    from = place + 1;
                }
                continue;
            }
        };
        let whole = |content| Job {
            entries: from..place + 1,
            content: Some(content),
            chunk: None,
            last: true,
        };
        match &file.content {
            install::Content::Record => continue,
            install::Content::Bytes(bytes) => jobs.push(whole(Content::Bytes(bytes))),
            install::Content::Member(wheel, member) => {
                let Install { wheel, changed, .. } = installs[*wheel];
                let member = &wheel.archive.members[*member];
                let part = |chunk: Range<u64>, content| Job {
                    entries: match chunk.start {
                        0 => from..place + 1,
                        _ => 0..0,
                    },
                    content: Some(content),
                    last: chunk.end == member.size,
                    chunk: (chunk.end - chunk.start < member.size).then_some(chunk),
                };
                let changed = changed.get(&member.name);
                match (changed.filter(|c| c.size() == member.size), member.method) {
                    (Some(changed), _) => jobs.extend(changed.chunks().map(|chunk| {
                        let (start, len) = (chunk.start, chunk.end - chunk.start);
                        part(chunk, Content::Changed(wheel, member, changed, start, len))
                    })),
                    (None, Method::Deflate) => jobs.push(whole(Content::Deflated(wheel, member))),
                    (None, Method::Stored) => {
                        for start in (0..member.size).step_by(CHUNK as usize) {
                            let chunk = start..member.size.min(start + CHUNK);
                            let len = chunk.end - chunk.start;
                            jobs.push(part(chunk, Content::Stored(wheel, member, start, len)));
                        }
                    }
                }
            }
        }
        from = place + 1;
    }
    jobs.push(Job::of_headers(from..entries.len()));
    jobs
}

/// The tar's bytes between the previous content and that of these entries: padding and headers.
pub(super) fn head(entries: &[Entry<'_>], which: &Range<usize>, mtime: u32) -> Vec<u8> {
    let mut head = Vec::new();
    // A chunk in the middle of a file has no header.
    if *which == (0..0) {
        return head;
    }
    if let Some(before) = which.start.checked_sub(1) {
        head.extend_from_slice(tar::padding(entries[before].size()));
    }
    for entry in &entries[which.clone()] {
        entry.header(&mut head, mtime);
    }
    head
}
