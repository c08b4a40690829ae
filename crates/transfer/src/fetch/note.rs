//! A part file with a note on the server that its bytes came from.
//!
//! In: a name, a digest, and what a server says of its version of the file. Out: a part that a later attempt,
//! also of another process, can resume with `If-Range`. Never: takes the part of one file for another's.

use crate::part::{PartFile, remove};
use reqwest::header::{self, HeaderMap};
use serde::{Deserialize, Serialize};
use stackforge_types::Digest;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Most bytes of a note; larger than any that is written here.
const LARGEST_NOTE: u64 = 16 << 10;

/// The headers by which a server tells versions of a file apart, for `If-Range` (RFC 9110, 13.1.5).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Validators {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

impl Validators {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name| {
            let value = headers.get(name)?.to_str().ok()?;
            (value.len() <= 256).then(|| value.to_owned())
        };
        Self {
            // A weak entity tag does not promise the same bytes.
            etag: text(header::ETAG).filter(|tag| tag.starts_with('"')),
            last_modified: text(header::LAST_MODIFIED),
        }
    }

    pub(crate) fn if_range(&self) -> Option<&str> {
        self.etag.as_deref().or(self.last_modified.as_deref())
    }
}

/// What is known about a part, kept beside it so that another process can resume it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// Digest of the complete file.
    #[serde(with = "stackforge_types::digest::hex")]
    pub sha256: Digest,
    /// Digest of the address, because the address may contain credentials.
    #[serde(with = "stackforge_types::digest::hex")]
    pub from: Digest,
    #[serde(flatten)]
    pub validators: Validators,
}

/// A part file `NAME.part`, and its note `NAME.part.json`.
pub(super) struct NotedPart {
    part: PartFile,
    note_path: PathBuf,
    /// `None` before the first request, unless a part was recovered.
    note: Option<Note>,
}

impl NotedPart {
    /// Waits for the lock of the part of `name` in the directory `parts`. Calls `on_busy` once if there is a
    /// wait.
    pub(crate) async fn lock(parts: &Path, name: &str, on_busy: impl FnOnce()) -> io::Result<Self> {
        Ok(Self {
            part: PartFile::lock(&parts.join(format!("{name}.part")), on_busy).await?,
            note_path: parts.join(format!("{name}.part.json")),
            note: None,
        })
    }

    /// Continues the part of an earlier attempt, if its note says that it is the start of this file.
    pub(crate) fn recover(&mut self, sha256: &Digest, size: Option<u64>) -> io::Result<()> {
        match read_note(&self.note_path).filter(|note| note.sha256 == *sha256) {
            Some(note) => {
                self.note = Some(note);
                self.part.recover(sha256, size)?;
            }
            None => self.part.restart()?,
        }
        if self.have() == 0 {
            self.forget()?;
        }
        Ok(())
    }

    pub(crate) fn have(&self) -> u64 {
        self.part.have()
    }

    pub(crate) fn path(&self) -> &Path {
        self.part.path()
    }

    pub(crate) fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    pub(crate) fn digest(&self) -> Digest {
        self.part.digest()
    }

    /// Drops the bytes of the part, and the note.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.part.restart()?;
        self.forget()
    }

    fn forget(&mut self) -> io::Result<()> {
        self.note = None;
        remove(&self.note_path)
    }

    /// Writes the note on the following bytes; called before the first of them, so that no part lacks a
    /// note.
    pub(crate) fn annotate(&mut self, note: Note) -> io::Result<()> {
        if self.note.as_ref() == Some(&note) {
            return Ok(());
        }
        let text = serde_json::to_vec(&note).map_err(io::Error::other)?;
        let mut file = tempfile::Builder::new()
            .prefix(".part-")
            .tempfile_in(self.note_path.parent().unwrap_or(Path::new(".")))?;
        file.write_all(&text)?;
        file.persist(&self.note_path).map_err(|e| e.error)?;
        self.note = Some(note);
        Ok(())
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.part.append(bytes)
    }

    /// Gives the file its final name.
    pub(crate) fn finish(self, name: &Path) -> io::Result<()> {
        // The note goes only when the bytes no longer need to be resumed.
        self.part.sync()?;
        remove(&self.note_path)?;
        self.part.finish(name)
    }

    /// Releases the lock; removes the part if it is empty.
    pub(crate) fn release(self) -> io::Result<()> {
        if self.have() == 0 {
            remove(&self.note_path)?;
            self.part.discard()?;
        }
        Ok(())
    }
}

/// Reads a note. `None` also if it is damaged; then the part starts again.
fn read_note(path: &Path) -> Option<Note> {
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    file.take(LARGEST_NOTE).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn locked(directory: &Path) -> NotedPart {
        NotedPart::lock(directory, "x", || panic!("busy"))
            .await
            .unwrap()
    }

    fn note(sha256: &Digest) -> Note {
        Note {
            sha256: sha256.clone(),
            from: Digest::of(b"f"),
            validators: Validators::default(),
        }
    }

    #[tokio::test]
    async fn a_part_is_resumed_only_for_its_own_file() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = Digest::of(b"hello");
        let mut part = locked(dir.path()).await;
        part.recover(&wanted, None).unwrap();
        part.annotate(note(&wanted)).unwrap();
        part.append(b"hel").unwrap();
        part.release().unwrap();

        let mut part = locked(dir.path()).await;
        part.recover(&wanted, Some(5)).unwrap();
        assert_eq!((part.have(), part.note()), (3, Some(&note(&wanted))));
        part.append(b"lo").unwrap();
        part.finish(&dir.path().join("x")).unwrap();
        assert_eq!(std::fs::read(dir.path().join("x")).unwrap(), b"hello");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

        for (other, size) in [
            (Digest::of(b"other"), None),
            (wanted.clone(), Some(2)),
            (wanted.clone(), Some(3)),
        ] {
            let mut part = locked(dir.path()).await;
            part.annotate(note(&wanted)).unwrap();
            part.append(b"hel").unwrap();
            drop(part);
            let mut part = locked(dir.path()).await;
            part.recover(&other, size).unwrap();
            assert_eq!((part.have(), part.note()), (0, None));
            part.release().unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_part_without_a_readable_note_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = Digest::of(b"hello");
        for torn in [&b""[..], b"{\"sha256\":", b"[]"] {
            std::fs::write(dir.path().join("x.part"), b"hel").unwrap();
            std::fs::write(dir.path().join("x.part.json"), torn).unwrap();
            let mut part = locked(dir.path()).await;
            part.recover(&wanted, None).unwrap();
            assert_eq!(part.have(), 0);
            part.release().unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn weak_tags_resume_nothing() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ETAG, "W/\"1\"".parse().unwrap());
        assert_eq!(Validators::of(&headers).if_range(), None);
        headers.insert(header::LAST_MODIFIED, "x".parse().unwrap());
        assert_eq!(Validators::of(&headers).if_range(), Some("x"));
        headers.insert(header::ETAG, "\"1\"".parse().unwrap());
        assert_eq!(Validators::of(&headers).if_range(), Some("\"1\""));
    }
}
