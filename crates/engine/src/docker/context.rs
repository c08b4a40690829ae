//! Tar streams to the engine: made on a blocking thread and sent through a bounded channel.
//!
//! The input is entries or any reader; the output is a body for an HTTP request. At most [`DEPTH`]
//! chunks wait at a time, so a context of any size needs the same memory. The same entries give the
//! same bytes: sorted, owned by 0, dated 0.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use stackforge_binary::tar::{Attributes, Format, Owner, Writer};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::{ContextEntry, EngineError, Source};

const CHUNK: usize = 64 << 10;
const DEPTH: usize = 8;

/// The state of a stream that is being sent.
#[derive(Clone, Default)]
pub(super) struct Upload {
    sent: Arc<AtomicU64>,
    failed: Arc<Mutex<Option<EngineError>>>,
}

impl Upload {
    /// Returns the number of bytes given to the connection so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the error if this side broke off the stream. A caller whose request failed must check
    /// this first.
    pub(super) fn take_failure(&self) -> Option<EngineError> {
        self.failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn fail(&self, error: EngineError) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

/// Returns a tar of `entries` as a stream of chunks. With `parents`, the tar has entries for the parent
/// directories too; without, the receiver creates missing ones.
pub(super) fn tar_stream(
    mut entries: Vec<ContextEntry>,
    parents: bool,
) -> Result<
    (
        impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        Upload,
    ),
    EngineError,
> {
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    check(&entries)?;
    Ok(produce(move |sink, upload| {
        write_tar(&entries, parents, sink).map_err(|failure| match failure {
            Failure::Entry(error) => {
                upload.fail(error);
                io::Error::other("the context could not be read")
            }
            Failure::Receiver(error) => error,
        })
    }))
}

/// Returns the content of `reader` as a stream of chunks.
pub(super) fn reader_stream(
    mut reader: impl Read + Send + 'static,
) -> (
    impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    Upload,
) {
    produce(move |sink, _| io::copy(&mut reader, sink).map(drop))
}

/// Returns what `write` writes as a stream of chunks.
pub(super) fn stream_of(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> (
    impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    Upload,
) {
    produce(move |sink, _| write(sink))
}

fn produce(
    make: impl FnOnce(&mut dyn Write, &Upload) -> io::Result<()> + Send + 'static,
) -> (
    impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    Upload,
) {
    let (sender, receiver) = mpsc::channel(DEPTH);
    let upload = Upload::default();
    let (counter, of_thread) = (Arc::clone(&upload.sent), upload.clone());
    tokio::task::spawn_blocking(move || {
        let mut sink = io::BufWriter::with_capacity(CHUNK, Chunks(sender.clone()));
        let made = make(&mut sink, &of_thread).and_then(|()| sink.flush());
        if let Err(error) = made {
            // Without a receiver the request is already over.
            let _ = sender.blocking_send(Err(error));
        }
    });
    let stream = ReceiverStream::new(receiver).inspect(move |chunk: &io::Result<Bytes>| {
        if let Ok(bytes) = chunk {
            counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    });
    (stream, upload)
}

struct Chunks(mpsc::Sender<io::Result<Bytes>>);

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(CHUNK)];
        self.0
            .blocking_send(Ok(Bytes::copy_from_slice(part)))
            .map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Rejects paths that would differ once unpacked.
fn check(entries: &[ContextEntry]) -> Result<(), EngineError> {
    let invalid = |path: &str, help| EngineError::Invalid {
        what: "the path of a file for the engine",
        value: path.to_owned(),
        help,
    };
    let mut files = BTreeSet::new();
    for ContextEntry { path, .. } in entries {
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) || path.contains('\0') {
            return Err(invalid(path, "give it relative, without `.` and `..`"));
        }
        if !files.insert(path.as_str()) {
            return Err(invalid(path, "it is given twice"));
        }
    }
    for path in &files {
        if ancestors(path).any(|parent| files.contains(parent)) {
            return Err(invalid(path, "one of its parents is given as a file"));
        }
    }
    Ok(())
}

/// Returns the ancestors of a path: `a/b/c` has `a` and `a/b`.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

enum Failure {
    Entry(EngineError),
    Receiver(io::Error),
}

fn write_tar(entries: &[ContextEntry], parents: bool, sink: &mut dyn Write) -> Result<(), Failure> {
    let mut tar = Writer::new(Format::Gnu, sink);
    let mut made = BTreeSet::new();
    for entry in entries {
        if parents {
            for parent in ancestors(&entry.path) {
                if made.insert(parent) {
                    tar.directory(parent, attributes(0o755))
                        .map_err(Failure::Receiver)?;
                }
            }
        }
        append(&mut tar, entry)?;
    }
    tar.finish().map_err(Failure::Receiver)?;
    Ok(())
}

fn append(tar: &mut Writer<&mut dyn Write>, entry: &ContextEntry) -> Result<(), Failure> {
    let (size, bytes): (u64, Box<dyn Read + '_>) = match &entry.source {
        Source::Bytes(bytes) => (bytes.len() as u64, Box::new(bytes.as_slice())),
        Source::File(path) => {
            let of_file = |source| {
                Failure::Entry(EngineError::Context {
                    path: path.clone(),
                    source,
                })
            };
            // The type is checked before the file is opened, because opening a FIFO would wait for its
            // writer.
            if !std::fs::metadata(path).map_err(of_file)?.is_file() {
                return Err(of_file(io::Error::other("not a regular file")));
            }
            let file = File::open(path).map_err(of_file)?;
            let size = file.metadata().map_err(of_file)?.len();
            (size, Box::new(file))
        }
    };
    let mut exact = Exact {
        bytes,
        left: size,
        failed: None,
    };
    let written = tar.file(&entry.path, attributes(entry.mode), size, &mut exact);
    match (written, exact.failed, &entry.source) {
        (_, Some(source), Source::File(path)) => Err(Failure::Entry(EngineError::Context {
            path: path.clone(),
            source,
        })),
        (Err(error), ..) => Err(Failure::Receiver(error)),
        (Ok(()), ..) => Ok(()),
    }
}

/// Root's, and from 1970: nothing of this machine gets into the context.
fn attributes(mode: u32) -> Attributes {
    Attributes {
        owner: Some(Owner::ROOT),
        ..Attributes::new(mode & 0o7777)
    }
}

/// Reads exactly the number of bytes in the tar header, or fails. A file that shrinks while it is read
/// would shift everything after it.
struct Exact<'a> {
    bytes: Box<dyn Read + 'a>,
    left: u64,
    failed: Option<io::Error>,
}

impl Read for Exact<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).map_or(buf.len(), |left| buf.len().min(left));
        if want == 0 {
            return Ok(0);
        }
        let problem = match self.bytes.read(&mut buf[..want]) {
            Ok(0) => io::Error::from(io::ErrorKind::UnexpectedEof),
            Ok(count) => {
                self.left -= count as u64;
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => error,
        };
        let kind = problem.kind();
        self.failed = Some(problem);
        Err(kind.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, bytes: &[u8]) -> ContextEntry {
        ContextEntry {
            path: path.to_owned(),
            mode: 0o100_755,
            source: Source::Bytes(bytes.to_vec()),
        }
    }

    async fn collected(entries: Vec<ContextEntry>) -> Result<Vec<u8>, EngineError> {
        let (mut stream, upload) = tar_stream(entries, true)?;
        let mut all = Vec::new();
        while let Some(chunk) = stream.next().await {
            match chunk {
                Ok(bytes) => all.extend_from_slice(&bytes),
                Err(_) => return Err(upload.take_failure().unwrap()),
            }
        }
        assert_eq!(upload.sent(), all.len() as u64);
        Ok(all)
    }

    #[tokio::test]
    async fn the_same_entries_give_the_same_bytes_in_any_order() {
        let long = format!("b/{}", "n".repeat(200));
        let entries = vec![
            entry(&long, b"2"),
            entry("b/a", &[7; 100_000]),
            entry("a", b""),
        ];
        let reversed = entries.iter().rev().cloned().collect();
        let tar = collected(entries).await.unwrap();
        assert_eq!(tar, collected(reversed).await.unwrap());

        let mut archive = tar::Archive::new(tar.as_slice());
        let mut entries = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(header.mtime().unwrap(), 0);
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mode().unwrap(), 0o755);
            entries.push((entry.path().unwrap().display().to_string(), entry.size()));
        }
        let expected = [("a", 0), ("b/", 0), ("b/a", 100_000), (long.as_str(), 1)];
        assert_eq!(
            entries,
            expected.map(|(path, size)| (path.to_owned(), size))
        );
    }

    /// The digest was computed before the writer was shared.
    #[tokio::test]
    async fn writes_the_bytes_that_it_always_wrote() {
        let long = format!("d/{}", "n".repeat(200));
        let folders = format!("{}f", "long-folder/".repeat(12));
        let entries = vec![
            entry("a", b"1"),
            entry(&long, &[7; 1000]),
            entry(&folders, b""),
        ];
        let tar = collected(entries).await.unwrap();
        assert_eq!(
            stackforge_types::Digest::of(&tar).to_string(),
            "sha256:5998bdcc84640c76fea33f35d59dc6daa24340ee6dbf842f279f755a6a3ad6e3"
        );
    }

    #[tokio::test]
    async fn paths_that_lead_elsewhere_are_refused() {
        for paths in [
            &["/a"][..],
            &["../a"],
            &["a/../b"],
            &["a//b"],
            &["./a"],
            &[""],
            &["a/"],
            &["a\0b"],
            &["a", "a"],
            &["a", "a/b"],
        ] {
            let entries = paths.iter().map(|path| entry(path, b"x")).collect();
            let error = collected(entries).await.unwrap_err();
            assert!(matches!(error, EngineError::Invalid { .. }), "{paths:?}");
        }
    }

    #[tokio::test]
    async fn what_is_no_regular_file_or_shrinks_is_an_error_with_its_path() {
        for path in ["/dev/null", "/", "/nonexistent"] {
            let mut entry = entry("a", b"");
            entry.source = Source::File(path.into());
            match collected(vec![entry]).await {
                Err(EngineError::Context { path: named, .. }) => {
                    assert_eq!(named.to_str(), Some(path));
                }
                other => panic!("{path}: {other:?}"),
            }
        }
        let mut shrunk = Exact {
            bytes: Box::new(&b"12"[..]),
            left: 3,
            failed: None,
        };
        assert!(io::copy(&mut shrunk, &mut io::sink()).is_err());
        assert!(shrunk.failed.is_some());
    }

    #[tokio::test]
    async fn a_receiver_that_leaves_ends_the_thread() {
        let (done, ended) = std::sync::mpsc::channel();
        struct Endless(std::sync::mpsc::Sender<()>);
        impl Read for Endless {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                Ok(buf.len())
            }
        }
        impl Drop for Endless {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let (mut stream, _) = reader_stream(Endless(done));
        assert!(stream.next().await.is_some());
        drop(stream);
        tokio::task::spawn_blocking(move || ended.recv().unwrap())
            .await
            .unwrap();
    }
}
